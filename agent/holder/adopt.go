// SPDX-License-Identifier: Apache-2.0

package holder

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fenceline/fenceline/agent/acquire"
	"github.com/fenceline/fenceline/agent/attachment"
	"github.com/fenceline/fenceline/agent/lease"
	"github.com/fenceline/fenceline/agent/pod"
	"github.com/fenceline/fenceline/agent/proof"
	"github.com/fenceline/fenceline/agent/release"
	"github.com/fenceline/fenceline/agent/segment"
	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/cni/agentapi"
	"github.com/fenceline/fenceline/internal/owner"
	"github.com/fenceline/fenceline/internal/poolset"
)

const (
	// adoptTimeout bounds one try to adopt an interface.
	adoptTimeout = 20 * time.Second
	// placesLast is how long a search of all network namespaces is used: many holds come at once.
	placesLast = time.Second
)

// AdoptOptions of an Adopter. All are required.
type AdoptOptions struct {
	// Places returns the interfaces in the network namespaces of this node.
	Places func() ([]pod.Place, error)
	// Unfit returns why Fenceline does not serve an interface, nil if it does.
	Unfit func(netns, ifname string) error
	// KeepARP makes an interface answer ARP for its own addresses only, and ask by them.
	KeepARP func(netns, ifname string) error
}

// Adopter adopts running pods whose addresses another IPAM gave, and ends adopted pods that no DEL ends. Its
// methods may be called concurrently.
//
// The order of an adoption is the guarantee: an entry in the phase Adopting, the guard, the lease with its token
// (R5), the kernel's lease, the source guard, the entry in the phase Bound, the claim. The guard passes all frames
// until the source guard comes, and the source guard those of the leases, so the pod loses no frame. After a crash
// before the first lease, the next agent takes the guard off and begins anew. After it, complete goes on.
type Adopter struct {
	AdoptOptions
	h *Holders

	mu     sync.Mutex
	places []pod.Place
	read   time.Time
}

// NewAdopter returns an Adopter.
func NewAdopter(h *Holders, o AdoptOptions) *Adopter { return &Adopter{AdoptOptions: o, h: h} }

// Adopt tries to adopt the pod of a hold, with all addresses of its interface.
func (a *Adopter) Adopt(ctx context.Context, name string) (proof.Adoption, error) {
	ctx, cancel := context.WithTimeout(ctx, adoptTimeout)
	defer cancel()
	hold, err := a.h.Leases.Get(ctx, name)
	if errors.Is(err, lease.ErrGone) || err == nil && !a.isHold(hold) {
		return proof.Adoption{Done: true}, nil
	}
	if err != nil {
		return proof.Adoption{}, err
	}
	of := attachmentOf(hold.Spec.Holder)
	if of.Interface != "" {
		if e, ok := a.h.Attachments.Get(of.ContainerID, of.Interface); ok && e.Phase == attachment.Adopting {
			return proof.Adoption{Why: "an earlier adoption is being completed"}, nil
		}
	}
	f, err := a.look(ctx, hold)
	if err != nil {
		return proof.Adoption{}, err
	}
	if f.isGone() {
		return proof.Adoption{Gone: true}, nil
	}
	if why := f.against(); why != "" {
		return proof.Adoption{Why: why}, nil
	}
	of.Interface = f.Link.Name
	defer a.h.Attachments.Calls.Lock(of)()
	return a.adopt(ctx, of, f)
}

// isHold reports whether a lease is a hold with a pod that this node is to adopt.
func (a *Adopter) isHold(l *v1alpha1.IPLease) bool {
	return l.IsHold() && l.Spec.NodeName == a.h.Self.Name && l.Spec.Holder != nil
}

// attachmentOf returns the attachment of a hold's pod.
func attachmentOf(h *v1alpha1.Holder) agentapi.Attachment {
	return agentapi.Attachment{ContainerID: v1alpha1.AdoptedSandbox(h.ContainerID, h.PodUID), Interface: h.Interface}
}

