package holder

import (
	"context"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fenceline/fenceline/agent/journal"
	"github.com/fenceline/fenceline/agent/lease"
	"github.com/fenceline/fenceline/apis/audit"
	"github.com/fenceline/fenceline/apis/v1alpha1"
)

// leaseLost is why an address is granted a second time.
const leaseLost = "the lease was lost while the pod ran"

// errOutrun says that somebody wrote the lease first: what is there now decides.
var errOutrun = errors.New("the lease changed meanwhile")

// rebind records a living pod's address again, whose lease was deleted by hand
// or lost with the store. The new token unfences nothing: the address was never
// fenced here, or the decision had been another one.
func (h *Holders) rebind(ctx context.Context, e journal.Entry, address journal.Address, found *v1alpha1.IPLease) error {
	pod := &corev1.Pod{}
	if err := h.Reader.Get(ctx, types.NamespacedName{Namespace: e.PodNamespace, Name: e.PodName}, pod); err != nil {
		return fmt.Errorf("read pod %s/%s: %w", e.PodNamespace, e.PodName, err)
	}
	if !isUID(pod, e.PodUID) {
		return fmt.Errorf("%w: pod %s/%s was replaced", errOutrun, e.PodNamespace, e.PodName)
	}
	mac, err := parseMAC(e.MAC)
	if err != nil {
		return err
	}
	// The lease will have another UID. Forgotten first, it is ours by its
	// container also when the answer is lost or the agent dies.
	if err := h.record(&e, address.LeaseName, "", address.Token); err != nil {
		return err
	}
	request := lease.Request{
		Pool: address.Pool, Network: address.Network, Addr: address.Addr, Parent: e.Parent,
		Holder:    holderOf(pod, agentAttachment(&e), Link{MAC: mac}),
		Retention: recordedRetention(pod),
	}
	var l *v1alpha1.IPLease
	if found == nil {
		l, err = h.Leases.Create(ctx, request)
	} else {
		l, err = h.Leases.TakeBack(ctx, found, request)
	}
	if errors.Is(err, lease.ErrTaken) || errors.Is(err, lease.ErrNotMine) || errors.Is(err, lease.ErrGone) {
		return fmt.Errorf("%w: %w", errOutrun, err)
	}
	if err != nil {
		return err
	}
	h.warn(&e, "LeaseRecreated", "the lease of %s was gone while the pod ran; it is recorded again", address.Addr)
	if err := h.adopt(&e, address.LeaseName, l, leaseLost); err != nil {
		return err
	}
	return h.keepUp(ctx, &e, address, l)
}

// adopt journals and installs the UID and token of a lease that was written for
// an entry that holds the address already. A greater token stays: the store went
// back behind it, and claims of that time must find it (R9).
func (h *Holders) adopt(e *journal.Entry, name string, l *v1alpha1.IPLease, why string) error {
	token, err := lease.Token(l)
	if err != nil {
		return err
	}
	for _, address := range e.Addresses {
		if address.LeaseName == name {
			token = max(token, address.Token)
		}
	}
	if err := h.record(e, name, string(l.UID), token); err != nil {
		return err
	}
	for _, address := range e.Addresses {
		if address.LeaseName != name {
			continue
		}
		// A claim may have come since the decision. The new token would unfence
		// the address; asked again, the decision is another one.
		fenced, err := h.Kernel.Fenced(keyOf(e, address))
		if err != nil {
			return fmt.Errorf("see whether %s is fenced: %w", address.Addr, err)
		}
		if fenced {
			return fmt.Errorf("%w: a claim for %s was heard", errOutrun, address.Addr)
		}
		h.audit(audit.Grant, e, address, why)
		if err := h.install(e, address); err != nil {
			return err
		}
	}
	return nil
}

// record journals another UID and token for an address. The journal's own
// addresses are left as they are, since others read them.
func (h *Holders) record(e *journal.Entry, name, uid string, token uint64) error {
	e.Addresses = slices.Clone(e.Addresses)
	for i := range e.Addresses {
		if e.Addresses[i].LeaseName == name {
			e.Addresses[i].LeaseUID, e.Addresses[i].Token = uid, token
		}
	}
	return h.Journal.Put(*e)
}

// deletePod deletes a pod that has lost its address: it would stay Ready and
// mute. A static pod stays: deleting its mirror does not end it, and nobody but
// its node's administrator can.
func (h *Holders) deletePod(ctx context.Context, e *journal.Entry, address journal.Address) error {
	pod := &corev1.Pod{}
	err := h.Reader.Get(ctx, types.NamespacedName{Namespace: e.PodNamespace, Name: e.PodName}, pod)
	switch {
	case apierrors.IsNotFound(err), err == nil && !isUID(pod, e.PodUID):
		h.warn(e, "AddressLost", "%s belongs to somebody else now; the pod is fenced and was gone already", address.Addr)
		return nil
	case err != nil:
		return fmt.Errorf("read pod %s/%s: %w", e.PodNamespace, e.PodName, err)
	case isStatic(pod):
		h.Log.Info("a static pod lost its address and cannot be deleted", "pod", e.PodNamespace+"/"+e.PodName, "address", address.Addr)
		h.warn(e, "AddressLost",
			"%s belongs to somebody else now; the pod is fenced, but a static pod cannot be deleted through the API: it stays mute until its manifest is removed from node %s and put back",
			address.Addr, h.Node)
		return nil
	}
	// The UID of the object, which need not be the one that the runtime knows.
	err = h.Client.Delete(ctx, pod, client.Preconditions{UID: &pod.UID})
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return fmt.Errorf("delete pod %s/%s: %w", e.PodNamespace, e.PodName, err)
	}
	h.warn(e, "AddressLost", "%s belongs to somebody else now; the pod is fenced and deleted", address.Addr)
	return nil
}

// isStatic tells whether a pod is the mirror of a static one. Only a kubelet
// may write the annotation.
func isStatic(pod *corev1.Pod) bool {
	_, mirror := pod.Annotations[corev1.MirrorPodAnnotationKey]
	return mirror
}
