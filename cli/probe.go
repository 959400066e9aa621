// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"

	"github.com/spf13/cobra"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/cli/cluster"
	"github.com/fenceline/fenceline/controller/agents"
	"github.com/fenceline/fenceline/internal/diagnosis"
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
	node, parent, network := "", "", ""
	c := &cobra.Command{
		Use: "probe ADDRESS", Short: "Let an agent ask the wire for an address now", Args: cobra.ExactArgs(1),
		Long: `Let an agent ask the wire for an address now.

The agent sends up to five probes (ARP, or neighbour solicitations of duplicate address detection), which
claim no address. It runs on a node that has pods of the pool, but not the holder of the address.`,
		Example: "  kubectl fenceline probe 10.0.0.7\n  kubectl fenceline probe 10.0.0.7 --node n1 --parent eth1.100\n  kubectl fenceline probe 10.0.0.7 --network storage",
		RunE: answers(s, func(ctx context.Context, c *cluster.Cluster, args []string) (probed, error) {
			q, err := parseQuery(args[0], network)
			if err != nil {
				return probed{}, err
			}
			return probe(ctx, c, q, node, parent)
		}, func(w paper, p probed) {
			w.say("", 2, fmt.Sprintf("Node %s asked for %s on %s: %s", p.Node, p.Address, p.Question.Parent, p.Verdict))
		}),
	}
	networkFlag(c, &network)
	c.Flags().StringVar(&node, "node", "", "node whose agent asks")
	c.Flags().StringVar(&parent, "parent", "", "parent interface on that node")
	return c
}

func probe(ctx context.Context, c *cluster.Cluster, q query, node, parent string) (probed, error) {
	if (node == "") != (parent == "") {
		return probed{}, errors.New("--node and --parent belong together")
	}
	pools, networks, err := q.read(ctx, c)
	if err != nil {
		return probed{}, err
	}
	if len(networks) > 1 {
		return probed{}, fmt.Errorf("%s is on several networks: choose one of %q with --network", q.addr, networks)
	}
	lease, err := leaseOn(ctx, c, networks[0], q.addr)
	if err != nil {
		return probed{}, err
	}
	if lease == nil {
		lease = &v1alpha1.IPLease{}
	}
	all, err := agents.List(ctx, c, c.Namespace)
	if err != nil {
		return probed{}, err
	}
	ready := map[string]string{} // by node
	for i := range all {
		if agents.IsAlive(&all[i]) {
			ready[all[i].Spec.NodeName] = all[i].Name
		}
	}
	if node == "" {
		if node, parent, err = placeToAsk(ctx, c, pools, networks[0], q.addr, lease, ready); err != nil {
			return probed{}, err
		}
	}
	pod := ready[node]
	if pod == "" {
		return probed{}, fmt.Errorf("node %s has no Ready agent in namespace %s", node, c.Namespace)
	}
	report, err := c.Diagnose(ctx, pod, diagnosis.Request{Questions: []diagnosis.Question{{Address: q.addr, Parent: parent}}})
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

// placeToAsk returns a node with a Ready agent and a pod in the subnet of an address, and the pod's
// parent. The node of the holder comes last: its kernel does not hear the frames that it sends.
func placeToAsk(ctx context.Context, c *cluster.Cluster, pools []v1alpha1.IPPool, network string, addr netip.Addr, lease *v1alpha1.IPLease, ready map[string]string) (node, parent string, err error) {
	for _, pool := range poolsWith(pools, addr) {
		if pool.Spec.Network != network {
			continue
		}
		leases, err := leasesOf(ctx, c, "spec.pool", pool.Name)
		if err != nil {
			return "", "", err
		}
		for i := range leases {
			l := &leases[i].Spec
			if l.State == v1alpha1.StateQuarantined || l.Parent == "" || ready[l.NodeName] == "" {
				continue
			}
			if node, parent = l.NodeName, l.Parent; node != lease.Spec.NodeName {
				return node, parent, nil
			}
		}
	}
	if node == "" {
		err = fmt.Errorf("no node with a Ready agent has a pod of the pool of %s: name a node and its parent with --node and --parent", addr)
	}
	return node, parent, err
}

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
