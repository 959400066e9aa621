package holder

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fenceline/fenceline/agent/journal"
	"github.com/fenceline/fenceline/agent/lease"
	"github.com/fenceline/fenceline/apis/v1alpha1"
)

// disputePatience is how long a living pod whose lease somebody else has got is
// left alone while nobody claims the address: the other node may still be
// probing, will hear the pod, and set the lease aside for it to take back.
const disputePatience = 2 * time.Second

var (
	// errBusy: a call of the plugin works on the entry.
	errBusy = errors.New("a call of the runtime is under way")
	// errUndecided: what the decision needs is not known yet.
	errUndecided = errors.New("it cannot be decided yet")
	// errDisputed: see disputePatience.
	errDisputed = errors.New("another node may be probing the address")
)

// resumeEntry resumes one attachment: what was left half done is released, and
// of what is bound a GET of each lease decides (R7).
func (h *Holders) resumeEntry(ctx context.Context, a attachment, patience time.Duration) error {
	unlock, ok := h.attachments.tryLock(a)
	if !ok {
		return errBusy
	}
	defer unlock()
	e, ok := h.Journal.Get(a.containerID, a.ifname)
	if !ok {
		maps.DeleteFunc(h.disputed, func(d dispute, _ time.Time) bool { return d.attachment == a })
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if e.Phase != journal.Bound || e.Session != h.Session {
		return h.releaseAfterNewer(ctx, e)
	}
	for _, address := range e.Addresses {
		gone, err := h.resumeAddress(ctx, a, address.LeaseName)
		if err != nil {
			return fmt.Errorf("resume %s of pod %s/%s: %w", address.Addr, e.PodNamespace, e.PodName, err)
		}
		if gone {
			return nil
		}
	}
	return nil
}

// resumeAddress decides about one address; gone tells that the entry is.
func (h *Holders) resumeAddress(ctx context.Context, a attachment, name string) (gone bool, err error) {
	e, address, ok := h.entryOf(a, name)
	if !ok {
		return true, nil
	}
	l, err := h.Leases.Get(ctx, name)
	if errors.Is(err, lease.ErrGone) {
		l = nil
	} else if err != nil {
		return false, err
	}
	action, err := h.decide(ctx, &e, address, l)
	if err != nil {
		return false, err
	}
	if action != lease.GoOn {
		h.Log.Info("resume", "address", address.Addr, "pod", e.PodNamespace+"/"+e.PodName, "action", action.String())
	}
	switch action {
	case lease.GoOn:
		if address.LeaseUID == "" {
			return false, h.adopt(&e, name, l, leaseLost)
		}
		return false, h.keepUp(ctx, &e, address, l)
	case lease.Recreate, lease.Rebind:
		return false, h.rebind(ctx, e, address, l)
	case lease.FenceAndAsk:
		return false, errors.Join(errUndecided, h.mute(&e))
	case lease.FenceAndDeletePod:
		return true, h.yield(ctx, e, address)
	case lease.Fence, lease.Release, lease.SetAside:
		return true, h.releaseAfterNewer(ctx, e)
	}
	return false, errUndecided
}

// releaseAfterNewer releases an entry once no newer sandbox of its pod is on the
// way, which takes its addresses over one by one. Fenced it is at once.
func (h *Holders) releaseAfterNewer(ctx context.Context, e journal.Entry) error {
	if err := h.fence(&e); err != nil {
		return err
	}
	if h.hasNewer(&e, journal.Intent) {
		return errBusy
	}
	return h.free(ctx, e)
}

// hasNewer tells whether a newer sandbox of an entry's pod is in a phase.
func (h *Holders) hasNewer(e *journal.Entry, p journal.Phase) bool {
	return slices.ContainsFunc(h.Journal.OfPod(e.PodUID), func(other *journal.Entry) bool {
		return other.Phase == p && other.Interface == e.Interface && other.Created.After(e.Created)
	})
}

// entryOf reads an entry and its address by the name of the lease.
func (h *Holders) entryOf(a attachment, name string) (journal.Entry, journal.Address, bool) {
	e, _ := h.Journal.Get(a.containerID, a.ifname)
	for _, address := range e.Addresses {
		if address.LeaseName == name {
			return e, address, true
		}
	}
	return e, journal.Address{}, false
}

// yield gives up under a pod that is still wanted. The entry goes last: it is
// what remembers the pod until it is deleted.
func (h *Holders) yield(ctx context.Context, e journal.Entry, address journal.Address) error {
	if err := h.mute(&e); err != nil {
		return err
	}
	if err := h.deletePod(ctx, &e, address); err != nil {
		return err
	}
	return h.release(ctx, e)
}

// mute kills an entry's slot, and writes down that there is no way back: the lease
// may be free again before Kubernetes could be asked about the pod.
func (h *Holders) mute(e *journal.Entry) error {
	if err := h.Kernel.KillSlot(e.Slot); err != nil {
		return fmt.Errorf("kill slot %d of container %s: %w", e.Slot, e.ContainerID, err)
	}
	if e.Mute {
		return nil
	}
	e.Mute = true
	return h.Journal.Put(*e)
}

// decide gathers what the decision needs. The pod is asked about only where it
// matters.
func (h *Holders) decide(ctx context.Context, e *journal.Entry, address journal.Address, l *v1alpha1.IPLease) (lease.Action, error) {
	fenced, err := h.Kernel.Fenced(keyOf(e, address))
	if err != nil {
		return lease.Wait, fmt.Errorf("see whether %s is fenced: %w", address.Addr, err)
	}
	fenced = fenced || e.Mute
	known := lease.Known{
		Phase: lease.PhaseBound, ContainerID: e.ContainerID, Interface: e.Interface,
		PodUID: e.PodUID, MAC: e.MAC, LeaseUID: address.LeaseUID, EntrySession: e.Session,
		Node: h.Node, Session: h.Session, Fenced: fenced,
	}
	action := lease.Resume(known, l)
	if action == lease.Wait || action == lease.FenceAndAsk {
		known.Pod = h.podState(ctx, e)
		action = lease.Resume(known, l)
	}
	lost := action == lease.FenceAndDeletePod || action == lease.FenceAndAsk
	d := dispute{attachmentOf(e), address.LeaseName}
	if lost && !fenced && h.disputes(d, l) {
		return lease.Wait, errDisputed
	}
	delete(h.disputed, d)
	return action, nil
}

// dispute is about one address of an attachment.
type dispute struct {
	attachment attachment
	lease      string
}

// disputes tells whether another holder's lease is so new here that its node
// may not have heard our pod yet.
func (h *Holders) disputes(d dispute, l *v1alpha1.IPLease) bool {
	if l == nil || l.Spec.State != v1alpha1.StateBound && l.Spec.State != v1alpha1.StateWarm {
		return false
	}
	since, known := h.disputed[d]
	if !known {
		h.disputed[d] = h.Clock.Now()
		return true
	}
	return h.Clock.Since(since) < disputePatience
}

// podState asks the API server what it wants of an entry's pod. A pod that has a
// newer sandbox does not live from this one.
func (h *Holders) podState(ctx context.Context, e *journal.Entry) lease.PodState {
	if h.hasNewer(e, journal.Bound) || h.hasNewer(e, journal.Intent) {
		return lease.PodUnwanted
	}
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
