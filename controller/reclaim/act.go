// SPDX-License-Identifier: Apache-2.0

package reclaim

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/controller/podview"
	"github.com/fenceline/fenceline/internal/audit"
	"github.com/fenceline/fenceline/internal/event"
	"github.com/fenceline/fenceline/internal/poolset"
)

// Reasons of the events.
const (
	eventReclaimed       = "AddressReclaimed"
	eventPodDeleted      = "DeletedForReclaim"
	eventReassigned      = "VerifierChanged"
	eventRetentionEnded  = "RetentionEnded"
	eventQuarantineEnded = "QuarantineEnded"
	eventWithheld        = "ReclaimOff"
)

// update writes a new spec to exactly the version of the lease that was judged.
func (r *Reconciler) update(ctx context.Context, lease *v1alpha1.IPLease, spec v1alpha1.IPLeaseSpec) (*v1alpha1.IPLease, error) {
	written := lease.DeepCopy() // carries uid and resourceVersion
	written.Spec = spec
	written.EndTracking()
	if err := r.Client.Update(ctx, written); err != nil {
		return nil, fmt.Errorf("update lease %s: %w", lease.Name, err)
	}
	return written, nil
}

// withToken returns a copy of a lease that records the token of its holder, which the next write
// hides.
func withToken(lease *v1alpha1.IPLease) *v1alpha1.IPLease {
	lease = lease.DeepCopy()
	lease.RecordToken()
	return lease
}

func (r *Reconciler) quarantine(ctx context.Context, f Facts, a Action) error {
	node := a.Verifier
	if node == "" {
		var err error
		if node, err = r.bestVerifier(ctx, f.Lease); err != nil {
			return err
		}
	}
	spec := quarantined(withToken(f.Lease).Spec, a.Reason, node, f.Now)
	written, err := r.update(ctx, f.Lease, spec)
	if err != nil {
		return err
	}
	if f.Lease.Spec.State == v1alpha1.StateQuarantined {
		// The address was taken and counted earlier.
		r.Events.Eventf(written, nil, corev1.EventTypeWarning, eventReclaimed, "Quarantine", "%s: %s; %s verifies", a.Reason, a.Why, spec.NodeName)
		return nil
	}
	r.Metrics.Reclaimed(a.Reason)
	// The written lease names the verifier's node, not the node of its holder.
	audit.Log(r.Audit, audit.Reclaim, audit.Of(written, f.Lease.Spec.NodeName, string(a.Reason)))
	// One event is enough: the lease has the details.
	regarding, related := runtime.Object(written), runtime.Object(nil)
	if h := spec.Holder; h != nil && h.Pod != "" {
		regarding, related = event.Pod(h.Namespace, h.Pod, h.PodUID), written
	}
	r.Events.Eventf(regarding, related, corev1.EventTypeWarning, eventReclaimed, "Quarantine",
		"address %s of pool %s was taken from %s on node %s: %s: %s; %s verifies",
		spec.Address, spec.Pool, describe(spec.Holder), f.Lease.Spec.NodeName, a.Reason, a.Why, spec.NodeName)
	return nil
}

// describe returns the name of a holder for a message.
func describe(holder *v1alpha1.Holder) string {
	if holder == nil || holder.Pod == "" {
		return "no pod"
	}
	return fmt.Sprintf("pod %s/%s (%s)", holder.Namespace, holder.Pod, holder.PodUID)
}

// reassign assigns a lease to the next candidate. If there is no other candidate, the current
// verifier goes on.
func (r *Reconciler) reassign(ctx context.Context, f Facts, a Action, n *note) (ctrl.Result, error) {
	verifiers, err := r.verifiers(ctx, f.Lease)
	if err != nil {
		return ctrl.Result{}, err
	}
	next := after(verifiers, f.Lease.Spec.NodeName)
	if next == "" && !f.Verifier.Alive {
		// A watch event reports a node or an agent that appears.
		return ctrl.Result{RequeueAfter: maxBackoff}, nil
	}
	if next == "" {
		n.assignment.passedOn(f.Now)
		return ctrl.Result{RequeueAfter: pauseAfter(n.assignment.changes, verifierPatience)}, nil
	}
	written, err := r.update(ctx, f.Lease, reassigned(f.Lease.Spec, next))
	if err != nil {
		return ctrl.Result{}, err
	}
	// A verifier that was not alive had no time to answer, so its turn does not count.
	if f.Verifier.Alive {
		n.assignment.passedOn(f.Now)
	}
	r.Events.Eventf(written, nil, corev1.EventTypeNormal, eventReassigned, "Verify", "%s; %s verifies", a.Why, next)
	return ctrl.Result{}, nil
}

// deletePod deletes the pod that was judged, by its UID, so that no Service offers its address
// (R12). A later reconcile takes the address.
func (r *Reconciler) deletePod(ctx context.Context, f Facts, a Action) error {
	pod := &podview.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: f.Pod.Object.Namespace, Name: f.Pod.Object.Name, UID: f.Pod.Object.UID}}
	options := []client.DeleteOption{client.Preconditions{UID: &pod.UID}}
	if a.Force {
		options = append(options, client.GracePeriodSeconds(0))
	}
	if err := r.Client.Delete(ctx, pod, options...); err != nil {
		return fmt.Errorf("delete pod %s/%s for the reclaim of %s: %w", pod.Namespace, pod.Name, f.Lease.Spec.Address, err)
	}
	r.Events.Eventf(pod, f.Lease, corev1.EventTypeWarning, eventPodDeleted, "Delete",
		"deleted before address %s is taken: %s: %s", f.Lease.Spec.Address, a.Reason, a.Why)
	return nil
}

