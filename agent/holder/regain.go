// SPDX-License-Identifier: Apache-2.0

package holder

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fenceline/fenceline/agent/attachment"
	"github.com/fenceline/fenceline/agent/lease"
	"github.com/fenceline/fenceline/agent/node"
	"github.com/fenceline/fenceline/agent/segment"
	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/bpf"
	"github.com/fenceline/fenceline/internal/audit"
	"github.com/fenceline/fenceline/internal/event"
	"github.com/fenceline/fenceline/internal/owner"
)

// An interface that has its answer may be fenced for its address, and win it afterwards:
//   - The target of a live migration gets the address of its virtual machine while the source still uses
//     it (R15). It stands behind the source: no lease is written, and recovery looks at the lease until
//     the controller has handed it over.
//   - A claim may fence a pod although the lease is the pod's own: a copy of the cluster on the same VLAN
//     sends authentic claims, and so does everybody who has the key. The store is right about the holder.
//     But another host may speak by that claim, so the pod stays mute until the opposite is proven (R1).
//
// The order differs from that of win, because the address is installed and mute until the proof:
// write, prove, confirm, then the entry on disk, the install with the new token, and the claim.

// regainTimeout bounds one try.
const regainTimeout = 20 * time.Second

// StandsBehind reports whether a pod of this node stands behind the holder of a lease. Recovery
// takes such a lease over, and no verifier frees it or kills the slot of the pod.
func (h *After) StandsBehind(lease string) bool {
	for e := range h.Journal.Bound() {
		for _, address := range e.Addresses {
			if address.LeaseName == lease && address.Behind != 0 {
				return true
			}
		}
	}
	return false
}

// TakeTurn takes an address over for a pod that stood behind its last holder. The address stays fenced
// here until this holder is proven fenced, gone or silent. If there is no proof, the lease is
// Quarantined again. The caller has locked the attachment.
func (h *After) TakeTurn(ctx context.Context, e attachment.Entry, address attachment.Address, old *v1alpha1.IPLease, pod *corev1.Pod) error {
	r, end, err := h.regain(ctx, e, address)
	defer end()
	if err != nil {
		return err
	}
	l := old
	if old.Spec.State != v1alpha1.StateBound {
		l, err = h.Leases.TakeOver(r.ctx, old, lease.Request{
			Pool: address.Pool, Network: address.Network, Addr: address.Addr, Parent: e.Parent,
			Holder: node.OfEntry(pod, &e), Retention: node.RecordedRetention(pod, address.Static),
		})
	}
	if err := r.leased(l, err); err != nil {
		return err
	}
	c := h.Proof.Claim(r.pool, r.address, old)
	verdict := segment.Unverified // no host is asked if the pool does not enforce, or if the lease was proven before
	if l.Spec.Previous != nil && c.Mode == v1alpha1.ModeEnforce {
		var evidence segment.Evidence
		verdict, evidence, err = r.seg.Verify(r.ctx, h.Proof.Verification(r.pool, c, old, h.Proof.EndedHere(old)))
		if err == nil && !verdict.Safe() {
			err = fmt.Errorf("the last holder of %s is not proven silent: %s", address.Addr, evidence)
		}
		if err != nil {
			_, again := h.Leases.Update(r.ctx, l, lease.Unverified(err.Error()))
			return fmt.Errorf("take %s over after a migration: %w", address.Addr, errors.Join(err, again))
		}
		h.Metrics.Verification(verdict)
	}
	l, err = h.Leases.Update(r.ctx, l, lease.Confirm)
	if err != nil {
		return err
	}
	r.address.Behind, r.address.LeaseUID = 0, string(l.UID)
	if err := r.speak(c, "migrated"); err != nil {
		return err
	}
	h.Events.Eventf(pod, nil, corev1.EventTypeNormal, "AddressTakenOver", "Bind",
		"%s was handed over by the migration of %s: %s", address.Addr, owner.Identity(l.Spec.Holder), verdict)
	return nil
}

// Renewal has the parameters of Renew.
type Renewal struct {
	Entry   attachment.Entry
	Address attachment.Address
	// Lease is the pod's own lease, as last read past the cache.
	Lease *v1alpha1.IPLease
	// Claimed is the token of the claim that fenced the address.
	Claimed uint64
	// Disprove: the store has never given Claimed, so a token of this store cannot end the fence.
	Disprove bool
}

