// SPDX-License-Identifier: Apache-2.0

//go:build api

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/test/check"
	"github.com/fenceline/fenceline/test/controlplane"
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

// nodeDownAfter is rule R12 on a node of which nobody says that it is off.
func nodeDownAfter(w world) {
	const after = 2 * time.Second
	change(w, w.pool("after", "10.16.0.0/24"), func(p *v1alpha1.IPPool) { p.Spec.Reclaim.NodeDown = "After 2s" })
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
		check.Must(w, pod.DeletionTimestamp != nil || l.Spec.State == v1alpha1.StateBound,
			"the address was taken from a pod that Kubernetes believes %s", pod.Status.Phase)
		deleted = pod.DeletionTimestamp
		return unless(deleted != nil, "it is %s", pod.Status.Phase)
	})
	waited := time.Since(down)
	check.That(w, waited >= after, "deleted %s after the node fell silent, want %s", waited, after)
	check.That(w, ptr.Deref(pod.DeletionGracePeriodSeconds, 0) != 0, "the pod was deleted without grace although it may be alive")
	w.waitEvent("default", "DeletedForReclaim", pod.Name, "10.16.0.2", "NodeUnreachable")
	lease := w.waitQuarantined("10.16.0.2", v1alpha1.ReasonNodeUnreachable)
	now := time.Now()
	check.That(w, !now.Before(deleted.Add(extraGrace)), "taken %s before the pod's end", deleted.Add(extraGrace).Sub(now))
	check.That(w, lease.Spec.NodeName != "falls", "a node that is silent verifies")
}

func nodeDownNever(w world) {
	pool := w.pool("never", "10.17.0.0/24")
	change(w, pool, func(p *v1alpha1.IPPool) { p.Spec.Reclaim.NodeDown = v1alpha1.NodeDownNever })
	w.readyNode("sleeps")
	pod := w.runningPod("never-0", "sleeps")
	w.bound("never", "10.17.0.2", pod)
	w.setReady("sleeps", corev1.ConditionUnknown)
	w.remove(pod)
	w.waitMessage("10.17.0.2", "", "reclaim.nodeDown is Never")
	check.Equal(w, w.lease("10.17.0.2").Spec.State, v1alpha1.StateBound, "the lease is")
	change(w, pool, func(p *v1alpha1.IPPool) { p.Spec.Reclaim.NodeDown = "" })
	w.waitQuarantined("10.17.0.2", v1alpha1.ReasonNodeUnreachable)
}

// neverWas is what a node leaves behind that lost its DEL, and the controller never saw the pod.
func neverWas(w world) {
	w.pool("never-was", "10.19.0.0/24")
	w.bound("never-was", "10.19.0.2", w.goneHolder("never-was-0"))
	w.waitQuarantined("10.19.0.2", v1alpha1.ReasonPodGone)
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
			for _, field := range []string{"address", "network", "pool", "namespace", "pod", "uid", "node", "mac", "token"} {
				_, ok := line[field]
				check.That(w, ok, "an audit line of %s lacks %s: %v", word, field, line)
			}
			check.That(w, line["address"] != "" && line["pool"] != "" && line["node"] != "", "an audit line of %s says nothing: %v", word, line)
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
	w.remove(pod, client.GracePeriodSeconds(1)) // no kubelet ends the pod
	w.waitQuarantined("10.28.0.2", v1alpha1.ReasonPodTerminating)
	w.waitEvent(pod.Namespace, "AddressReclaimed", pod.Name, "10.28.0.2", "PodTerminating")
}

// onThePage asks the page about a lease as an account that may read everything.
func onThePage(server *controlplane.Server) func(world) {
	return func(w world) {
		w.create(&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "viewer"}})
		w.create(&rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: "viewer"},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
			Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: "default", Name: "viewer"}},
		})
		token := check.Value(server.ServiceAccount(w.ctx, "default", "viewer", nil))(w.T).BearerToken
		w.pool("page", "10.77.0.0/24")
		pod := w.runningPod("page-0", "n1")
		w.bound("page", "10.77.0.2", pod)
		w.waitBound("page", 1) // the page reads from the API server, and may be ahead of the controller
		says := func(words string) {
			w.Helper()
			w.eventually("the page says "+words, func() error {
				request := check.Value(http.NewRequestWithContext(w.ctx, http.MethodGet, "http://"+w.page+"/api/leases/10.77.0.2", nil))(w.T)
				request.Header.Set("Authorization", "Bearer "+token)
				answer, err := http.DefaultClient.Do(request)
				if err != nil {
					return err
				}
				defer answer.Body.Close()
				text, err := io.ReadAll(answer.Body)
				return errors.Join(err, unless(strings.Contains(string(text), words), "%s", text))
			})
		}
		says("The controller leaves the lease as it is: the pod is alive.")
		w.remove(pod, client.GracePeriodSeconds(1)) // no kubelet ends the pod
		w.waitQuarantined("10.77.0.2", v1alpha1.ReasonPodTerminating)
		says("It was taken from pod default/page-0 on node n1.")
	}
}

