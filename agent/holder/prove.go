// SPDX-License-Identifier: Apache-2.0

package holder

import (
	"context"
	"errors"

	corev1 "k8s.io/api/core/v1"

	"github.com/fenceline/fenceline/agent/claim"
	"github.com/fenceline/fenceline/agent/guards"
	"github.com/fenceline/fenceline/agent/journal"
	"github.com/fenceline/fenceline/agent/lease"
	"github.com/fenceline/fenceline/agent/refusal"
	"github.com/fenceline/fenceline/agent/segment"
	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/internal/audit"
	"github.com/fenceline/fenceline/internal/foreignhost"
)

// prove guards, probes and claims the address of a new lease, in this order: a host without a
// record answers the probe, so no claim is ever sent against it (R4). Without a claim key the probe
// alone protects the address. ok is false if another host uses the address; then the lease is
// quarantined.
func (a *adding) prove(ctx context.Context, pool *v1alpha1.IPPool, l *v1alpha1.IPLease) (b boundAddress, ok bool, err error) {
	e := a.entry(journal.Intent)
	if living, _, held := a.h.Holder(guards.Key(&e, *a.trying)); held {
		// A pod of this node uses the address, and its record was lost. Installing the address for
		// the new pod would mute that pod before it can answer.
		return boundAddress{}, false, a.quarantine(ctx, pool, l, living.MAC, segment.SourceProbe)
	}
	c, err := a.install(pool)
	if err != nil {
		return boundAddress{}, false, err
	}
	heard, err := a.seg.Probe(ctx, a.trying.Addr, segment.ParamsOf(pool))
	if err != nil {
		return boundAddress{}, false, err
	}
	switch {
	case heard.Conflict && pool.ConflictMode() != v1alpha1.ModeObserve:
		return boundAddress{}, false, a.giveWay(ctx, pool, l, heard)
	case heard.Conflict:
		if err := a.observe(ctx, pool, l, heard); err != nil {
			return boundAddress{}, false, err
		}
	}
	if err := a.seg.ClaimAndConfirm(ctx, c); err != nil && !errors.Is(err, segment.ErrNoKey) {
		return boundAddress{}, false, err
	}
	return boundAddress{pool: pool, address: *a.trying}, true, nil
}

// install lets the slot use the address that is being tried, with the token of its
// lease, once the interface is guarded.
func (a *adding) install(pool *v1alpha1.IPPool) (segment.Claim, error) {
	if err := a.guard(); err != nil {
		return segment.Claim{}, err
	}
	c := segment.Claim{
		Addr: a.trying.Addr, Network: claim.Network(a.h.Cluster, a.trying.Network), Token: a.trying.Token,
		Mode: pool.ConflictMode(),
	}
	e := a.entry(journal.Intent)
	return c, a.h.Guards.Install(&e, *a.trying)
}

// observe reports a second speaker, and leaves the address to the pod.
func (a *adding) observe(ctx context.Context, pool *v1alpha1.IPPool, l *v1alpha1.IPLease, heard segment.Answer) error {
	a.countConflict(pool, heard.MAC.String(), heard.Source)
	a.h.Events.Eventf(a.pod, pool, corev1.EventTypeWarning, "AddressConflict", "Bind",
		"%s is used by %s as well; pool %s only observes", a.trying.Addr, heard.MAC, pool.Name)
	_, err := a.h.Leases.RecordConflict(ctx, l, lease.Evidence{MAC: heard.MAC.String(), Source: string(heard.Source)})
	return err
}

// giveWay leaves the address that is being tried to the foreign host that uses it. The lease is
// quarantined, or ends if the host answers for many addresses of the pool. An error ends the ADD,
// and its undo frees the lease: the pod never had the address.
func (a *adding) giveWay(ctx context.Context, pool *v1alpha1.IPPool, l *v1alpha1.IPLease, heard segment.Answer) error {
	mac := heard.MAC.String()
	action, err := a.h.Foreign.Meet(ctx, a.link.ParentIndex, pool.Name, mac)
	if err != nil {
		return err
	}
	switch action {
	case foreignhost.Quarantine:
		return a.quarantine(ctx, pool, l, mac, heard.Source)
	case foreignhost.PassOver:
		return a.passOver(ctx, pool, l, mac, heard.Source)
	}
	a.countConflict(pool, mac, heard.Source)
	return refusal.New(refusal.TryAgain,
		"%s answers for more than %d addresses on parent %s, so no other address of pool %s is tried for now; "+
			"if this host is a proxy, add it to spec.conflictDetection.ignoreMACs of the pool; if it owns the addresses, exclude them by spec.excludeIPs",
		mac, foreignhost.MaxConflicts, a.link.Parent, pool.Name)
}

// passOver frees an address that is used by a host for which enough addresses are quarantined.
func (a *adding) passOver(ctx context.Context, pool *v1alpha1.IPPool, l *v1alpha1.IPLease, mac string, source segment.Source) error {
	a.countConflict(pool, mac, source)
	e := a.entry(journal.Intent)
	if err := a.h.Guards.Uninstall(guards.Key(&e, *a.trying), a.slot); err != nil {
		return err
	}
	return a.h.End(ctx, l, &e, *a.trying)
}

// quarantine quarantines the lease of an address that another host uses. The
// kernel forgets the address first: a verifier of a Quarantined lease kills the
// slots that may use its address, and this slot goes on with another address.
func (a *adding) quarantine(ctx context.Context, pool *v1alpha1.IPPool, l *v1alpha1.IPLease, mac string, source segment.Source) error {
	a.countConflict(pool, mac, source)
	a.h.Events.Eventf(a.pod, pool, corev1.EventTypeWarning, "AddressConflict", "Bind",
		"%s is used by %s; it is quarantined and another address is tried", a.trying.Addr, mac)
	e := a.entry(journal.Intent)
	if err := a.h.Guards.Uninstall(guards.Key(&e, *a.trying), a.slot); err != nil {
		return err
	}
	_, err := a.h.Leases.QuarantineConflict(ctx, l, lease.Evidence{MAC: mac, Source: string(source)})
	return err
}

// countConflict counts and audits a second speaker.
func (a *adding) countConflict(pool *v1alpha1.IPPool, mac string, source segment.Source) {
	e := a.entry(journal.Intent)
	a.h.Metrics.Conflict(pool.Name, source)
	a.h.Audit(audit.Conflict, &e, *a.trying, "speaker "+mac)
}
