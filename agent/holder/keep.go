package holder

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/fenceline/fenceline/agent/ipam"
	"github.com/fenceline/fenceline/agent/journal"
	"github.com/fenceline/fenceline/agent/lease"
	"github.com/fenceline/fenceline/agent/segment"
	"github.com/fenceline/fenceline/apis/audit"
	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/cni/agentapi"
)

// keptRetry is how often an ADD looks again whether its kept address was quarantined.
const keptRetry = 200 * time.Millisecond

// keptLeases returns the leases that belong to this pod already: those of its
// name if it keeps its name, or of an older sandbox of the very same pod.
func (a *adding) keptLeases(ctx context.Context) ([]v1alpha1.IPLease, error) {
	if !keepsItsName(&a.who) && !a.hasOlderSandbox() {
		return nil, nil
	}
	all, err := a.h.Leases.OfPod(ctx, a.who.Namespace, a.who.Pod)
	if err != nil {
		return nil, fmt.Errorf("look for leases of pod %s/%s: %w", a.who.Namespace, a.who.Pod, err)
	}
	var kept []v1alpha1.IPLease
	for _, l := range all {
		holder := l.Spec.Holder
		if holder == nil || holder.Interface != a.who.Interface {
			continue
		}
		if keepsItsName(&a.who) || holder.PodUID == a.who.PodUID {
			kept = append(kept, l)
		}
	}
	return kept, nil
}

// hasOlderSandbox tells whether the journal knows another container of the same
// pod, or a lease from before the last boot does.
func (a *adding) hasOlderSandbox() bool {
	if a.h.lastBoot.has(a.who.PodUID, a.who.Interface) {
		return true
	}
	for _, e := range a.h.Journal.OfPod(a.entry.PodUID) {
		if e.Interface == a.entry.Interface && e.ContainerID != a.entry.ContainerID {
			return true
		}
	}
	return false
}

// keptFor returns the kept lease of a family, or nil, and those that the pod's
// annotation has left behind: it names other pools. The controller frees these
// once the pod has its new address. One of several that was left behind earlier
// may still be quarantined: it gives way to one whose pool serves.
func keptFor(kept []v1alpha1.IPLease, f ipam.Family) (l *v1alpha1.IPLease, left []v1alpha1.IPLease) {
	for i := range kept {
		addr, err := netip.ParseAddr(kept[i].Spec.Address)
		switch {
		case err != nil || addr.Is6() != f.IPv6:
		case f.Left(kept[i].Spec.Pool):
			left = append(left, kept[i])
		case l == nil, poolOf(f, l) == nil && poolOf(f, &kept[i]) != nil:
			l = &kept[i]
		}
	}
	return l, left
}

// takeOver binds the address that is kept for this pod, and no other: it waits
// while the address is still bound elsewhere, and fails rather than hand out a
// different one.
func (a *adding) takeOver(ctx context.Context, f ipam.Family, l *v1alpha1.IPLease) (boundAddress, error) {
	addr, err := netip.ParseAddr(l.Spec.Address)
	if err != nil {
		return boundAddress{}, fmt.Errorf("address of lease %s: %w", l.Name, err)
	}
	if f.Requested.IsValid() && f.Requested != addr {
		return boundAddress{}, &ipam.RequestedError{Addr: f.Requested, Interface: f.Interface,
			Problem: fmt.Sprintf("%s is kept for the pod; delete lease %s to give it up", addr, l.Name)}
	}
	pool := poolOf(f, l)
	if pool == nil {
		return boundAddress{}, agentapi.Errorf(agentapi.CodeNoPool,
			"%s is kept for pod %s/%s, but its pool %s does not serve the pod on node %s%s; delete lease %s to give the address up",
			l.Spec.Address, a.who.Namespace, a.who.Pod, l.Spec.Pool, a.h.Node, rejectionOf(f, l), l.Name)
	}
	for a.boundElsewhere(l) {
		if !a.h.waitFor(ctx, keptRetry) {
			return boundAddress{}, agentapi.Errorf(agentapi.CodeTryAgainLater,
				"%s is kept for pod %s/%s and still bound to its predecessor on node %s", addr, a.who.Namespace, a.who.Pod, l.Spec.NodeName)
		}
		l, err = a.h.Leases.Get(ctx, l.Name)
		if errors.Is(err, lease.ErrGone) {
			if f, err = f.Open(); err != nil {
				return boundAddress{}, err
			}
			return a.bindFree(ctx, f)
		}
		if err != nil {
			return boundAddress{}, err
		}
	}
	address := addressOf(pool, addr)
	address.Static = keepsItsName(&a.who)
	return a.take(ctx, pool, l, address)
}

// boundElsewhere tells whether only the controller can end the present binding.
func (a *adding) boundElsewhere(l *v1alpha1.IPLease) bool {
	return l.Spec.State == v1alpha1.StateBound &&
		(l.Spec.NodeName != a.h.Node || l.Spec.Holder.PodUID != a.who.PodUID)
}