// freeAddress returns one of the loopback interface on which nobody listens.
func freeAddress(t *testing.T) string {
	t.Helper()
	return fmt.Sprintf("127.0.0.1:%d", check.Value(controlplane.FreePorts(1))(t)[0])
}

const ipRetention = v1alpha1.AnnotationPrefix + v1alpha1.AnnotationIPRetention

// annotated gives the pods' template an annotation.
func annotated(key, value string) func(*appsv1.StatefulSet) {
	return func(s *appsv1.StatefulSet) { s.Spec.Template.Annotations = map[string]string{key: value} }
}

// barrier waits until the controller has ended the retention of a lease that is
// due, so that whatever was due before has been looked at.
func (w world) barrier(pool, address string) {
	w.Helper()
	w.retained(pool, address, "nobodys", 0)
	w.waitGone(address)
}

func templateChanged(w world) {
	w.pool("template", "10.50.0.0/24")
	set := w.statefulSet("template", 1, annotated(v1alpha1.LegacyAnnotationPrefix+v1alpha1.AnnotationStaticIP, "true"))
	// What the lease recorded does not count while the StatefulSet exists.
	w.retained("template", "10.50.0.2", "template", 7, lasting(0))
	w.retained("template", "10.50.0.3", "template", 0, lasting(0))
	w.barrier("template", "10.50.0.9")
	check.Must(w, w.lease("10.50.0.2") != nil, "freed although the template says static-ip")
	change(w, set, annotated(v1alpha1.AliasIPRetention, "48"))
	w.waitMessage("10.50.0.2", "", "kept until")
	change(w, set, annotated(ipRetention, "two days"))
	w.waitMessage("10.50.0.2", "", `StatefulSet default/template: annotation ipam.fenceline.io/ip-retention is "two days"`)
	change(w, set, annotated(ipRetention, "0"))
	w.waitGone("10.50.0.2")
	check.That(w, w.lease("10.50.0.3") != nil, "freed although the StatefulSet wants the pod")
}

func cappedRetention(w world) {
	pool := w.pool("capped", "10.53.0.0/24")
	since := func(age time.Duration) func(*v1alpha1.IPLeaseSpec) {
		return func(s *v1alpha1.IPLeaseSpec) { s.Since = metav1.NewTime(time.Now().Add(-age)) }
	}
	w.retained("capped", "10.53.0.2", "capped", 0, forever, since(2*time.Hour))
	w.retained("capped", "10.53.0.3", "capped", 1, forever, since(0))
	w.barrier("capped", "10.53.0.9")
	check.Must(w, w.lease("10.53.0.2") != nil, "freed without a limit")
	change(w, pool, func(p *v1alpha1.IPPool) {
		p.Spec.Retention = &v1alpha1.PoolRetention{Max: &v1alpha1.Duration{Duration: time.Hour}}
	})
	w.waitGone("10.53.0.2")
	w.waitMessage("10.53.0.3", "", "the pool retains no address longer than 1h0m0s")
}

// ownerNotServed: nobody has installed the custom resources of these owners, or somebody has removed them.
func ownerNotServed(w world) {
	w.pool("foreign", "10.59.0.0/24")
	of := func(group, kind string) func(*v1alpha1.IPLeaseSpec) {
		return func(s *v1alpha1.IPLeaseSpec) {
			s.Holder.OwnerGroup, s.Holder.OwnerKind = group, kind
			lasting(0)(s)
		}
	}
	w.retained("foreign", "10.59.0.2", "kruise", 0, of("apps.kruise.io", "StatefulSet"))
	w.retained("foreign", "10.59.0.3", "machine", 0, of("kubevirt.io", "VirtualMachineInstance"))
	w.waitMessage("10.59.0.2", "", "StatefulSet.apps.kruise.io default/kruise: the API server does not serve this kind")
	w.waitMessage("10.59.0.3", "", "default/machine: the API server does not serve this kind")
	w.waitMetric("fenceline_unknown_owners_total reason=NoAPI", func(v float64) bool { return v >= 2 })
	w.barrier("foreign", "10.59.0.9")
	check.That(w, w.lease("10.59.0.2") != nil && w.lease("10.59.0.3") != nil, "freed although nobody knows whether the owner wants it")
}

