// SPDX-License-Identifier: Apache-2.0

//go:build api

package main

import (
	"fmt"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/test/check"
)

// TestSwitchedOffThenAwayThenOn runs three controllers after one another: one
// that may take nothing, none at all while the cluster changes, and one that
// finds everything at its start, although no watch told it of any change.
func TestSwitchedOffThenAwayThenOn(t *testing.T) {
	w, server := newWorld(t)
	w.readyNode("n1")
	w.readyNode("n2")
	w.readyNode("leaves")

	w.pool("off", "10.40.0.0/24")
	gone := w.podObject("default", "gone-0", "n1")
	gone.UID = "11111111-0000-4000-8000-000000000000"
	w.bound("off", "10.40.0.2", gone)
	w.retained("off", "10.40.0.3", "nobodys", 0)
	running := w.runningPod("running-0", "n1")
	w.bound("off", "10.40.0.4", running)
	leaving := w.runningPod("leaving-0", "leaves")
	w.bound("off", "10.40.0.5", leaving)
	set := w.statefulSet("web", 1)
	w.retained("off", "10.40.0.6", "web", 0)
	set2 := w.bound("off", "10.40.0.7", gone)
	change(w, set2, func(l *v1alpha1.IPLease) {
		l.Spec.State, l.Spec.Reason, l.Spec.NodeName = v1alpha1.StateQuarantined, v1alpha1.ReasonPodGone, "nobody"
		l.Spec.Previous = &v1alpha1.PreviousHolder{Node: "n1"}
	})

	off := policy()
	off.Enabled = false
	stop := w.runController(server.Admin(), off, clock.RealClock{})
	w.waitMessage("10.40.0.2", "", "due, but reclaim is switched off: pod default/gone-0 does not exist")
	w.waitMessage("10.40.0.3", "", "due, but reclaim is switched off: StatefulSet default/nobodys does not exist")
	w.waitEvent("default", "ReclaimOff", "10.40.0.2", "PodGone")
	w.waitEvent("default", "ReclaimOff", "10.40.0.3", "RetentionEnded")
	w.waitEvent("default", "ReclaimOff", "off", "reclaim is switched off")
	w.waitMetric("fenceline_reclaim_enabled", func(v float64) bool { return v == 0 })
	w.waitMetric("fenceline_reclaims_withheld_total reason=PodGone", func(v float64) bool { return v == 1 })
	w.eventually("a verifier of what is Quarantined already", func() error {
		if node := w.lease("10.40.0.7").Spec.NodeName; node == "nobody" {
			return fmt.Errorf("it is %s", node)
		}
		return nil
	})
	l := w.lease("10.40.0.2")
	check.That(t, l.Spec.State == v1alpha1.StateBound, "with reclaim switched off, the lease is %s", l.Spec.State)
	stop()

	w.remove(running, client.GracePeriodSeconds(0))
	w.remove(leaving, client.GracePeriodSeconds(0))
	check.OK(t, w.client.Delete(w.ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "leaves"}}))
	change(w, set, func(s *appsv1.StatefulSet) { s.Spec.Replicas = ptr.To[int32](0) })

	w.runController(server.Admin(), policy(), clock.RealClock{})
	w.waitQuarantined("10.40.0.2", v1alpha1.ReasonPodGone)
	w.waitGone("10.40.0.3")
	w.waitQuarantined("10.40.0.4", v1alpha1.ReasonPodGone)
	w.waitQuarantined("10.40.0.5", v1alpha1.ReasonNodeGone)
	w.waitGone("10.40.0.6")
	w.waitMetric("fenceline_reclaim_enabled", func(v float64) bool { return v == 1 })
}

// skewed is a machine's clock that is off.
type skewed struct {
	clock.WithTicker
	by time.Duration
}

func (s skewed) Now() time.Time                  { return s.WithTicker.Now().Add(s.by) }
func (s skewed) Since(t time.Time) time.Duration { return s.Now().Sub(t) }

func TestAControllerWhoseClockIsAnHourAhead(t *testing.T) {
	w, server := newWorld(t)
	w.readyNode("n1")
	w.pool("clock", "10.44.0.0/24")
	w.runController(server.Admin(), policy(), skewed{clock.RealClock{}, time.Hour})
	pod := w.podObject("default", "clock-0", "n1")
	pod.Spec.TerminationGracePeriodSeconds = ptr.To[int64](3)
	w.create(pod)
	w.bound("clock", "10.44.0.2", pod)
	w.remove(pod)
	check.OK(t, w.client.Get(w.ctx, client.ObjectKeyFromObject(pod), pod))
	due := pod.DeletionTimestamp.Add(extraGrace)
	w.waitQuarantined("10.44.0.2", v1alpha1.ReasonPodTerminating)
	early := time.Until(due)
	check.That(t, early <= time.Second, "the address was taken %s too early", early)
	t.Logf("the address was taken %s after it was due", -early.Round(time.Millisecond))
}
