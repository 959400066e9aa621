// SPDX-License-Identifier: Apache-2.0

package recovery

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fenceline/fenceline/agent/acquire"
	"github.com/fenceline/fenceline/agent/attachment"
	"github.com/fenceline/fenceline/agent/lease"
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
// The order differs from that of agent/acquire, because the address is installed and mute until the proof: prove,
// write, then the entry on disk, the install with the new token, and the claim.

// regainTimeout bounds one try.
const regainTimeout = 20 * time.Second

// takeTurn takes an address over for a pod that stood behind its last holder. Until this holder is proven fenced, gone
// or silent, the address stays fenced here and the lease Quarantined. The claim has the token of that lease, like a
// verifier's. The write that follows binds the lease, unless another node has it by then. Without proof, it keeps the
// lease Quarantined for the pod. gone reports that the entry is gone, because the pod is.
func (r *resumption) takeTurn(ctx context.Context) (gone bool, err error) {
	var reading errgroup.Group // the machine is mute meanwhile, so both go on together
	var pod *corev1.Pod
	reading.Go(func() (err error) { pod, err = r.w.podOf(ctx, &r.e); return err })
	g, end, err := r.regain(ctx)
	defer end()
	if err != nil {
		return false, err
	}
	c, proof, unproven := g.proveTurn()
	if err := reading.Wait(); err != nil {
		return false, errors.Join(unproven, err)
	}
	if pod == nil || pod.DeletionTimestamp != nil {
		end()
		return true, r.w.releaseAfterNewer(ctx, r.e)
	}
	l, request := r.l, lease.AgainFor(pod, &r.e, r.address)
	bound := l.Spec.State == v1alpha1.StateBound // the answer to an earlier write was lost
	switch {
	case unproven != nil && bound:
		_, err = r.w.Leases.Update(g.ctx, l, lease.Unverified(unproven.Error()))
	case unproven != nil:
		_, err = r.w.Leases.Update(g.ctx, l, lease.TakeUnproven(request, unproven.Error()))
	case bound:
		l, err = r.w.Leases.Update(g.ctx, l, lease.Confirm)
	default:
		l, err = r.w.Leases.TakeProven(g.ctx, l, request)
	}
	if unproven != nil {
		return false, fmt.Errorf("take %s over after a migration: %w", r.address.Addr, errors.Join(unproven, err))
	}
	if err != nil {
		return false, err
	}
	r.address.Behind, r.address.LeaseUID, r.address.Token = 0, string(l.UID), l.LastToken()
	c.Token = r.address.Token
	if err := g.speak(c, "migrated"); err != nil {
		return false, err
	}
	r.w.Events.Eventf(pod, nil, corev1.EventTypeNormal, "AddressTakenOver", "Bind",
		"%s was handed over by the migration of %s: %s", r.address.Addr, owner.Identity(l.Spec.Holder), proof)
	return false, nil
}

// proveTurn claims the address with the token of the lease as it is, and verifies the last holder. The error says why
// there is no proof. No host is asked if the pool does not enforce, or if the lease was proven before.
func (r *regain) proveTurn() (c segment.Claim, proof string, err error) {
	w, l, address := r.r.w, r.r.l, r.r.address
	if address.Token, err = lease.Token(l); err != nil {
		return c, "", err
	}
	if l.Spec.State == v1alpha1.StateBound {
		address.Token = uint64(l.HolderToken())
	}
	c = w.Self.Claim(r.pool.ConflictMode(), address, l)
	switch {
	case c.Mode != v1alpha1.ModeEnforce:
		return c, string(segment.Unverified), nil
	case !lease.NeedsVerification(&l.Spec, w.Self.Session):
		return c, "proven before", nil
	}
	verdict, evidence, err := r.seg.Verify(r.ctx, w.Self.Verification(r.pool, c, l, w.Self.EndedHere(l)))
	if err == nil && !verdict.Safe() {
		err = fmt.Errorf("the last holder of %s is not proven silent: %s", address.Addr, evidence)
	}
	if err != nil {
		return c, "", err
	}
	w.Metrics.Verification(verdict)
	c.Since = evidence.Claimed
	return c, string(verdict), nil
}

