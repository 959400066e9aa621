// SPDX-License-Identifier: Apache-2.0

package holder

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fenceline/fenceline/agent/claim"
	"github.com/fenceline/fenceline/agent/journal"
	"github.com/fenceline/fenceline/agent/lease"
	"github.com/fenceline/fenceline/agent/segment"
	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/bpf"
	"github.com/fenceline/fenceline/internal/event"
)

// A claim may fence a pod although the lease is the pod's own: a copy of the cluster on the same VLAN
// sends authentic claims, and so does everybody who has the key. The store is right about the holder. But
// somebody may speak by that claim, so the pod stays mute until the opposite is proven (R1).

// renewTimeout bounds a renewal.
const renewTimeout = 20 * time.Second

// Renewal has the parameters of Renew.
type Renewal struct {
	Entry   journal.Entry
	Address journal.Address
	// Lease is the pod's own, as last read past the cache.
	Lease *v1alpha1.IPLease
	// Claimed is the token of the claim that fenced the address.
	Claimed uint64
	// Disprove: the store has never given Claimed, so a token of this store cannot end the fence.
	Disprove bool
}

// Renew writes the lease of a fenced pod again, which gives a newer token, and claims and verifies the
// address with it. If nobody else speaks, the pod does again. Otherwise the address stays fenced, and
// the error has the evidence. A pool that does not enforce is not verified. The caller has locked the
// attachment.
func (h *Holders) Renew(ctx context.Context, r Renewal) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), renewTimeout)
	defer cancel()
	defer h.leases.lock(r.Lease.Name)()
	pool := &v1alpha1.IPPool{}
	if err := h.Cache.Get(ctx, client.ObjectKey{Name: r.Address.Pool}, pool); err != nil {
		return fmt.Errorf("read pool %s: %w", r.Address.Pool, err)
	}
	seg, err := h.OpenSegment(r.Entry.ParentIndex)
	if err != nil {
		return fmt.Errorf("open the segment of %s: %w", r.Entry.Parent, err)
	}
	l, err := h.Leases.Renew(ctx, r.Lease)
	if err != nil {
		return err
	}
	address := r.Address
	if address.Token, err = lease.Token(l); err != nil {
		return err
	}
	address.LeaseUID, address.Unproven = string(l.UID), true
	if r.Disprove {
		// The kernel knows it before the proof: it stores the next greater claim then, which is a lawful one.
		address = disprove(address, r.Claimed)
	}
	e := r.Entry
	if err := h.record(&e, address); err != nil {
		return err
	}
	c := segment.Claim{
		Addr: address.Addr, Network: claim.Network(h.Cluster, address.Network), Token: address.Token, Mode: pool.ConflictMode(),
	}
	if !r.Disprove {
		c.PreviousToken = r.Claimed // somebody of an earlier store may hold the address by it
	}
	why := "the pool does not enforce"
	verdict := segment.Unverified
	if c.Mode == v1alpha1.ModeEnforce {
		var evidence segment.Evidence
		verdict, evidence, err = seg.Verify(ctx, segment.Verification{
			Claim: c, Probe: segment.ParamsOf(pool), Gateway: segment.GatewayOf(pool), OthersShare: h.OthersShare(),
		})
		if err != nil {
			return err
		}
		why = evidence.String()
	}
	h.Metrics.Renewal(verdict)
	if verdict != segment.Unverified && !verdict.Safe() {
		return fmt.Errorf("%s is not proven free of other speakers: %s", address.Addr, why)
	}
	// The lease may have been taken while nobody was heard.
	switch now, err := h.Leases.Get(ctx, l.Name); {
	case err != nil:
		return fmt.Errorf("read the lease of %s again: %w", address.Addr, err)
	case now.ResourceVersion != l.ResourceVersion:
		return fmt.Errorf("the lease of %s has changed while it was verified", address.Addr)
	}
	address.Unproven = false
	if err := h.speak(ctx, seg, e, address, c, "renewed"); err != nil {
		return err
	}
	h.Events.Eventf(event.Pod(e.PodNamespace, e.PodName, e.PodUID), nil, corev1.EventTypeWarning, "FenceEnded", "Bind",
		"%s was fenced by a claim with the token %d, although it is this pod's; the pod speaks again: %s", address.Addr, r.Claimed, why)
	return nil
}

// disprove adds the token of a claim to those by which nobody speaks. With more of them than the kernel
// has room for, the first one counts again.
func disprove(address journal.Address, claimed uint64) journal.Address {
	all := slices.Insert(slices.Clone(address.DisprovedBefore), 0, address.Disproved)
	all = slices.DeleteFunc(all, func(t uint64) bool { return t <= address.Token || t == claimed }) // the token outranks the older ones
	address.Disproved, address.DisprovedBefore = claimed, all[:min(len(all), bpf.DisprovedBefore)]
	return address
}
