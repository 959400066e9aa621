// SPDX-License-Identifier: Apache-2.0

//go:build api

package main

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/test/check"
)

func outsidePool(w world) {
	pool := w.pool("outside", "10.13.0.0/24")
	lease := w.bound("outside", "10.13.0.2", w.runningPod("outside-0", "n1"))
	change(w, pool, func(p *v1alpha1.IPPool) { p.Spec.IPs = []string{"10.13.0.100"} })
	w.waitMessage(lease.Name, v1alpha1.ReasonOutsidePool, "pool outside no longer has the address")
	change(w, pool, func(p *v1alpha1.IPPool) { p.Spec.IPs = nil })
	w.waitMessage(lease.Name, "", "")
	l := w.lease(lease.Name)
	check.That(w, l.Spec.State == v1alpha1.StateBound && l.Spec.Message == "", "the lease is %s and says %q", l.Spec.State, l.Spec.Message)
}

// evicted is what kubelet and the eviction API leave of a pod that never started.
func evicted(w world) {
	w.pool("evicted", "10.14.0.0/24")
	pod := w.runningPod("evicted-0", "n1")
	w.bound("evicted", "10.14.0.2", pod)
	failed := metav1.Now().Rfc3339Copy() // The API server keeps seconds.
	w.setPodStatus(pod, func(s *corev1.PodStatus) {
		s.Phase, s.Reason, s.ContainerStatuses = corev1.PodFailed, "Evicted", nil
		s.Conditions = []corev1.PodCondition{{
			Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, LastTransitionTime: failed,
		}}
	})
	w.waitQuarantined("10.14.0.2", v1alpha1.ReasonPodFinished)
	waited := time.Since(failed.Time)
	check.That(w, waited >= extraGrace+time.Second, "taken after %s: the pod has its own grace of 1 s and %s", waited, extraGrace)
	w.waitMetric("fenceline_reclaims_total reason=PodFinished", func(v float64) bool { return v >= 1 })
}

// staticPod: the runtime knows the pod by its manifest's hash, the API server its mirror by a UID.
func staticPod(w world) {
	w.pool("static", "10.15.0.0/24")
	const hash = "0cc175b9c0f1b6a831c399e269772661"
	mirror := w.podObject("default", "static-n1", "n1")
	mirror.Annotations = map[string]string{"kubernetes.io/config.hash": hash, corev1.MirrorPodAnnotationKey: hash}
	w.create(mirror)
	w.bound("static", "10.15.0.2", mirror, func(h *v1alpha1.Holder) { h.PodUID = hash })
	// A lease of another pod that is due shows that this one was looked at, too.
	w.bound("static", "10.15.0.3", mirror, func(h *v1alpha1.Holder) { h.PodUID = "11111111-0000-4000-8000-000000000000" })
	w.waitQuarantined("10.15.0.3", v1alpha1.ReasonPodReplaced)
	l := w.lease("10.15.0.2")
	check.That(w, l.Spec.State == v1alpha1.StateBound, "the static pod's lease is %s (%s)", l.Spec.State, l.Spec.Reason)
	w.setPodStatus(mirror, func(s *corev1.PodStatus) { s.Phase = corev1.PodFailed })
	w.waitQuarantined("10.15.0.2", v1alpha1.ReasonPodFinished)
}

// nodeDownAfter is rule R12 on a node of which nobody says that it is off.
func nodeDownAfter(w world) {
	const after = 2 * time.Second
	pool := w.pool("after", "10.16.0.0/24")
	change(w, pool, func(p *v1alpha1.IPPool) { p.Spec.Reclaim.NodeDown = "After 2s" })
	w.readyNode("falls")
	pod := w.runningPod("after-0", "falls")
	w.bound("after", "10.16.0.2", pod)
	down := time.Now().Truncate(time.Second)
	w.setReady("falls", corev1.ConditionUnknown)

	var deleted *metav1.Time
	w.eventually("deletion of the pod", func() error {
		l := w.lease("10.16.0.2") // before the pod, which is deleted first
		if err := w.client.Get(w.ctx, client.ObjectKeyFromObject(pod), pod); err != nil {
			return err
		}
		if pod.DeletionTimestamp == nil && l.Spec.State != v1alpha1.StateBound {
			w.Fatalf("the address was taken from a pod that Kubernetes believes %s", pod.Status.Phase)
		}
		if deleted = pod.DeletionTimestamp; deleted == nil {
			return fmt.Errorf("it is %s", pod.Status.Phase)
		}
		return nil
	})
	waited := time.Since(down)
	check.That(w, waited >= after, "deleted %s after the node fell silent, want %s", waited, after)
	check.That(w, ptr.Deref(pod.DeletionGracePeriodSeconds, 0) != 0, "the pod was deleted without grace although it may be alive")
	w.waitEvent("default", "DeletedForReclaim", pod.Name, "10.16.0.2", "NodeUnreachable")
	lease := w.waitQuarantined("10.16.0.2", v1alpha1.ReasonNodeUnreachable)
	if now := time.Now(); now.Before(deleted.Add(extraGrace)) {
		w.Errorf("taken %s before the pod's end", deleted.Add(extraGrace).Sub(now))
	}
	check.That(w, lease.Spec.NodeName != "falls", "a node that is silent verifies")
}