// renewToken writes the lease of a fenced pod again, which gives a newer token, and claims and verifies
// the address with it. If no other host uses the address, the pod may use it again. Otherwise the
// address stays fenced, and the error has the evidence. A pool that does not enforce is not
// verified. claimed is the token of the claim that fenced the address. isUngiven: the store has never
// given it, so a token of this store cannot end the fence.
func (r *resumption) renewToken(ctx context.Context, claimed uint64, isUngiven bool) error {
	g, end, err := r.regain(ctx)
	defer end()
	if err != nil {
		return err
	}
	l, err := r.w.Leases.Update(g.ctx, r.l, lease.Renew)
	if err := g.leased(l, err); err != nil {
		return err
	}
	c := r.w.Self.Claim(g.pool.ConflictMode(), r.address, nil)
	r.address.Unproven = true
	if isUngiven {
		// Tell the kernel before the proof: it then stores the next greater claim, a lawful one.
		r.address = disprove(r.address, claimed)
	} else {
		c.PreviousToken = claimed // a holder of an earlier store may have the address by it
	}
	if err := g.record(); err != nil {
		return err
	}
	verdict, why := segment.Unverified, "the pool does not enforce"
	if c.Mode == v1alpha1.ModeEnforce {
		var evidence segment.Evidence
		verdict, evidence, err = g.seg.Verify(g.ctx, r.w.Self.Verification(g.pool, c, nil, false))
		if err != nil {
			return err
		}
		why = evidence.String()
	}
	r.w.Metrics.Renewal(verdict)
	if verdict != segment.Unverified && !verdict.Safe() {
		return fmt.Errorf("%s is not proven free of other speakers: %s", r.address.Addr, why)
	}
	// The lease may have been taken during the verification.
	switch now, err := r.w.Leases.Get(g.ctx, l.Name); {
	case err != nil:
		return fmt.Errorf("read the lease of %s again: %w", r.address.Addr, err)
	case now.ResourceVersion != l.ResourceVersion:
		return fmt.Errorf("the lease of %s has changed while it was verified", r.address.Addr)
	}
	r.address.Unproven = false
	if err := g.speak(c, "renewed"); err != nil {
		return err
	}
	r.w.Events.Eventf(event.Pod(r.e.PodNamespace, r.e.PodName, r.e.PodUID), nil, corev1.EventTypeWarning, "FenceEnded", "Bind",
		"%s was fenced by a claim with the token %d, although it is this pod's; the pod speaks again: %s", r.address.Addr, claimed, why)
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
	r    *resumption
	ctx  context.Context
	pool *v1alpha1.IPPool
	seg  acquire.Segment
}

// regain begins a try. The caller calls end, also after an error.
func (r *resumption) regain(ctx context.Context) (g *regain, end func(), err error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), regainTimeout)
	unlock := r.w.Attachments.Calls.LockLease(r.address.LeaseName)
	end = sync.OnceFunc(func() { unlock(); cancel() })
	g = &regain{r: r, ctx: ctx, pool: &v1alpha1.IPPool{}}
	if err := r.w.Cache.Get(ctx, client.ObjectKey{Name: r.address.Pool}, g.pool); err != nil {
		return nil, end, fmt.Errorf("read pool %s: %w", r.address.Pool, err)
	}
	if g.seg, err = r.w.OpenSegment(r.e.ParentIndex); err != nil {
		return nil, end, fmt.Errorf("open the segment of %s: %w", r.e.Parent, err)
	}
	return g, end, nil
}

// leased notes the lease that was written, unless the write failed.
func (r *regain) leased(l *v1alpha1.IPLease, err error) error {
	if err != nil {
		return err
	}
	r.r.address.LeaseUID = string(l.UID)
	r.r.address.Token, err = lease.Token(l)
	return err
}

// record journals the address as it is now, and installs it. It copies the addresses, because
// others read those of the journal.
func (r *regain) record() error {
	e := &r.r.e
	e.Addresses = slices.Clone(e.Addresses)
	i := slices.IndexFunc(e.Addresses, func(a attachment.Address) bool { return a.LeaseName == r.r.address.LeaseName })
	e.Addresses[i] = r.r.address
	if err := r.r.w.Attachments.Put(*e); err != nil {
		return err
	}
	return r.r.w.Guards.Leases.Install(e, r.r.address)
}

// speak unfences an address whose last speaker is proven to be silent, and announces it.
func (r *regain) speak(c segment.Claim, why string) error {
	if err := r.record(); err != nil {
		return err
	}
	audit.Log(r.r.w.Log, audit.Grant, r.r.e.Audit(r.r.address, r.r.w.Self.Name, why))
	r.r.w.WakeHostLink(r.r.e.Attachment()) // the node reaches the pod by its host link now
	if err := r.seg.ClaimAndConfirm(r.ctx, c); err != nil {
		return err
	}
	mac, err := net.ParseMAC(r.r.e.MAC)
	if err != nil {
		return fmt.Errorf("recorded MAC: %w", err)
	}
	r.seg.Announce(segment.Announcement{
		NetNS: r.r.e.NetNS, Interface: r.r.e.Interface, NodeEnd: r.r.e.NodeEnd, MAC: mac, Addr: r.r.address.Addr, Slot: r.r.e.Slot, Mode: c.Mode,
	})
	return nil
}
