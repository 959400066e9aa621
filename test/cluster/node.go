// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"net/netip"

	"github.com/fenceline/fenceline/test/machine"
	"github.com/fenceline/fenceline/test/must"
	"github.com/fenceline/fenceline/test/network"
)

// Node is a node of a cluster.
type Node struct {
	*machine.Machine
	cluster *Cluster
	number  int
	ns      *network.Namespace
}

// Name returns the name of the Node object.
func (n *Node) Name() string { return NodeName(n.number) }

// Namespace returns the node's network namespace, in which agents with hostNetwork run.
func (n *Node) Namespace() *network.Namespace { return n.ns }

// CutManagement pulls the node's cable out of the management switch. A node with a single interface
// has no such cable, so the router drops the packets between the node and the management network.
func (n *Node) CutManagement() error {
	if n.cluster.Options.SingleNIC {
		return n.betweenManagement(n.cluster.wires.router.Refuse)
	}
	return n.setPort(managementPort(n.Name()), false)
}

// HealManagement plugs it in again.
func (n *Node) HealManagement() error {
	if n.cluster.Options.SingleNIC {
		return n.betweenManagement(n.cluster.wires.router.Admit)
	}
	return n.setPort(managementPort(n.Name()), true)
}

// betweenManagement changes the router's treatment of packets between the node and the management
// network, in both directions.
func (n *Node) betweenManagement(change func(src, dst netip.Prefix) error) (err error) {
	management := n.cluster.Options.management()
	for i, own := range n.cluster.Options.nodeAddresses(n.number) {
		node := netip.PrefixFrom(own.Addr(), own.Addr().BitLen())
		err = errors.Join(err, change(node, management[i]), change(management[i], node))
	}
	return err
}

// CutUnderlay pulls the node's cable out of the underlay switch. The node loses its carrier.
func (n *Node) CutUnderlay() error { return n.setPort(underlayPort(n.Name()), false) }

// HealUnderlay plugs it in again.
func (n *Node) HealUnderlay() error { return n.setPort(underlayPort(n.Name()), true) }

func (n *Node) setPort(port string, up bool) error { return n.cluster.wires.sw.SetUp(port, up) }

// Kill kills every process of the node whose program has that name and returns when they are gone.
// If there is none, it returns an error.
func (n *Node) Kill(ctx context.Context, name string) (err error) {
	defer must.Catch(&err)
	procs := must.Value(n.Processes(name))
	must.That(len(procs) != 0, "kill %s on %s: it does not run there", name, n.Name())
	for _, p := range procs {
		must.OK(p.Kill(ctx))
	}
	return nil
}

// PowerOff removes the node's network interfaces and ends all its processes at once. The disk stays.
func (n *Node) PowerOff(ctx context.Context) (err error) {
	defer must.Catch(&err)
	// The interfaces go first: all nodes share one kernel, which would answer for the pods until they are removed.
	must.Done(n.cluster.wires.unplugNode(n.number), "power %s off", n.Name())
	return n.Machine.PowerOff(ctx)
}

// PowerOn boots the node again after PowerOff, with the same disk and the same MAC addresses.
func (n *Node) PowerOn(ctx context.Context) (err error) {
	defer must.CatchIn(&err, "power %s on", n.Name())
	n.cluster.wires.plugNode(n.cluster.Options, n.number)
	n.Machine = must.Value(machine.Start(n.Config, n.ns, n.Program))
	n.cluster.state.Nodes[n.number-1] = n.Init
	n.cluster.state.save(n.cluster.dir)
	return n.WaitBooted(ctx)
}
