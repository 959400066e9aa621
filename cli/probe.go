// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/spf13/cobra"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/cli/cluster"
	"github.com/fenceline/fenceline/controller/agents"
	"github.com/fenceline/fenceline/internal/diagnosis"
	"github.com/fenceline/fenceline/internal/poolset"
)

// probed is the answer of the wire for an address.
type probed struct {
	Node string `json:"node"`
	diagnosis.Answer
	// State is that of the parent that was asked on.
	State   *diagnosis.Parent `json:"state,omitempty"`
	Verdict string            `json:"verdict"`
}

func (s *session) probe() *cobra.Command {
	node, parent := "", ""
	c := &cobra.Command{
		Use: "probe ADDRESS", Short: "Let an agent ask the wire for an address now", Args: cobra.ExactArgs(1),
		Long: `Let an agent ask the wire for an address now.

The agent sends up to five probes (ARP, or neighbour solicitations of duplicate address detection), which
claim no address. It runs on a node that has pods of the pool, but not the holder of the address.`,
		Example: "  kubectl fenceline probe 10.0.0.7\n  kubectl fenceline probe 10.0.0.7 --node n1 --parent eth1.100",
		RunE: func(c *cobra.Command, args []string) error {
			cl, err := s.open()
			if err != nil {
				return err
			}
			answer, err := probe(c.Context(), cl, args[0], node, parent)
			if err != nil {
				return err
			}
			return s.print(answer, func(w paper) {
				w.say("", 2, fmt.Sprintf("Node %s asked for %s on %s: %s", answer.Node, answer.Address, answer.Question.Parent, answer.Verdict))
			})
		},
	}
	c.Flags().StringVar(&node, "node", "", "node whose agent asks")
	c.Flags().StringVar(&parent, "parent", "", "parent interface on that node")
	return c
}

func probe(ctx context.Context, c *cluster.Cluster, asked, node, parent string) (probed, error) {
	network, addr, err := parseAsked(asked)
	if err != nil {
		return probed{}, err
	}
	if (node == "") != (parent == "") {
		return probed{}, errors.New("--node and --parent belong together")
	}
	lease := &v1alpha1.IPLease{}
	if err := c.Get(ctx, client.ObjectKey{Name: v1alpha1.LeaseName(network, addr)}, lease); client.IgnoreNotFound(err) != nil {
		return probed{}, fmt.Errorf("read the lease of %s: %w", addr, err)
	}
	if node == "" {
		if node, parent, err = placeToAsk(ctx, c, network, addr, lease); err != nil {
			return probed{}, err
		}
	}
	pod, err := agentOf(ctx, c, node)
	if err != nil {
		return probed{}, err
	}
	report, err := c.Diagnose(ctx, pod, diagnosis.Request{Questions: []diagnosis.Question{{Address: addr, Parent: parent}}})
	if err != nil {
		return probed{}, err
	}
	if len(report.Answers) != 1 {
		return probed{}, fmt.Errorf("agent %s gave %d answers to one question: is it of another release?", pod, len(report.Answers))
	}
	p := probed{Node: node, Answer: report.Answers[0]}
	for i := range report.Parents {
		if report.Parents[i].Name == parent {
			p.State = &report.Parents[i]
		}
	}
	p.Verdict = verdict(p, lease)
	return p, nil
}

// placeToAsk returns a node with a pod in the subnet of an address, and the pod's parent. The node of the
// address's own holder comes last, because its kernel does not hear its own frames.
func placeToAsk(ctx context.Context, c *cluster.Cluster, network string, addr netip.Addr, lease *v1alpha1.IPLease) (node, parent string, err error) {
	names, err := poolsWith(ctx, c, network, addr)
	if err != nil {
		return "", "", err
	}
	var places []place
	for _, pool := range names {
		leases, err := leasesOf(ctx, c, "spec.pool", pool)
		if err != nil {
			return "", "", err
		}
		for i := range leases {
			if l := &leases[i]; l.Spec.State != v1alpha1.StateQuarantined && l.Spec.Parent != "" {
				places = append(places, place{Node: l.Spec.NodeName, Parent: l.Spec.Parent})
			}
		}
	}
	isOwn := func(p place) bool { return p.Node == lease.Spec.NodeName }
	slices.SortStableFunc(places, func(a, b place) int {
		switch {
		case isOwn(a) == isOwn(b):
			return 0
		case isOwn(a):
			return 1
		}
		return -1
	})
	for _, p := range places {
		if _, err := agentOf(ctx, c, p.Node); err == nil {
			return p.Node, p.Parent, nil
		}
	}
	return "", "", fmt.Errorf("no node with a Ready agent has a pod of the pool of %s: name a node and its parent with --node and --parent", addr)
}

// agentOf returns the name of the Ready agent of a node.
func agentOf(ctx context.Context, c *cluster.Cluster, node string) (string, error) {
	all, err := c.Agents(ctx)
	if err != nil {
		return "", err
	}
	for i := range all {
		if all[i].Spec.NodeName == node && agents.IsAlive(&all[i]) {
			return all[i].Name, nil
		}
	}
	return "", fmt.Errorf("node %s has no Ready agent in namespace %s", node, c.Namespace)
}

// verdict says what an answer means.
func verdict(p probed, lease *v1alpha1.IPLease) string {
	h := lease.Spec.Holder
	switch {
	case p.Error != "":
		return "nothing was found out: " + p.Error
	case p.OfNode:
		return "it is an address of this node itself"
	case p.MAC == "" && p.State != nil && (!p.State.Carrier || !p.State.Observed || p.State.Deaf):
		return "nobody answers, and this proves nothing, because the node hears nobody else there"
	case p.MAC == "":
		return "nobody answers"
	case h != nil && lease.Spec.State == v1alpha1.StateBound && h.MAC == p.MAC:
		return fmt.Sprintf("%s answers, which is its holder, pod %s/%s on node %s", p.MAC, h.Namespace, h.Pod, lease.Spec.NodeName)
	case h != nil && lease.Spec.State == v1alpha1.StateBound:
		return fmt.Sprintf("%s answers, which is not its holder, pod %s/%s with %s: a conflict", p.MAC, h.Namespace, h.Pod, h.MAC)
	}
	return p.MAC + " answers"
}

// poolsWith returns the pools of a network that have an address in their subnets.
func poolsWith(ctx context.Context, c *cluster.Cluster, network string, addr netip.Addr) (names []string, err error) {
	var pools v1alpha1.IPPoolList
	if err := c.List(ctx, &pools); err != nil {
		return nil, fmt.Errorf("list pools: %w", err)
	}
	for i := range pools.Items {
		subnet, err := poolset.Subnet(&pools.Items[i])
		if err == nil && pools.Items[i].Spec.Network == network && subnet.Contains(addr) {
			names = append(names, pools.Items[i].Name)
		}
	}
	return names, nil
}
