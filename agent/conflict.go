package main

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/fenceline/fenceline/agent/journal"
	"github.com/fenceline/fenceline/agent/lease"
	"github.com/fenceline/fenceline/agent/segment"
	"github.com/fenceline/fenceline/apis/audit"
	"github.com/fenceline/fenceline/bpf"
)

const (
	// conflictBacklog is how many conflicts may wait to be recorded. A segment
	// reports an address at most every 10 s, so what does not fit comes again.
	conflictBacklog = 256
	// recordTimeout bounds the calls to the API server for one conflict.
	recordTimeout = 10 * time.Second
)

// conflict is a second speaker for an address of a lease.
type conflict struct {
	segment.Conflict
	lease string
}

// onFenced tells of an address that a newer claim took from a pod of this node.
func (a *agent) onFenced(f segment.Fence) {
	a.log.Info("an address held here is fenced", "address", f.Key.Addr, "token", f.Token, "mine", f.Mine, "by", f.MAC.String())
	e, address, _ := a.holders.Holder(f.Key)
	record := a.record(&e, address, "claimed by "+f.MAC.String())
	record.Address, record.Token = f.Key.Addr, f.Token
	audit.Log(a.log, audit.Fence, record)
	a.holders.Fenced(f.Key)
}

// onConflict takes note of a second speaker. It is called by the event loop
// and does not block.
func (a *agent) onConflict(c segment.Conflict) {
	e, address, held := a.holders.Holder(bpf.Key{Segment: uint32(c.Holding.Parent), Addr: c.Holding.Addr})
	if !held {
		return
	}
	a.counters.Conflict(address.Pool, c.Source)
	audit.Log(a.log, audit.Conflict, a.record(&e, address, "speaker "+c.MAC.String()))
	select {
	case a.conflicts <- conflict{c, address.LeaseName}:
	default:
		a.log.Info("too many conflicts at once, this one is not recorded on its lease", "lease", address.LeaseName, "speaker", c.MAC.String())
	}
}

// recordConflicts writes second speakers on their leases until ctx ends.
func (a *agent) recordConflicts(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case c := <-a.conflicts:
			if err := a.recordConflict(ctx, c); err != nil && ctx.Err() == nil {
				a.log.Info("a conflict could not be recorded", "lease", c.lease, "why", err.Error())
			}
		}
	}
}

func (a *agent) recordConflict(ctx context.Context, c conflict) error {
	ctx, cancel := context.WithTimeout(ctx, recordTimeout)
	defer cancel()
	l, err := a.store.Get(ctx, c.lease)
	if err != nil {
		return err
	}
	if _, err := a.store.RecordConflict(ctx, l, lease.Evidence{MAC: c.MAC.String(), Source: string(c.Source)}); err != nil {
		return err
	}
	a.events.Eventf(l, nil, corev1.EventTypeWarning, "AddressConflict", "Guard", "%s also speaks for %s", c.MAC, c.Holding.Addr)
	return nil
}

// record is the audit record of an address held here.
func (a *agent) record(e *journal.Entry, address journal.Address, reason string) audit.Record {
	return audit.Record{
		Address: address.Addr, Pool: address.Pool, Namespace: e.PodNamespace, Pod: e.PodName, PodUID: e.PodUID,
		Node: a.node, MAC: e.MAC, Token: address.Token, Reason: reason,
	}
}