func nodeDownNever(w world) {
	pool := w.pool("never", "10.17.0.0/24")
	change(w, pool, func(p *v1alpha1.IPPool) { p.Spec.Reclaim.NodeDown = v1alpha1.NodeDownNever })
	w.readyNode("sleeps")
	pod := w.runningPod("never-0", "sleeps")
	w.bound("never", "10.17.0.2", pod)
	w.setReady("sleeps", corev1.ConditionUnknown)
	w.deletePod(pod)
	w.waitMessage("10.17.0.2", "", "reclaim.nodeDown is Never")
	l := w.lease("10.17.0.2")
	check.That(w, l.Spec.State == v1alpha1.StateBound, "the lease is %s", l.Spec.State)
	change(w, pool, func(p *v1alpha1.IPPool) { p.Spec.Reclaim.NodeDown = "" })
	w.waitQuarantined("10.17.0.2", v1alpha1.ReasonNodeUnreachable)
}

// warmOnSilentNode: nobody uses the address, and the agent that would give it up
// for others may not hear of them.
func warmOnSilentNode(w world) {
	pool := w.pool("ready", "10.18.0.0/24")
	change(w, pool, func(p *v1alpha1.IPPool) { p.Spec.Reclaim.NodeDown = "After 1s" })
	w.readyNode("mute")
	w.create(&v1alpha1.IPLease{ObjectMeta: metav1.ObjectMeta{Name: "10.18.0.2"}, Spec: v1alpha1.IPLeaseSpec{
		Address: "10.18.0.2", Pool: pool.Name, Parent: "eth0", State: v1alpha1.StateWarm, Since: metav1.Now(), NodeName: "mute", Session: "node/boot",
	}})
	w.setReady("mute", corev1.ConditionUnknown)
	lease := w.waitQuarantined("10.18.0.2", v1alpha1.ReasonNodeUnreachable)
	check.That(w, lease.Spec.NodeName != "mute", "a node that is silent verifies")
}

// neverWas is what a node leaves behind that lost its DEL, and the controller never saw the pod.
func neverWas(w world) {
	w.pool("never-was", "10.19.0.0/24")
	gone := w.podObject("default", "never-was-0", "n1")
	gone.UID = "11111111-0000-4000-8000-000000000000"
	w.bound("never-was", "10.19.0.2", gone)
	w.waitQuarantined("10.19.0.2", v1alpha1.ReasonPodGone)
}

// onHostNetwork: the record must be a mistake, for such a pod has no address of its own.
func onHostNetwork(w world) {
	w.pool("host", "10.24.0.0/24")
	pod := w.podObject("default", "host-0", "n1")
	pod.Spec.HostNetwork = true
	w.create(pod)
	lease := w.bound("host", "10.24.0.2", pod)
	w.setPodStatus(pod, func(s *corev1.PodStatus) { s.Phase = corev1.PodFailed })
	// Another pod's ends in the same way.
	other := w.runningPod("host-1", "n1")
	w.bound("host", "10.24.0.3", other)
	w.setPodStatus(other, func(s *corev1.PodStatus) { s.Phase = corev1.PodFailed })
	w.waitQuarantined("10.24.0.3", v1alpha1.ReasonPodFinished)
	w.barrier("host", "10.24.0.9")
	l := w.lease(lease.Name)
	check.That(w, l != nil && l.ResourceVersion == lease.ResourceVersion, "the lease of a pod on the host's network became %+v", l)
}

