// SPDX-License-Identifier: Apache-2.0

// Package defence connects the wire with the addresses of this node's pods. It
// gives the segments the addresses to claim and defend, and records the fences and
// conflicts (second speakers) that the segments report.
package defence

import (
	"context"
	"net"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fenceline/fenceline/agent/holder"
	"github.com/fenceline/fenceline/agent/lease"
	"github.com/fenceline/fenceline/agent/segment"
	"github.com/fenceline/fenceline/agent/segment/claim"
	"github.com/fenceline/fenceline/apis/v1alpha1"
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
	// Cache holds the pools.
	Cache   client.Reader
	Holders *holder.Holders
	Leases  *lease.Store
	// CountConflict counts a second speaker.
	CountConflict func(pool string, source segment.Source)
}

// Defence of the addresses of this node's pods. Safe for concurrent use.
type Defence struct {
	Options
	// waiting are the conflicts to be recorded on their leases.
	waiting chan conflict
	pace    *pace
}

// New returns a Defence. It records conflicts while Run runs.
func New(o Options) *Defence {
	return &Defence{Options: o, waiting: make(chan conflict, backlog), pace: newPace(o.Clock)}
}

// Holdings returns the addresses of this node's pods, whose claims are repeated.
func (d *Defence) Holdings() []segment.Holding {
	var held []segment.Holding
	pools := map[string]*v1alpha1.IPPool{}
	for e := range d.Holders.Bound() {
		mac, err := net.ParseMAC(e.MAC)
		if err != nil {
			continue
		}
		for _, address := range e.Addresses {
			params := segment.ParamsOf(d.pool(pools, address.Pool))
			held = append(held, segment.Holding{
				Parent: e.ParentIndex, Addr: address.Addr, Network: claim.Network(d.Cluster, address.Network),
				Token: address.Token, Slot: e.Slot, MAC: mac, NetNS: e.NetNS, Interface: e.Interface,
				Mode: params.Mode, Ignore: params.Ignore,
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
func (d *Defence) Fenced(f segment.Fence) {
	d.Log.Info("an address of this node is fenced", "address", f.Key.Addr, "token", f.Token, "mine", f.Mine, "by", f.MAC.String())
	e, address, _ := d.Holders.Holder(f.Key)
	address.Addr, address.Token = f.Key.Addr, f.Token
	d.Holders.Audit(audit.Fence, &e, address, "claimed by "+f.MAC.String())
	d.Holders.Fenced(f.Key)
}