// look gathers the facts about a hold.
func (a *Adopter) look(ctx context.Context, hold *v1alpha1.IPLease) (*adoptFacts, error) {
	f, h, addr := &adoptFacts{Node: a.h.Self.Name, Hold: hold}, hold.Spec.Holder, hold.Spec.Addr()
	var err error
	f.Asked = a.h.Releaser.Expected.Has(h.PodUID, h.Interface)
	if f.Pod, err = a.pod(ctx, h.Namespace, h.Pod, h.PodUID); err != nil {
		return nil, err
	}
	if f.Places, err = a.search(); err != nil {
		return nil, err
	}
	pool := &v1alpha1.IPPool{}
	err = a.h.Cache.Get(ctx, client.ObjectKey{Name: hold.Spec.Pool}, pool)
	if err == nil {
		f.Pool = pool
	} else if !apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("read pool %s: %w", hold.Spec.Pool, err)
	}
	holds, err := a.holdsOf(ctx, h)
	if err != nil {
		return nil, err
	}
	for i := range holds {
		f.Ours = append(f.Ours, holds[i].Spec.Addr())
	}
	if own, _ := f.own(); len(own) == 1 {
		f.Link, f.Unfit = a.h.FindLink(own[0].NetNS, own[0].Interface)
		if f.Unfit == nil {
			f.Unfit = a.Unfit(own[0].NetNS, own[0].Interface)
		}
		if f.Unfit == nil {
			if f.Parent, err = a.h.ParentOf(f.Link.Parent.Index); err != nil {
				return nil, fmt.Errorf("find the parent of interface %s: %w", f.Link.Name, err)
			}
		}
	}
	f.Taken, err = a.h.Guards.Leases.MaySpeak(addr)
	return f, err
}

// pod reads a pod past the cache. It is nil if there is none with this UID.
func (a *Adopter) pod(ctx context.Context, namespace, name, uid string) (*corev1.Pod, error) {
	p := &corev1.Pod{}
	err := a.h.Reader.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, p)
	if apierrors.IsNotFound(err) || err == nil && !owner.IsUID(p, uid) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read pod %s/%s: %w", namespace, name, err)
	}
	return p, nil
}

// search returns the interfaces in all network namespaces, as they were at most placesLast ago.
func (a *Adopter) search() ([]pod.Place, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.h.Clock.Since(a.read) < placesLast {
		return a.places, nil
	}
	places, err := a.Places()
	if err != nil {
		return nil, err
	}
	a.places, a.read = places, a.h.Clock.Now()
	return places, nil
}

// holdsOf returns the holds of a holder's pod on this node, by address.
func (a *Adopter) holdsOf(ctx context.Context, h *v1alpha1.Holder) (holds []v1alpha1.IPLease, err error) {
	all := &v1alpha1.IPLeaseList{}
	if err := a.h.Cache.List(ctx, all); err != nil {
		return nil, fmt.Errorf("list the leases of this node: %w", err)
	}
	for _, l := range all.Items {
		if a.isHold(&l) && l.Spec.Holder.PodUID == h.PodUID && l.Annotations[v1alpha1.AnnotationMoveHold] == "" {
			holds = append(holds, l)
		}
	}
	slices.SortFunc(holds, func(a, b v1alpha1.IPLease) int { return a.Spec.Addr().Compare(b.Spec.Addr()) })
	return holds, nil
}