// take writes the take-over, claims, and probes. Where the record names a
// predecessor that was not proven silent, only Fenced and Silent will do.
func (a *adding) take(ctx context.Context, pool *v1alpha1.IPPool, old *v1alpha1.IPLease, address journal.Address) (boundAddress, error) {
	h := a.h
	mustProve := lease.NeedsVerification(&old.Spec, h.Session) && pool.ConflictMode() == v1alpha1.ModeEnforce
	a.entry.Addresses = append(a.entry.Addresses, address)
	if err := a.intend(); err != nil {
		return boundAddress{}, err
	}
	held := &a.entry.Addresses[len(a.entry.Addresses)-1]
	l, c, err := a.writeTakeOver(ctx, pool, old, held)
	if err != nil {
		return boundAddress{}, err
	}
	c.PreviousMAC = a.previousMAC(old)
	verdict, evidence, err := a.verify(ctx, segment.Verification{
		Claim: c, Probe: ProbeParams(pool), SlotDead: h.endedHere(old),
		Asserted: Asserted(&old.Spec), OthersShare: h.OthersShare(),
	})
	if err != nil {
		a.giveBack(ctx, l, verdict, err.Error())
		return boundAddress{}, err
	}
	h.Metrics.Verification(verdict)
	if verdict == segment.Answered && pool.ConflictMode() == v1alpha1.ModeObserve {
		if err := a.observe(ctx, pool, l, *held, evidence.Answer); err != nil {
			return boundAddress{}, err
		}
	} else if verdict == segment.Answered || mustProve && !verdict.Safe() {
		a.giveBack(ctx, l, verdict, evidence.String())
		return boundAddress{}, agentapi.Errorf(agentapi.CodeTryAgainLater,
			"%s is kept for pod %s/%s, but its last holder is not proven silent: %s", address.Addr, a.who.Namespace, a.who.Pod, evidence)
	}
	if verdict == segment.Fenced {
		h.audit(audit.Fence, &a.entry, *held, string(verdict))
	}
	if err := a.seg.ClaimAndConfirm(ctx, c); err != nil {
		a.giveBack(ctx, l, segment.Unknown, err.Error())
		return boundAddress{}, err
	}
	if _, err = h.Leases.Confirm(ctx, l); err != nil {
		return boundAddress{}, err
	}
	h.Events.Eventf(a.pod, nil, corev1.EventTypeNormal, "AddressTakenOver", "Bind", "%s follows its name: %s", address.Addr, verdict)
	return boundAddress{pool: pool, address: *held}, nil
}

// verify looks for proof. Who only asked for the address may be the verifier of
// the quarantine that this take-over has just ended; it asks no second time.
func (a *adding) verify(ctx context.Context, v segment.Verification) (segment.Verdict, segment.Evidence, error) {
	verdict, evidence, err := a.seg.Verify(ctx, v)
	if err == nil && verdict == segment.Answered && evidence.Answer.Kind.Tentative() {
		return a.seg.Verify(ctx, v)
	}
	return verdict, evidence, err
}

// previousMAC returns the MAC that the last holder spoke with, unless it is
// this interface's own.
func (a *adding) previousMAC(old *v1alpha1.IPLease) net.HardwareAddr {
	text := old.Spec.Holder.MAC
	if p := old.Spec.Previous; p != nil && p.MAC != "" {
		text = p.MAC
	}
	mac, err := net.ParseMAC(text)
	if err != nil || text == a.entry.MAC {
		return nil
	}
	return mac
}

// writeTakeOver makes the lease this pod's and lets its slot, and no older one,
// speak for the address.
func (a *adding) writeTakeOver(ctx context.Context, pool *v1alpha1.IPPool, old *v1alpha1.IPLease, held *journal.Address) (*v1alpha1.IPLease, segment.Claim, error) {
	defer a.h.leases.lock(old.Name)()
	l, err := a.h.Leases.TakeOver(ctx, old, lease.Request{
		Pool: pool.Name, Network: pool.Spec.Network, Addr: held.Addr, Parent: a.link.Parent, Holder: a.who,
		Retention: recordedRetention(a.pod),
	})
	if err != nil {
		return nil, segment.Claim{}, err
	}
	token, err := lease.Token(l)
	if err != nil {
		return nil, segment.Claim{}, err
	}
	held.LeaseUID, held.Token = string(l.UID), token
	if err := a.h.killSpeakers(l, a.entry.Slot); err != nil {
		return nil, segment.Claim{}, err
	}
	c, err := a.install(pool, *held)
	return l, c, err
}

// giveBack sets a lease aside again whose take-over failed. Where that cannot
// be written, the journal remembers it, and the undo does it later. An address
// that was proven before, and that nobody answered for, is as proven as it was:
// the undo ends it as a DEL would.
func (a *adding) giveBack(ctx context.Context, l *v1alpha1.IPLease, verdict segment.Verdict, why string) {
	if l.Spec.Previous == nil && verdict != segment.Answered {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTimeout)
	defer cancel()
	if _, err := a.h.Leases.Unverified(ctx, l, why); err != nil {
		a.h.Log.Info("the address is given back by the undo", "lease", l.Name, "why", err.Error())
	}
}

func poolOf(f ipam.Family, l *v1alpha1.IPLease) *v1alpha1.IPPool {
	for _, c := range f.Pools {
		if c.Pool.Name == l.Spec.Pool {
			return c.Pool
		}
	}
	return nil
}

// rejectionOf says why the pool of a lease does not serve: the rules ruled it out, or nobody names it.
func rejectionOf(f ipam.Family, l *v1alpha1.IPLease) string {
	for _, r := range f.Rejected {
		if r.Pool == l.Spec.Pool {
			return ": " + r.Detail
		}
	}
	if f.Requested.IsValid() {
		return "" // only the pool of that address is left of those that are named
	}
	return ": it is none of the pools of " + f.Source
}
