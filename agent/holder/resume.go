package holder

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fenceline/fenceline/agent/journal"
	"github.com/fenceline/fenceline/agent/lease"
	"github.com/fenceline/fenceline/apis/audit"
	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/bpf"
)

// Restore takes up what the journal holds after a restart: slots, guards and
// segments. It asks nobody; the leases are resumed by Run.
func (h *Holders) Restore() error {
	var errs []error
	known := map[uint32]bool{}
	for _, e := range h.Journal.All() {
		if e.Slot != 0 {
			h.slots.keep(e.Slot)
			known[e.Slot] = true
		}
		if e.Session != h.Session || e.Phase != journal.Bound {
			continue
		}
		if _, err := h.OpenSegment(e.ParentIndex); err != nil {
			errs = append(errs, fmt.Errorf("open the segment of %s: %w", e.Parent, err))
		}
		attached, err := h.Kernel.GuardAttached(e.Slot)
		if err == nil && !attached {
			err = h.Kernel.AttachGuard(bpf.Guard{Slot: e.Slot, Segment: e.ParentIndex, NetNS: e.NetNS, Interface: e.Interface})
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("guard %s of pod %s/%s: %w", e.Interface, e.PodNamespace, e.PodName, err))
		}
		for _, address := range e.Addresses {
			if err := h.install(&e, address); err != nil && !errors.Is(err, bpf.ErrOlderToken) {
				errs = append(errs, err)
			}
		}
	}
	leases, err := h.Kernel.Leases()
	if err != nil {
		return errors.Join(append(errs, fmt.Errorf("read the kernel's leases: %w", err))...)
	}
	for _, l := range leases {
		if l.Slot == 0 || known[l.Slot] {
			continue
		}
		h.slots.keep(l.Slot)
		h.slots.leave(l.Slot)
	}
	return errors.Join(errs...)
}

// Resume decides about every address of the journal by a GET of its lease (R7).
// What cannot be decided now, because the API server is away, is an error and
// is tried again.
func (h *Holders) Resume(ctx context.Context) error {
	var errs []error
	for _, e := range h.Journal.All() {
		errs = append(errs, h.resumeEntry(ctx, attachmentOf(&e)))
	}
	return errors.Join(errs...)
}

// resumeEntry resumes one attachment.
func (h *Holders) resumeEntry(ctx context.Context, a attachment) error {
	defer h.locks.lock(a)()
	e, ok := h.Journal.Get(a.containerID, a.ifname)
	if !ok {
		return nil
	}
	if e.Phase != journal.Bound || e.Session != h.Session {
		return h.release(ctx, e)
	}
	for _, address := range e.Addresses {
		done, err := h.resumeAddress(ctx, e, address)
		if err != nil {
			return fmt.Errorf("resume %s of pod %s/%s: %w", address.Addr, e.PodNamespace, e.PodName, err)
		}
		if done {
			return nil
		}
	}
	return nil
}

// resumeAddress decides about one address; done tells that the entry is gone.
func (h *Holders) resumeAddress(ctx context.Context, e journal.Entry, address journal.Address) (done bool, err error) {
	l, err := h.Leases.Get(ctx, address.LeaseName)
	if errors.Is(err, lease.ErrGone) {
		l = nil
	} else if err != nil {
		return false, err
	}
	known, err := h.known(ctx, &e, address, l)
	if err != nil {
		return false, err
	}
	action := lease.Resume(known, l)
	if action != lease.GoOn {
		h.Log.Info("resume", "address", address.Addr, "pod", e.PodNamespace+"/"+e.PodName, "action", action.String())
	}
	switch action {
	case lease.Recreate, lease.Rebind:
		return false, h.rebind(ctx, e, address, l)
	case lease.FenceAndAsk:
		if err := h.Kernel.KillSlot(e.Slot); err != nil {
			return false, err
		}
		return false, fmt.Errorf("the address is lost, and pod %s/%s cannot be asked about yet", e.PodNamespace, e.PodName)
	case lease.Fence, lease.FenceAndDeletePod, lease.Release, lease.SetAside:
		if err := h.release(ctx, e); err != nil {
			return false, err
		}
		if action == lease.FenceAndDeletePod {
			return true, h.deletePod(ctx, &e, address)
		}
		return true, nil
	}
	return false, nil
}