// adopt adopts an interface against which there is no reason, unless another host speaks for one of its
// addresses. The caller has locked the attachment.
func (a *Adopter) adopt(ctx context.Context, of agentapi.Attachment, f *adoptFacts) (proof.Adoption, error) {
	h := a.h
	if e, ok := h.Attachments.Get(of.ContainerID, of.Interface); ok {
		return proof.Adoption{Why: fmt.Sprintf("interface %s of the pod has %d addresses of Fenceline already", of.Interface, len(e.Addresses))}, nil
	}
	own, _ := f.own()
	at := own[0]
	seg, err := h.OpenSegment(f.Link.Parent.Index)
	if err != nil {
		return proof.Adoption{}, fmt.Errorf("open the segment of %s: %w", f.Link.Parent.Name, err)
	}
	who := lease.HolderOf(f.Pod, of, f.Link.MAC.String())
	e := attachment.Entry{
		ContainerID: of.ContainerID, Interface: of.Interface, Index: f.Link.Index, NetNS: at.NetNS,
		PodNamespace: f.Pod.Namespace, PodName: f.Pod.Name, PodUID: owner.UID(f.Pod), Machine: owner.MachineOf(&who),
		Phase: attachment.Adopting, Adopted: true, Session: h.Self.Session, Created: h.Clock.Now(),
		Parent: f.Link.Parent.Name, ParentIndex: f.Link.Parent.Index, MAC: f.Link.MAC.String(), Device: f.Link.Device,
		// A VF counts as one that may send past its guard until recovery has found out.
		Bypasses: f.Link.Device != "", Settled: true,
	}
	holds, err := a.holdsOf(ctx, f.Hold.Spec.Holder)
	if err != nil {
		return proof.Adoption{}, err
	}
	if err := a.keepARP(f, at); err != nil {
		return proof.Adoption{}, err
	}
	for i := range holds {
		address, pool, err := a.addressOf(ctx, f.Pod, &holds[i])
		if err != nil {
			return proof.Adoption{}, err
		}
		if !slices.Contains(at.Addresses, address.Addr) {
			continue // of another interface of the pod
		}
		probe := segment.ParamsOf(pool)
		probe.Ignore = append(probe.Ignore, f.Link.MAC) // the pod itself answers
		heard, err := seg.Probe(ctx, address.Addr, probe)
		if err != nil {
			return proof.Adoption{}, err
		}
		if heard.Conflict && pool.ConflictMode() == v1alpha1.ModeEnforce {
			h.Acquirer.Metrics.Conflict(pool.Name, heard.Source)
			return proof.Adoption{Speaker: heard.MAC, Lease: holds[i].Name}, nil
		}
		e.Addresses = append(e.Addresses, address)
	}
	if e.Slot, err = h.Guards.Slots.Take(); err != nil {
		return proof.Adoption{}, err
	}
	if err := h.Attachments.Put(e); err != nil {
		h.Guards.Slots.PutBack(e.Slot)
		return proof.Adoption{}, err
	}
	if err := errors.Join(h.Guards.Stage(&e), h.Guards.GuardSockets(&e)); err != nil {
		return proof.Adoption{}, errors.Join(fmt.Errorf("guard %s of pod %s/%s: %w", e.Interface, e.PodNamespace, e.PodName, err), release.Unguard(h.Releaser, e))
	}
	return proof.Adoption{Done: true}, a.complete(ctx, e, f.Pod)
}

// keepARP keeps the ARP of a pod with several interfaces on segments on the interface of each address. Otherwise the
// others, which may be on the same segment, answer for the address too, and seem to be a second speaker.
func (a *Adopter) keepARP(f *adoptFacts, at pod.Place) error {
	for _, p := range f.Places {
		if p.NetNS != at.NetNS || p.Interface == at.Interface || p.Parent.Index == 0 {
			continue
		}
		if err := a.KeepARP(p.NetNS, p.Interface); err != nil && !pod.IsGone(err) {
			return err
		}
	}
	return nil
}

// addressOf returns the address of a hold, as an ADD would have given it.
func (a *Adopter) addressOf(ctx context.Context, p *corev1.Pod, hold *v1alpha1.IPLease) (attachment.Address, *v1alpha1.IPPool, error) {
	pool := &v1alpha1.IPPool{}
	if err := a.h.Cache.Get(ctx, client.ObjectKey{Name: hold.Spec.Pool}, pool); err != nil {
		return attachment.Address{}, nil, fmt.Errorf("read pool %s: %w", hold.Spec.Pool, err)
	}
	subnet, err := poolset.Subnet(pool)
	if err != nil {
		return attachment.Address{}, nil, fmt.Errorf("pool %s: %w", pool.Name, err)
	}
	addr, who := hold.Spec.Addr(), lease.HolderOf(p, agentapi.Attachment{}, "")
	asked, _ := v1alpha1.ParseFixedAddress(p.Annotations) // a wrong one counts as none: the pod runs
	mode, _ := asked.Mode(pool, a.h.Acquirer.StatefulSet)
	return attachment.Address{
		Addr: addr, Pool: pool.Name, Network: pool.Spec.Network, LeaseName: hold.Name,
		Static: owner.KeepsName(&who) && mode != v1alpha1.StatefulSetOff,
		Given:  attachment.GivenBy(pool, netip.PrefixFrom(addr, subnet.Bits()), nil),
	}, pool, nil
}

