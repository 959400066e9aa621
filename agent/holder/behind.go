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

	"github.com/fenceline/fenceline/agent/claim"
	"github.com/fenceline/fenceline/agent/ipam"
	"github.com/fenceline/fenceline/agent/journal"
	"github.com/fenceline/fenceline/agent/lease"
	"github.com/fenceline/fenceline/agent/segment"
	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/internal/audit"
	"github.com/fenceline/fenceline/internal/owner"
)

// The target of a live migration gets the address of its virtual machine while the source still uses it
// (R15). It stands behind the source: the address is fenced in the kernel of the target from the start,
// and no lease is written. Recovery looks at the lease until the controller has handed it over.

// turnTimeout bounds a take-over from the source of a migration.
const turnTimeout = 20 * time.Second

// standBehind answers with the address of a lease that stays with its holder.
func (a *adding) standBehind(ctx context.Context, f ipam.Family, l *v1alpha1.IPLease) (boundAddress, error) {
	pool := poolOf(f, l)
	token, err := lease.Token(l)
	if err != nil {
		return boundAddress{}, err
	}
	address := addressOf(pool, l.Spec.Addr())
	address.Static, address.Behind = a.keeps(pool), token
	if err := a.intend(ctx, pool, address); err != nil {
		return boundAddress{}, err
	}
	if err := a.guard(); err != nil {
		return boundAddress{}, err
	}
	e := a.entry(journal.Intent)
	if err := a.h.Guards.Install(&e, *a.trying); err != nil {
		return boundAddress{}, err
	}
	a.h.Events.Eventf(a.pod, nil, corev1.EventTypeNormal, "AddressAwaitsMigration", "Bind",
		"%s is in use by pod %s on node %s; this pod is mute until the migration hands the address over",
		address.Addr, l.Spec.Holder.Pod, l.Spec.NodeName)
	return boundAddress{pool: pool, address: *a.trying}, nil
}

// IsAwaited reports whether a pod of this node stands behind the holder of a lease. Recovery takes such
// a lease over, and no verifier frees it or kills the slot of the pod.
func (h *Holders) IsAwaited(lease string) bool {
	for e := range h.Bound() {
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
func (h *Holders) TakeTurn(ctx context.Context, e journal.Entry, address journal.Address, old *v1alpha1.IPLease, pod *corev1.Pod) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), turnTimeout)
	defer cancel()
	defer h.leases.lock(old.Name)()
	pool := &v1alpha1.IPPool{}
	if err := h.Cache.Get(ctx, client.ObjectKey{Name: address.Pool}, pool); err != nil {
		return fmt.Errorf("read pool %s: %w", address.Pool, err)
	}
	seg, err := h.OpenSegment(e.ParentIndex)
	if err != nil {
		return fmt.Errorf("open the segment of %s: %w", e.Parent, err)
	}
	l := old
	if old.Spec.State != v1alpha1.StateBound {
		l, err = h.Leases.TakeOver(ctx, old, lease.Request{
			Pool: address.Pool, Network: address.Network, Addr: address.Addr, Parent: e.Parent,
			Holder: Of(pod, e.Attachment(), e.MAC), Retention: RecordedRetention(pod, address.Static),
		})
		if err != nil {
			return err
		}
	}
	token, err := lease.Token(l)
	if err != nil {
		return err
	}
	c := segment.Claim{
		Addr: address.Addr, Network: claim.Network(h.Cluster, address.Network), Token: token, Mode: pool.ConflictMode(),
		PreviousMAC: previousMAC(old), PreviousToken: old.LastToken(),
	}
	verdict := segment.Silent
	if l.Spec.Previous != nil && pool.ConflictMode() == v1alpha1.ModeEnforce {
		var evidence segment.Evidence
		verdict, evidence, err = seg.Verify(ctx, segment.Verification{
			Claim: c, Probe: segment.ParamsOf(pool), Gateway: segment.GatewayOf(pool),
			SlotDead: h.endedHere(old), Asserted: lease.Asserted(&old.Spec), OthersShare: h.OthersShare(),
		})
		if err == nil && !verdict.Safe() {
			err = fmt.Errorf("the last holder of %s is not proven silent: %s", address.Addr, evidence)
		}
		if err != nil {
			_, again := h.Leases.Unverified(ctx, l, err.Error())
			return fmt.Errorf("take %s over after a migration: %w", address.Addr, errors.Join(err, again))
		}
		h.Metrics.Verification(verdict)
	}
	if l, err = h.Leases.Confirm(ctx, l); err != nil {
		return err
	}
	address.Behind, address.LeaseUID, address.Token = 0, string(l.UID), token
	if err := h.speak(ctx, seg, e, address, c, "migrated"); err != nil {
		return err
	}
	h.Events.Eventf(pod, nil, corev1.EventTypeNormal, "AddressTakenOver", "Bind",
		"%s was handed over by the migration of %s: %s", address.Addr, owner.Identity(l.Spec.Holder), verdict)
	return nil
}

// record journals an address of an entry as it is now, and installs it. It copies the addresses, since
// others read the journal's own.
func (h *Holders) record(e *journal.Entry, address journal.Address) error {
	e.Addresses = slices.Clone(e.Addresses)
	i := slices.IndexFunc(e.Addresses, func(a journal.Address) bool { return a.LeaseName == address.LeaseName })
	e.Addresses[i] = address
	if err := h.Journal.Put(*e); err != nil {
		return err
	}
	return h.Guards.Install(e, address)
}

// speak unfences an address whose last speaker is proven to be silent, and announces it.
func (h *Holders) speak(ctx context.Context, seg Segment, e journal.Entry, address journal.Address, c segment.Claim, why string) error {
	if err := h.record(&e, address); err != nil {
		return err
	}
	h.Audit(audit.Grant, &e, address, why)
	h.HostLinks.Wake(e.Attachment()) // the node reaches the pod by its host link now
	if err := seg.ClaimAndConfirm(ctx, c); err != nil {
		return err
	}
	mac, err := net.ParseMAC(e.MAC)
	if err != nil {
		return fmt.Errorf("recorded MAC: %w", err)
	}
	seg.Announce(segment.Announcement{NetNS: e.NetNS, Interface: e.Interface, MAC: mac, Addr: address.Addr, Slot: e.Slot, Mode: c.Mode})
	return nil
}
