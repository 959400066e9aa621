// SPDX-License-Identifier: Apache-2.0

// Package defence connects the wire with the addresses of this node's pods. It
// gives the segments the addresses to claim and defend, and records the fences and
// conflicts (second speakers) that the segments report. It knows who speaks for
// virtual addresses, and gives the turn of an exclusive one.
package defence

import (
	"context"
	"net"
	"net/netip"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fenceline/fenceline/agent/attachment"
	"github.com/fenceline/fenceline/agent/lease"
	"github.com/fenceline/fenceline/agent/segment"
	"github.com/fenceline/fenceline/agent/segment/claim"
	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/bpf"
	"github.com/fenceline/fenceline/internal/audit"
	"github.com/fenceline/fenceline/internal/event"
)

// backlog is how many conflicts may wait to be recorded. A segment reports an
// address at most every 10 s, so a conflict that does not fit is reported again.
const backlog = 256

// Options of a Defence. All are required.
type Options struct {
	event.Reporter
	// Cluster is the UID of the kube-system namespace.
	Cluster string
	// Cache reads from the agent's filtered caches.
	Cache       client.Reader
	Attachments *attachment.Table
	Leases      *lease.Store
	// OnFence handles a newer claim for an address that is held on a parent here.
	OnFence func(parent int, addr netip.Addr)
	// Conflict counts conflicts.
	Conflict func(pool string, source segment.Source)
}

// Defence of the addresses of this node's pods. Safe for concurrent use.
type Defence struct {
	Options
	// waiting are the conflicts to be recorded on their leases.
	waiting chan conflict
	pace    *pace
}

// New returns a Defence of the addresses of the journal. It records conflicts while Run runs.
func New(o Options) *Defence {
	return &Defence{Options: o, waiting: make(chan conflict, backlog), pace: newPace(o.Clock)}
}

// Holdings returns the addresses of this node's pods, whose claims are repeated.
func (d *Defence) Holdings() []segment.Holding {
	var held []segment.Holding
	pools := map[string]*v1alpha1.IPPool{}
	for e := range d.Attachments.Bound() {
		mac, err := net.ParseMAC(e.MAC)
		if err != nil {
			continue
		}
		for _, address := range e.Addresses {
			params := segment.ParamsOf(d.pool(pools, address.Pool))
			held = append(held, segment.Holding{
				Parent: e.ParentIndex, Network: claim.Network(d.Cluster, address.Network), Token: address.Token,
				Announcement: segment.Announcement{
					NetNS: e.NetNS, Interface: e.Interface, NodeEnd: e.NodeEnd, MAC: mac, Addr: address.Addr, Slot: e.Slot, Mode: params.Mode,
				},
				Ignore: params.Ignore,
			})
		}
	}
	return held
}

// pool reads a pool from the cache, once. A pool that was deleted gets the
// defaults, which are the strictest settings.
func (d *Defence) pool(seen map[string]*v1alpha1.IPPool, name string) *v1alpha1.IPPool {
	if pool, ok := seen[name]; ok {
		return pool
	}
	pool := &v1alpha1.IPPool{}
	if err := d.Cache.Get(context.Background(), client.ObjectKey{Name: name}, pool); err != nil {
		pool = &v1alpha1.IPPool{}
	}
	seen[name] = pool
	return pool
}

// Fenced handles a fence: a newer claim took the address from a pod of this node.
func (d *Defence) Fenced(f bpf.Event) {
	d.Log.Info("an address of this node is fenced", "address", f.Key.Addr, "token", f.Token, "mine", f.Mine, "by", f.MAC.String())
	parent := int(f.Key.Segment)
	e, address, _ := d.Attachments.Holder(parent, f.Key.Addr)
	address.Addr, address.Token = f.Key.Addr, f.Token
	audit.Log(d.Log, audit.Fence, e.Audit(address, d.Node, "claimed by "+f.MAC.String()))
	d.OnFence(parent, f.Key.Addr)
}