// complete binds the leases of an entry in the phase Adopting, and makes it Bound. It can be repeated. An address
// whose hold was taken meanwhile is left out. The caller has locked the attachment.
func (a *Adopter) complete(ctx context.Context, e attachment.Entry, p *corev1.Pod) error {
	h := a.h
	if left, err := a.leave(ctx, e); left || err != nil {
		return err
	}
	var bound []attachment.Address
	for _, address := range e.Addresses {
		l, err := a.bind(ctx, &e, address, p)
		switch {
		case errors.Is(err, lease.ErrGone), errors.Is(err, lease.ErrNotMine), errors.Is(err, lease.ErrState), errors.Is(err, lease.ErrIdentity):
			h.Log.Info("a hold was taken before its pod was adopted", "lease", address.LeaseName, "why", err.Error())
			if err := h.Guards.Leases.Uninstall(e.ParentIndex, address.Addr, e.Slot); err != nil {
				return err
			}
			continue
		case err != nil:
			return fmt.Errorf("adopt %s of pod %s/%s: %w", address.Addr, e.PodNamespace, e.PodName, err)
		}
		address.LeaseUID, address.Token = string(l.UID), l.LastToken()
		bound = append(bound, address)
	}
	if len(bound) == 0 {
		return release.Unguard(h.Releaser, e)
	}
	e.Addresses, e.Phase = bound, attachment.Bound
	for _, address := range e.Addresses {
		if err := h.Guards.Leases.Install(&e, address); err != nil {
			return err
		}
	}
	if err := h.GuardSources(&e); err != nil {
		return err
	}
	if err := h.Attachments.Put(e); err != nil {
		return err
	}
	seg, err := h.OpenSegment(e.ParentIndex)
	if err != nil {
		return fmt.Errorf("open the segment of %s: %w", e.Parent, err)
	}
	mac, err := e.HardwareAddr()
	if err != nil {
		return err
	}
	result := acquire.Result{Entry: e, Segment: seg, MAC: mac}
	for _, address := range e.Addresses {
		c := h.Self.Claim(address.PoolThen().ConflictMode(), address, nil)
		result.Won = append(result.Won, acquire.Won{Address: address, Unclaimed: &c})
	}
	h.granted(&e)
	h.After.put(result)
	h.After.Answered(e.Attachment())
	h.Events.Eventf(p, nil, corev1.EventTypeNormal, "Adopted", "Adopt", "interface %s of the running pod is guarded, and %s is leased to it",
		e.Interface, addressesOf(&e))
	return nil
}

// bind makes the lease of an address Bound to an entry's pod, unless it is already. The pod itself is the
// predecessor that the hold names, so there is none to prove.
func (a *Adopter) bind(ctx context.Context, e *attachment.Entry, address attachment.Address, p *corev1.Pod) (*v1alpha1.IPLease, error) {
	defer a.h.Attachments.Calls.LockLease(address.LeaseName)()
	l, err := a.h.Leases.Get(ctx, address.LeaseName)
	if err != nil {
		return nil, err
	}
	if !(l.Spec.State == v1alpha1.StateBound && l.Spec.Holder.ContainerID == e.ContainerID && l.Spec.NodeName == a.h.Self.Name) {
		if !a.isHold(l) {
			return nil, fmt.Errorf("%w: it is %s", lease.ErrNotMine, l.Spec.State)
		}
		if l, err = a.h.Leases.TakeOver(ctx, l, lease.AgainFor(p, e, address)); err != nil {
			return nil, err
		}
	}
	if l.Spec.Previous == nil {
		return l, nil
	}
	return a.h.Leases.Update(ctx, l, lease.Confirm)
}

func addressesOf(e *attachment.Entry) string {
	var all []string
	for _, address := range e.Addresses {
		all = append(all, address.Addr.String())
	}
	return strings.Join(all, " and ")
}
