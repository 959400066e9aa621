package holder

import (
	"context"
	"errors"
	"fmt"
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
		return nil, unavailable(fmt.Errorf("look for leases of pod %s/%s: %w", a.who.Namespace, a.who.Pod, err))
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

// hasOlderSandbox tells whether the journal knows another container of the same pod.
func (a *adding) hasOlderSandbox() bool {
	for _, e := range a.h.Journal.All() {
		if e.PodUID == a.entry.PodUID && e.Interface == a.entry.Interface && e.ContainerID != a.entry.ContainerID {
			return true
		}
	}
	return false
}

// keptFor returns the kept lease of a family, or nil.
func keptFor(kept []v1alpha1.IPLease, f ipam.Family) *v1alpha1.IPLease {
	for i := range kept {
		addr, err := netip.ParseAddr(kept[i].Spec.Address)
		if err == nil && addr.Is6() == f.IPv6 {
			return &kept[i]
		}
	}
	return nil
}

// takeOver binds the address that is kept for this pod, and no other: it waits
// while the address is still bound elsewhere, and fails rather than hand out a
// different one.
func (a *adding) takeOver(ctx context.Context, f ipam.Family, l *v1alpha1.IPLease) (boundAddress, error) {
	pool := poolOf(f, l)
	if pool == nil {
		return boundAddress{}, agentapi.Errorf(agentapi.CodeNoPool,
			"%s is kept for pod %s/%s, but its pool %s does not serve the pod on node %s; delete lease %s to give the address up",
			l.Spec.Address, a.who.Namespace, a.who.Pod, l.Spec.Pool, a.h.Node, l.Name)
	}
	addr, err := netip.ParseAddr(l.Spec.Address)
	if err != nil {
		return boundAddress{}, fmt.Errorf("address of lease %s: %w", l.Name, err)
	}
	for a.boundElsewhere(l) {
		if !a.h.waitFor(ctx, keptRetry) {
			return boundAddress{}, agentapi.Errorf(agentapi.CodeTryAgainLater,
				"%s is kept for pod %s/%s and still bound to its predecessor on node %s", addr, a.who.Namespace, a.who.Pod, l.Spec.NodeName)
		}
		l, err = a.h.Leases.Get(ctx, l.Name)
		if errors.Is(err, lease.ErrGone) {
			return a.bindFree(ctx, f)
		}
		if err != nil {
			return boundAddress{}, unavailable(err)
		}
	}
	return a.take(ctx, pool, l, addressOf(pool, addr, keepsItsName(&a.who)))
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
	dead := h.endedHere(old)
	mustProve := lease.NeedsVerification(&old.Spec, h.Session) && pool.ConflictMode() == v1alpha1.ModeEnforce
	previousMAC := old.Spec.Holder.MAC

	a.entry.Addresses = append(a.entry.Addresses, address)
	if err := h.Journal.Put(a.entry); err != nil {
		return boundAddress{}, err
	}
	held := &a.entry.Addresses[len(a.entry.Addresses)-1]
	l, c, err := a.writeTakeOver(ctx, pool, old, held)
	if err != nil {
		return boundAddress{}, unavailable(err)
	}
	if mac, err := parseMAC(previousMAC); err == nil && previousMAC != a.entry.MAC {
		c.PreviousMAC = mac
	}
	verdict, evidence, err := a.seg.Verify(ctx, segment.Verification{
		Claim: c, Probe: ProbeParams(pool), SlotDead: dead,
		Asserted: asserted(old), OthersShare: h.Share().Count != 1,
	})
	h.Metrics.Verification(verdict)
	if err != nil {
		return boundAddress{}, errors.Join(err, a.giveBack(ctx, l, err.Error()))
	}
	if verdict == segment.Answered || mustProve && !verdict.Safe() {
		return boundAddress{}, errors.Join(agentapi.Errorf(agentapi.CodeTryAgainLater,
			"%s is kept for pod %s/%s, but its last holder is not proven silent: %s", address.Addr, a.who.Namespace, a.who.Pod, evidence),
			a.giveBack(ctx, l, evidence.String()))
	}
	if verdict == segment.Fenced {
		h.audit(audit.Fence, &a.entry, *held, string(verdict))
	}
	if err := a.seg.ClaimAndConfirm(ctx, c); err != nil {
		return boundAddress{}, errors.Join(err, a.giveBack(ctx, l, err.Error()))
	}
	if l, err = h.Leases.Confirm(ctx, l); err != nil {
		return boundAddress{}, unavailable(err)
	}
	h.Events.Eventf(a.pod, nil, corev1.EventTypeNormal, "AddressTakenOver", "Bind", "%s follows its name: %s", address.Addr, verdict)
	return boundAddress{lease: l, pool: pool, address: *held}, nil
}

// writeTakeOver makes the lease this pod's and lets its slot, and no older one,
// speak for the address.
func (a *adding) writeTakeOver(ctx context.Context, pool *v1alpha1.IPPool, old *v1alpha1.IPLease, held *journal.Address) (*v1alpha1.IPLease, segment.Claim, error) {
	defer a.h.lockLease(old.Name)()
	l, err := a.h.Leases.TakeOver(ctx, old, lease.Request{
		Pool: pool.Name, Network: pool.Spec.Network, Addr: held.Addr, Parent: a.link.Parent, Holder: a.who,
		Retention: old.Spec.Retention,
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

// giveBack sets a lease aside again whose take-over failed, before the undo
// could free it unproven.
func (a *adding) giveBack(ctx context.Context, l *v1alpha1.IPLease, why string) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTimeout)
	defer cancel()
	if _, err := a.h.Leases.Unverified(ctx, l, why); err != nil {
		return err
	}
	a.entry.Addresses = a.entry.Addresses[:len(a.entry.Addresses)-1]
	return a.h.Journal.Put(a.entry)
}

// KillHolder reads a lease past the cache and, if it is Quarantined, kills
// every slot of this node that speaks for its address. dead tells that the last
// holder was one of this session: that is positive proof (R8).
func (h *Holders) KillHolder(ctx context.Context, name string) (l *v1alpha1.IPLease, dead bool, err error) {
	defer h.lockLease(name)()
	if l, err = h.Leases.Get(ctx, name); err != nil || l.Spec.State != v1alpha1.StateQuarantined {
		return l, false, err
	}
	return l, h.endedHere(l), h.killSpeakers(l, 0)
}

// lockLease keeps a take-over and a verification of one lease apart: the
// verifier must not kill the slot that the take-over has just installed.
func (h *Holders) lockLease(name string) func() {
	return h.locks.lock(attachment{containerID: "lease/" + name})
}

// killSpeakers kills every slot of this node, but the new holder's own, that
// the kernel lets speak for a lease's address.
func (h *Holders) killSpeakers(l *v1alpha1.IPLease, own uint32) error {
	network, addr, err := v1alpha1.ParseLeaseName(l.Name)
	if err != nil {
		return err
	}
	leases, err := h.Kernel.Leases()
	if err != nil {
		return fmt.Errorf("read the kernel's leases: %w", err)
	}
	for key, installed := range leases {
		if key.Addr != addr || installed.Network != h.network(network) || installed.Slot == 0 || installed.Slot == own {
			continue
		}
		if err := h.Kernel.KillSlot(installed.Slot); err != nil {
			return fmt.Errorf("kill slot %d, which spoke for %s: %w", installed.Slot, key, err)
		}
	}
	return nil
}

// endedHere tells whether the last holder of a lease was bound by this session.
// Once its slots are killed, or were by its own DEL, it is proven silent.
func (h *Holders) endedHere(l *v1alpha1.IPLease) bool {
	if p := l.Spec.Previous; p != nil {
		return p.Node == h.Node && p.Session == h.Session
	}
	return l.Spec.State == v1alpha1.StateBound && l.Spec.NodeName == h.Node && l.Spec.Session == h.Session
}

// asserted tells whether the end of the last holder is asserted by Kubernetes.
func asserted(l *v1alpha1.IPLease) bool {
	return l.Spec.Reason == v1alpha1.ReasonNodeGone || l.Spec.Reason == v1alpha1.ReasonOutOfService
}

func poolOf(f ipam.Family, l *v1alpha1.IPLease) *v1alpha1.IPPool {
	for _, c := range f.Pools {
		if c.Pool.Name == l.Spec.Pool {
			return c.Pool
		}
	}
	return nil
}