// terminatingOff: a pool may leave what stays Terminating where it is.
func terminatingOff(w world) {
	pool := w.pool("patient", "10.25.0.0/24")
	change(w, pool, func(p *v1alpha1.IPPool) { p.Spec.Reclaim.Terminating = ptr.To(false) })
	pod := w.runningPod("patient-0", "n1")
	w.bound("patient", "10.25.0.2", pod)
	w.deletePod(pod)
	w.waitMessage("10.25.0.2", "", "is still Terminating, and reclaim.terminating is false")
	l := w.lease("10.25.0.2")
	check.That(w, l.Spec.State == v1alpha1.StateBound, "the lease is %s", l.Spec.State)
	change(w, pool, func(p *v1alpha1.IPPool) { p.Spec.Reclaim.Terminating = nil })
	w.waitQuarantined("10.25.0.2", v1alpha1.ReasonPodTerminating)
}

// auditLog keeps the audit lines of a controller's log.
type auditLog struct {
	mu    sync.Mutex
	lines []map[string]any
}

// Write gets one line at a time.
func (a *auditLog) Write(line []byte) (int, error) {
	fields := map[string]any{}
	if err := json.Unmarshal(line, &fields); err != nil {
		return 0, fmt.Errorf("read the log's line %q: %w", line, err)
	}
	if fields["logger"] == "audit" {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.lines = append(a.lines, fields)
	}
	return len(line), nil
}

// of returns the lines of one kind and reason.
func (a *auditLog) of(kind, reason string) []map[string]any {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(a.lines), func(l map[string]any) bool { return l["msg"] != kind || l["reason"] != reason })
}

// reasonsAreTold: whatever an address was taken for, which the leases of the other
// subtests have told, the same word is in an event, a metric and an audit line.
func (w world) reasonsAreTold(log *auditLog) {
	for _, reason := range []v1alpha1.LeaseReason{
		v1alpha1.ReasonPodDeleted, v1alpha1.ReasonPodGone, v1alpha1.ReasonPodReplaced, v1alpha1.ReasonPodTerminating,
		v1alpha1.ReasonPodFinished, v1alpha1.ReasonNodeUnreachable, v1alpha1.ReasonNodeGone, v1alpha1.ReasonOutOfService,
	} {
		word := string(reason)
		w.waitMetric("fenceline_reclaims_total reason="+word, func(v float64) bool { return v >= 1 })
		w.eventually("event of a reclaim for "+word, func() error {
			var events eventsv1.EventList
			if err := w.client.List(w.ctx, &events); err != nil {
				return err
			}
			if !slices.ContainsFunc(events.Items, func(e eventsv1.Event) bool {
				return e.Reason == "AddressReclaimed" && strings.Contains(e.Note, ": "+word+": ")
			}) {
				return fmt.Errorf("none of %d events tells of one", len(events.Items))
			}
			return nil
		})
		lines := log.of("reclaim", word)
		check.That(w, len(lines) != 0, "no audit line tells of a reclaim for %s", word)
		for _, line := range lines {
			for _, field := range []string{"address", "pool", "namespace", "pod", "uid", "node", "mac", "token"} {
				_, ok := line[field]
				check.That(w, ok, "an audit line of %s lacks %s: %v", word, field, line)
			}
			if line["address"] == "" || line["pool"] == "" || line["node"] == "" {
				w.Errorf("an audit line of %s says nothing: %v", word, line)
			}
		}
	}
}

// longNames: an event whose note is too long is refused, and nobody told.
func longNames(w world) {
	pool, node := strings.Repeat("p", 240), strings.Repeat("n", 240)
	w.readyNode(node)
	w.pool(pool, "10.28.0.0/24")
	pod := w.runningPod(strings.Repeat("w", 120), node)
	w.bound(pool, "10.28.0.2", pod)
	w.waitBound(pool, 1)
	w.deletePod(pod, client.GracePeriodSeconds(0))
	w.waitQuarantined("10.28.0.2", v1alpha1.ReasonPodDeleted)
	w.waitEvent(pod.Namespace, "AddressReclaimed", pod.Name, "10.28.0.2", "PodDeleted")
}