// known gathers what the decision needs. The pod is asked about only where it matters.
func (h *Holders) known(ctx context.Context, e *journal.Entry, address journal.Address, l *v1alpha1.IPLease) (lease.Known, error) {
	fenced, err := h.Kernel.Fenced(bpf.Key{Segment: uint32(e.ParentIndex), Addr: address.Addr})
	if err != nil {
		return lease.Known{}, fmt.Errorf("see whether %s is fenced: %w", address.Addr, err)
	}
	k := lease.Known{
		Phase: lease.PhaseBound, ContainerID: e.ContainerID, Interface: e.Interface,
		PodUID: e.PodUID, MAC: e.MAC, LeaseUID: address.LeaseUID, EntrySession: e.Session,
		Node: h.Node, Session: h.Session, Fenced: fenced,
	}
	if l == nil || !holds(l, h.Node, e) || fenced {
		k.Pod = h.podState(ctx, e)
	}
	return k, nil
}

// podState asks the API server what it wants of an entry's pod.
func (h *Holders) podState(ctx context.Context, e *journal.Entry) lease.PodState {
	pod := &corev1.Pod{}
	err := h.Reader.Get(ctx, types.NamespacedName{Namespace: e.PodNamespace, Name: e.PodName}, pod)
	switch {
	case apierrors.IsNotFound(err):
		return lease.PodUnwanted
	case err != nil:
		return lease.PodUnknown
	case !isUID(pod, e.PodUID), pod.DeletionTimestamp != nil,
		pod.Status.Phase == corev1.PodSucceeded, pod.Status.Phase == corev1.PodFailed:
		return lease.PodUnwanted
	}
	return lease.PodWanted
}

// rebind records a living pod's address again, whose lease was deleted by hand
// or lost with the store. The new token unfences nothing: the address was never
// fenced here, or the decision had been another one.
func (h *Holders) rebind(ctx context.Context, e journal.Entry, address journal.Address, found *v1alpha1.IPLease) error {
	pod := &corev1.Pod{}
	if err := h.Reader.Get(ctx, types.NamespacedName{Namespace: e.PodNamespace, Name: e.PodName}, pod); err != nil {
		return fmt.Errorf("read pod %s/%s: %w", e.PodNamespace, e.PodName, err)
	}
	mac, err := parseMAC(e.MAC)
	if err != nil {
		return err
	}
	request := lease.Request{
		Pool: address.Pool, Network: address.Network, Addr: address.Addr, Parent: e.Parent,
		Holder: holderOf(pod, agentAttachment(&e), Link{MAC: mac}),
	}
	var l *v1alpha1.IPLease
	if found == nil {
		l, err = h.Leases.Create(ctx, request)
	} else {
		l, err = h.Leases.TakeBack(ctx, found, request)
	}
	if errors.Is(err, lease.ErrTaken) || errors.Is(err, lease.ErrNotMine) || errors.Is(err, lease.ErrGone) {
		h.poke() // somebody was faster: decide again by what is there now
		return nil
	}
	if err != nil {
		return err
	}
	token, err := lease.Token(l)
	if err != nil {
		return err
	}
	for i := range e.Addresses {
		if e.Addresses[i].LeaseName == address.LeaseName {
			e.Addresses[i].LeaseUID, e.Addresses[i].Token = string(l.UID), token
			address = e.Addresses[i]
		}
	}
	if err := h.Journal.Put(e); err != nil {
		return err
	}
	h.audit(audit.Grant, &e, address, "the lease was lost while the pod ran")
	h.event(&e, corev1.EventTypeWarning, "LeaseRecreated", "the lease of %s was gone while the pod ran; it is recorded again", address.Addr)
	return h.install(&e, address)
}

// deletePod deletes a pod that has lost its address: it would stay Ready and mute.
func (h *Holders) deletePod(ctx context.Context, e *journal.Entry, address journal.Address) error {
	h.event(e, corev1.EventTypeWarning, "AddressLost", "%s belongs to somebody else now; the pod is fenced and deleted", address.Addr)
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: e.PodNamespace, Name: e.PodName}}
	uid := apiUID(e.PodUID)
	err := h.Client.Delete(ctx, pod, client.Preconditions{UID: &uid})
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return fmt.Errorf("delete pod %s/%s: %w", e.PodNamespace, e.PodName, err)
	}
	return nil
}