// succeeded: the annotation of a StatefulSet's template has left a pool, so that
// the next pod has got an address of another.
func succeeded(w world) {
	w.pool("left", "10.98.0.0/24")
	w.pool("moved-to", "10.99.0.0/24")
	w.statefulSet("moved", 1)
	eth0 := func(s *v1alpha1.IPLeaseSpec) { s.Holder.Interface = "eth0" }
	net1 := func(s *v1alpha1.IPLeaseSpec) { s.Holder.Interface = "net1" }
	early := w.retained("left", "10.98.0.2", "moved", 0, eth0, forever)
	other := w.retained("left", "10.98.0.3", "moved", 0, net1, forever)
	w.barrier("left", "10.98.0.9")
	check.Must(w, w.lease(early.Name) != nil, "freed although the StatefulSet wants the pod")
	pod := w.runningPod("moved-0", "n1")
	now := w.retained("moved-to", "10.99.0.2", "moved", 0, eth0, forever)
	w.eventually("the pod takes its lease, whose message the controller may write", func() error {
		now = w.lease(now.Name)
		check.Must(w, now != nil, "the lease is not there")
		return unless(w.takeOver(now, pod) != nil, "it was written meanwhile")
	})
	w.waitGone(early.Name)
	w.waitEvent("default", "RetentionEnded", early.Name, "pod default/moved-0 now has 10.99.0.2 on interface eth0")
	// One that was being verified meanwhile.
	w.waitGone(w.retained("left", "10.98.0.4", "moved", 0, eth0, forever).Name)
	w.barrier("left", "10.98.0.9")
	check.That(w, w.lease(other.Name) != nil && w.lease(now.Name) != nil, "what another interface has, or the new address, was freed")
}

// keptForPods: the sandboxes of living pods have ended, and their next sandboxes get the addresses.
func keptForPods(w world) {
	w.pool("sandboxes", "10.57.0.0/24")
	kept := func(address, name string) (*v1alpha1.IPLease, *corev1.Pod) {
		pod := w.runningPod(name, "n1")
		lease := w.bound("sandboxes", address, pod)
		change(w, lease, func(l *v1alpha1.IPLease) {
			l.Spec.State, l.Spec.Reason, l.Spec.Holder.ContainerID = v1alpha1.StateRetained, v1alpha1.ReasonSandboxEnded, ""
		})
		return lease, pod
	}
	living, _ := kept("10.57.0.2", "sandbox-lives")
	for address, end := range map[string]func(*corev1.Pod){
		"10.57.0.3": func(p *corev1.Pod) { w.remove(p) },
		"10.57.0.4": func(p *corev1.Pod) { w.remove(p, client.GracePeriodSeconds(0)) },
		"10.57.0.5": func(p *corev1.Pod) { w.setPodStatus(p, func(s *corev1.PodStatus) { s.Phase = corev1.PodFailed }) },
		"10.57.0.6": func(p *corev1.Pod) { w.bound("sandboxes", "10.57.0.16", p) },
	} {
		lease, pod := kept(address, "sandbox-"+address[len(address)-1:])
		end(pod)
		w.waitGone(lease.Name)
		w.waitEvent("default", "RetentionEnded", lease.Name, "pod default/"+pod.Name)
	}
	w.barrier("sandboxes", "10.57.0.9")
	check.That(w, w.lease(living.Name) != nil && w.lease("10.57.0.16") != nil, "freed although its pod lives")
}

// takeOver binds a Retained lease as the agent of its pod's new node does. It
// returns nil if the controller was faster.
func (w world) takeOver(lease *v1alpha1.IPLease, pod *corev1.Pod) *v1alpha1.IPLease {
	next := lease.DeepCopy()
	next.Spec.State, next.Spec.NodeName, next.Spec.Session = v1alpha1.StateBound, "n1", "node/boot"
	next.Spec.Holder.PodUID, next.Spec.Holder.ContainerID = string(pod.UID), "c"
	if err := w.client.Update(w.ctx, next); err != nil {
		return nil // somebody else wrote or deleted it
	}
	return next
}
