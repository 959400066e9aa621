// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/cli/movein"
	"github.com/fenceline/fenceline/controller/agents"
	"github.com/fenceline/fenceline/internal/diagnosis"
)

// files asks the agent of each node for its files of host-local. With write, free addresses of ranges get a file of the
// move, and others of the move go.
func (m *mover) files(ctx context.Context, write bool, ends []netip.Addr) ([]movein.NodeFiles, error) {
	directories := m.facts.Directories()
	if m.from != v1alpha1.MoveHostLocal || len(directories) == 0 {
		return nil, nil
	}
	var nodes corev1.NodeList
	if err := m.c.List(ctx, &nodes); err != nil {
		return nil, fmt.Errorf("list nodes: %w", err)
	}
	running, err := agents.List(ctx, m.c, m.c.Namespace)
	if err != nil {
		return nil, err
	}
	nodes.Items = slices.DeleteFunc(nodes.Items, func(n corev1.Node) bool { // no agent is meant for these, nor host-local
		return cmp.Or(n.Labels[corev1.LabelOSStable], "linux") != "linux"
	})
	pods := map[string]string{}
	for i := range running {
		if agents.IsAlive(&running[i]) {
			pods[running[i].Spec.NodeName] = running[i].Name
		}
	}
	all := make([]movein.NodeFiles, len(nodes.Items))
	var group errgroup.Group
	group.SetLimit(agentsAtOnce)
	for i := range nodes.Items {
		all[i].Node = nodes.Items[i].Name
		pod, ok := pods[all[i].Node]
		if !ok {
			all[i].Away = "it has no agent that is Ready"
			continue
		}
		group.Go(func() error {
			if write {
				if err := m.still(ctx); err != nil {
					return err
				}
			}
			m.filesOf(ctx, pod, directories, write, ends, &all[i])
			return nil // an agent that does not answer does not end the others
		})
	}
	return all, group.Wait()
}

// filesOf asks the agent of a node.
func (m *mover) filesOf(ctx context.Context, pod string, directories []movein.Directory, write bool, ends []netip.Addr, node *movein.NodeFiles) {
	for _, d := range directories {
		files, err := m.s.hostLocal(ctx, m.c, pod, diagnosis.HostLocal{
			DataDir: d.DataDir, Networks: []string{d.Network}, Mark: movein.Mark(m.network), Write: write, Ends: ends,
		})
		if err != nil {
			node.Away = err.Error()
			return
		}
		node.Marked += files.Marked
		for _, f := range files.Files {
			node.Files = append(node.Files, movein.File{
				Directory: d, Address: f.Address, Container: f.Container, Interface: f.Interface, Old: f.Old, Problem: f.Problem,
			})
		}
	}
}

// restrict has the other IPAM give no address of ranges, whatever its definitions are: Spiderpool by SpiderReservedIPs,
// whereabouts by allocations of the move in the slices of nodes, host-local by files of the move on all nodes, which these
// take for given. It returns the nodes where that failed, as clauses.
func (m *mover) restrict(ctx context.Context, ends []netip.Addr) (failed []string, err error) {
	switch m.from {
	case v1alpha1.MoveSpiderpool:
		return nil, m.reserve(ctx, ends)
	case v1alpha1.MoveWhereabouts:
		in, all := movein.Marks(m.plan, m.network, ends)
		return nil, m.allocateAll(ctx, in, all, movein.Mark(m.network))
	}
	nodes, err := m.files(ctx, true, ends)
	if err != nil {
		return nil, err
	}
	for _, n := range nodes {
		if len(ends) == 0 && n.Marked > 0 { // a command that is gone had its agent write meanwhile
			failed = append(failed, fmt.Sprintf("node %s has %d files of the move again", n.Node, n.Marked))
		}
	}
	return append(failed, movein.Facts{Nodes: nodes}.Away()...), nil
}

// freezeAll has the other IPAM give no address at all, whatever its definitions are.
func (m *mover) freezeAll(ctx context.Context) error {
	failed, err := m.restrict(ctx, m.plan.Freeze())
	if err == nil && len(failed) > 0 {
		err = fmt.Errorf("write the files of the move: %s. Mend it, and repeat the command, or go back", strings.Join(failed, "; "))
	}
	return err
}