// free deletes exactly the version of the lease that was judged. why is the reason of its audit line and
// its event.
func (r *Reconciler) free(ctx context.Context, f Facts, a Action, why string) error {
	err := r.Client.Delete(ctx, f.Lease.DeepCopy(), client.Preconditions{UID: &f.Lease.UID, ResourceVersion: &f.Lease.ResourceVersion})
	if err != nil {
		return fmt.Errorf("free the address of lease %s (%s): %w", f.Lease.Name, why, err)
	}
	audit.Log(r.Audit, audit.Free, audit.Of(f.Lease, f.Lease.Spec.NodeName, why))
	r.Events.Eventf(f.Lease, nil, corev1.EventTypeNormal, why, "Free", "%s", a.Why)
	return nil
}

// remark writes a remark on a lease that the controller leaves alone.
func (r *Reconciler) remark(ctx context.Context, lease *v1alpha1.IPLease, said remark) error {
	spec := withToken(lease).Spec
	if said.reason == spec.Reason && said.message == spec.Message {
		return nil
	}
	isNew := said.reason != "" && said.reason != spec.Reason
	spec.Reason, spec.Message = said.reason, said.message
	written, err := r.update(ctx, lease, spec)
	if err == nil && isNew {
		r.Events.Eventf(written, nil, corev1.EventTypeWarning, string(said.reason), "Remark", "%s", said.message)
	}
	return err
}

// withhold reports a lease that is due while reclaim is switched off, once for each lease and reason.
func (r *Reconciler) withhold(ctx context.Context, f Facts, a Action, n *note) {
	if !a.Withheld {
		if n.rare != nil {
			n.rare.withheld = ""
		}
		return
	}
	reason := a.Reason
	if reason == "" {
		reason = eventRetentionEnded
	}
	if n.rarely().withheld == reason {
		return
	}
	n.rare.withheld = reason
	r.Metrics.Withheld(reason)
	log.FromContext(ctx).Info("not reclaimed", "lease", f.Lease.Name, "reason", reason, "why", a.Why)
	r.Events.Eventf(f.Lease, nil, corev1.EventTypeWarning, eventWithheld, "Withhold", "%s: %s", reason, a.Why)
	if f.Pool != nil {
		r.Events.Eventf(f.Pool, f.Lease, corev1.EventTypeWarning, eventWithheld, "Withhold",
			"reclaim is switched off (reclaim.enabled of the chart): address %s is due (%s) and is not taken", f.Lease.Spec.Address, reason)
	}
}

// remarkPrefix marks the controller's messages. Agents write messages without it.
const remarkPrefix = "controller: "

// remark is the reason and message of a lease that the controller leaves alone.
type remark struct {
	reason  v1alpha1.LeaseReason
	message string
}

// remarkOn returns the remark of a lease that the controller leaves alone: the fault of the record,
// how the lease ends, and why the controller does nothing. A reason or message of an agent stays.
// The remark of a Quarantined lease never changes, because it is the verifier's answer.
func remarkOn(lease *v1alpha1.IPLease, pool *v1alpha1.IPPool, a Action) remark {
	spec := &lease.Spec
	if spec.State == v1alpha1.StateQuarantined {
		return remark{spec.Reason, spec.Message}
	}
	var said remark
	var sentences []string
	switch {
	case pool == nil:
		said.reason = v1alpha1.ReasonPoolGone
		sentences = append(sentences, fmt.Sprintf("pool %s does not exist; %s", spec.Pool, endOf(spec.State)))
	case hasLeft(lease, pool):
		said.reason = v1alpha1.ReasonOutsidePool
		sentences = append(sentences, fmt.Sprintf("pool %s no longer has the address; %s", pool.Name, endOf(spec.State)))
	}
	if a.Tell {
		sentences = append(sentences, a.Why)
		if said.reason == "" && !a.Withheld {
			said.reason = a.Reason
		}
	}
	if len(sentences) > 0 {
		said.message = remarkPrefix + strings.Join(sentences, "; ")
	}
	if spec.Reason != "" && !isRemark(spec.Reason) {
		said.reason = spec.Reason
	}
	if spec.Message != "" && !strings.HasPrefix(spec.Message, remarkPrefix) {
		said.message = spec.Message
	}
	return said
}

// isRemark reports whether the controller, not an agent, writes the reason.
func isRemark(reason v1alpha1.LeaseReason) bool {
	return reason == v1alpha1.ReasonPoolGone || reason == v1alpha1.ReasonOutsidePool || reason == v1alpha1.ReasonNoHolder
}

// endOf returns the end of a lease for people, if its pool is gone or no longer has the address. A
// damaged record takes no address from a living pod or from a name.
func endOf(state v1alpha1.LeaseState) string {
	switch state {
	case v1alpha1.StateRetained:
		return "the lease ends with its retention, or when an operator deletes it"
	case v1alpha1.StateWarm:
		return "its agent releases the lease"
	default:
		return "the lease ends with its holder"
	}
}

// hasLeft reports whether the pool no longer has the address. It is false for an invalid pool.
func hasLeft(lease *v1alpha1.IPLease, pool *v1alpha1.IPPool) bool {
	set, err := poolset.Addresses(pool)
	return err == nil && !set.Contains(lease.Spec.Addr())
}