// Renew writes the lease of a fenced pod again, which gives a newer token, and claims and verifies
// the address with it. If no other host uses the address, the pod may use it again. Otherwise the
// address stays fenced, and the error has the evidence. A pool that does not enforce is not
// verified. The caller has locked the attachment.
func (h *After) Renew(ctx context.Context, n Renewal) error {
	r, end, err := h.regain(ctx, n.Entry, n.Address)
	defer end()
	if err != nil {
		return err
	}
	l, err := h.Leases.Update(r.ctx, n.Lease, lease.Renew)
	if err := r.leased(l, err); err != nil {
		return err
	}
	c := h.Proof.Claim(r.pool, r.address, nil)
	r.address.Unproven = true
	if n.Disprove {
		// Tell the kernel before the proof: it then stores the next greater claim, a lawful one.
		r.address = disprove(r.address, n.Claimed)
	} else {
		c.PreviousToken = n.Claimed // a holder of an earlier store may have the address by it
	}
	if err := r.record(); err != nil {
		return err
	}
	verdict, why := segment.Unverified, "the pool does not enforce"
	if c.Mode == v1alpha1.ModeEnforce {
		var evidence segment.Evidence
		verdict, evidence, err = r.seg.Verify(r.ctx, h.Proof.Verification(r.pool, c, nil, false))
		if err != nil {
			return err
		}
		why = evidence.String()
	}
	h.Metrics.Renewal(verdict)
	if verdict != segment.Unverified && !verdict.Safe() {
		return fmt.Errorf("%s is not proven free of other speakers: %s", r.address.Addr, why)
	}
	// The lease may have been taken during the verification.
	switch now, err := h.Leases.Get(r.ctx, l.Name); {
	case err != nil:
		return fmt.Errorf("read the lease of %s again: %w", r.address.Addr, err)
	case now.ResourceVersion != l.ResourceVersion:
		return fmt.Errorf("the lease of %s has changed while it was verified", r.address.Addr)
	}
	r.address.Unproven = false
	if err := r.speak(c, "renewed"); err != nil {
		return err
	}
	h.Events.Eventf(event.Pod(r.entry.PodNamespace, r.entry.PodName, r.entry.PodUID), nil, corev1.EventTypeWarning, "FenceEnded", "Bind",
		"%s was fenced by a claim with the token %d, although it is this pod's; the pod speaks again: %s", r.address.Addr, n.Claimed, why)
	return nil
}

// disprove adds the token of a claim to the disproved tokens, by which no host speaks. If the
// kernel has no room for all of them, the oldest counts again.
func disprove(address attachment.Address, claimed uint64) attachment.Address {
	all := slices.Insert(slices.Clone(address.DisprovedBefore), 0, address.Disproved)
	all = slices.DeleteFunc(all, func(t uint64) bool { return t <= address.Token || t == claimed }) // address.Token outranks older tokens
	address.Disproved, address.DisprovedBefore = claimed, all[:min(len(all), bpf.DisprovedBefore)]
	return address
}

// regain is one try to win an address for an interface that is bound already.
type regain struct {
	*After
	ctx     context.Context
	entry   attachment.Entry
	address attachment.Address
	pool    *v1alpha1.IPPool
	seg     node.Segment
}

// regain begins a try. The caller calls end, also after an error.
func (h *After) regain(ctx context.Context, e attachment.Entry, address attachment.Address) (r *regain, end func(), err error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), regainTimeout)
	unlock := h.Journal.Calls.LockLease(address.LeaseName)
	end = func() { unlock(); cancel() }
	r = &regain{After: h, ctx: ctx, entry: e, address: address, pool: &v1alpha1.IPPool{}}
	if err := h.Cache.Get(ctx, client.ObjectKey{Name: address.Pool}, r.pool); err != nil {
		return nil, end, fmt.Errorf("read pool %s: %w", address.Pool, err)
	}
	if r.seg, err = h.OpenSegment(e.ParentIndex); err != nil {
		return nil, end, fmt.Errorf("open the segment of %s: %w", e.Parent, err)
	}
	return r, end, nil
}

// leased notes the lease that was written, unless the write failed.
func (r *regain) leased(l *v1alpha1.IPLease, err error) error {
	if err != nil {
		return err
	}
	r.address.LeaseUID = string(l.UID)
	r.address.Token, err = lease.Token(l)
	return err
}

// record journals the address as it is now, and installs it. It copies the addresses, because
// others read those of the journal.
func (r *regain) record() error {
	e := &r.entry
	e.Addresses = slices.Clone(e.Addresses)
	i := slices.IndexFunc(e.Addresses, func(a attachment.Address) bool { return a.LeaseName == r.address.LeaseName })
	e.Addresses[i] = r.address
	if err := r.Journal.Put(*e); err != nil {
		return err
	}
	return r.Guards.Install(e, r.address)
}

// speak unfences an address whose last speaker is proven to be silent, and announces it.
func (r *regain) speak(c segment.Claim, why string) error {
	if err := r.record(); err != nil {
		return err
	}
	r.Audit(audit.Grant, &r.entry, r.address, why)
	r.HostLinks.Wake(r.entry.Attachment()) // the node reaches the pod by its host link now
	if err := r.seg.ClaimAndConfirm(r.ctx, c); err != nil {
		return err
	}
	mac, err := net.ParseMAC(r.entry.MAC)
	if err != nil {
		return fmt.Errorf("recorded MAC: %w", err)
	}
	r.seg.Announce(segment.Announcement{
		NetNS: r.entry.NetNS, Interface: r.entry.Interface, MAC: mac, Addr: r.address.Addr, Slot: r.entry.Slot, Mode: c.Mode,
	})
	return nil
}
