// SPDX-License-Identifier: Apache-2.0

//go:build api

package main

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/internal/poolset"
	"github.com/fenceline/fenceline/test/check"
)

// waitStatus waits until the pool's status is right.
func (w world) waitStatus(pool, what string, right func(v1alpha1.IPPoolStatus) bool) {
	w.Helper()
	w.eventually(fmt.Sprintf("pool %s: %s", pool, what), func() error {
		p := &v1alpha1.IPPool{}
		if err := w.client.Get(w.ctx, types.NamespacedName{Name: pool}, p); err != nil {
			return err
		}
		return unless(right(p.Status), "status is %+v", p.Status)
	})
}

// waitBound waits until the controller has seen n Bound leases of the pool.
func (w world) waitBound(pool string, n int64) {
	w.Helper()
	w.waitStatus(pool, fmt.Sprintf("%d Bound leases", n), func(s v1alpha1.IPPoolStatus) bool { return s.Bound == n })
}

// marks returns the offsets that the bitmap marks.
func marks(inUse string) []uint64 {
	bitmap, err := poolset.DecodeBitmap(inUse)
	if err != nil {
		return nil
	}
	var marked []uint64
	for i := range uint64(len(bitmap) * 8) {
		if bitmap.Has(i) {
			marked = append(marked, i)
		}
	}
	return marked
}

func is(condition, statusAndReason string) func(v1alpha1.IPPoolStatus) bool {
	return func(s v1alpha1.IPPoolStatus) bool {
		c := meta.FindStatusCondition(s.Conditions, condition)
		return c != nil && fmt.Sprintf("%s/%s", c.Status, c.Reason) == statusAndReason
	}
}

// says wants a condition to be "status/reason" with all the words.
func says(condition, statusAndReason string, words ...string) func(v1alpha1.IPPoolStatus) bool {
	return func(s v1alpha1.IPPoolStatus) bool {
		c := meta.FindStatusCondition(s.Conditions, condition)
		return is(condition, statusAndReason)(s) &&
			!slices.ContainsFunc(words, func(word string) bool { return !strings.Contains(c.Message, word) })
	}
}

func published(w world) {
	pool := w.pool("published", "10.20.0.0/24")
	cooldown := func(d time.Duration) {
		change(w, pool, func(p *v1alpha1.IPPool) { p.Spec.Reclaim.Cooldown = &v1alpha1.Duration{Duration: d} })
	}
	cooldown(time.Hour)
	w.waitStatus("published", "254 free addresses", func(s v1alpha1.IPPoolStatus) bool {
		return s.Total == 254 && s.Used == 0 && s.InUse == "" && s.Agents >= 2 && is("Ready", "True/Ready")(s)
	})
	w.bound("published", "10.20.0.2", w.runningPod("published-0", "n1"))
	freed := w.bound("published", "10.20.0.9", w.runningPod("published-1", "n2"))
	w.waitStatus("published", "two leases", func(s v1alpha1.IPPoolStatus) bool {
		return s.Used == 2 && s.Bound == 2 && slices.Equal(marks(s.InUse), []uint64{2, 9})
	})
	w.waitMetric("fenceline_pool_leases pool=published state=Bound", func(v float64) bool { return v == 2 })
	w.waitMetric("fenceline_pool_addresses pool=published subnet=", func(v float64) bool { return v == 254 })

	deleted := time.Now()
	check.OK(w, w.client.Delete(w.ctx, freed))
	w.waitStatus("published", "one lease, the other address cools down", func(s v1alpha1.IPPoolStatus) bool {
		return s.Used == 1 && slices.Equal(marks(s.InUse), []uint64{2, 9})
	})
	lasts := time.Since(deleted).Round(time.Second) + 3*time.Second
	cooldown(lasts)
	w.waitStatus("published", "the other address has cooled down", func(s v1alpha1.IPPoolStatus) bool {
		return s.Used == 1 && slices.Equal(marks(s.InUse), []uint64{2})
	})
	waited := time.Since(deleted)
	check.That(w, waited >= lasts, "cooled down after %s, the pool's cooldown is %s", waited, lasts)
}

func invalidPool(w world) {
	w.create(&v1alpha1.IPPool{ObjectMeta: metav1.ObjectMeta{Name: "reversed"}, Spec: v1alpha1.IPPoolSpec{
		Subnet: "fd00:21::/64", IPs: []string{"fd00:21::20-fd00:21::10"},
	}})
	w.waitStatus("reversed", "not ready", is("Ready", "False/Invalid"))
	w.waitEvent("default", "ReadyFalse", "reversed", "spec.ips[0]")
}

// otherDurations: who writes a pool writes its durations anew, as Go has them.
func otherDurations(w world) {
	pool := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{
		"subnet": "10.29.0.0/24", "reclaim": map[string]any{"extraGrace": "0.1ms"}, "retention": map[string]any{"max": "12345.678912h"},
	}}}
	pool.SetGroupVersionKind(v1alpha1.GroupVersion().WithKind("IPPool"))
	pool.SetName("durations")
	w.create(pool)
	w.waitStatus("durations", "ready", is("Ready", "True/Ready"))
}

func indexes(w world) {
	w.eventually("distinct indexes", func() error {
		var pods corev1.PodList
		if err := w.client.List(w.ctx, &pods, client.InNamespace(system)); err != nil {
			return err
		}
		var seen []string
		for _, p := range pods.Items {
			i, ok := p.Annotations[v1alpha1.AnnotationAgentIndex]
			if !ok || slices.Contains(seen, i) {
				return fmt.Errorf("agent %s has index %q, others %s", p.Name, i, strings.Join(seen, ", "))
			}
			if len(p.Spec.Containers) != 1 {
				return fmt.Errorf("agent %s lost its containers", p.Name)
			}
			seen = append(seen, i)
		}
		return nil
	})
}

func claimKey(w world) {
	w.eventually("claim key", func() error {
		var secret corev1.Secret
		if err := w.client.Get(w.ctx, types.NamespacedName{Namespace: system, Name: "fenceline-claim-key"}, &secret); err != nil {
			return err
		}
		n := len(secret.Data["current"])
		return unless(n == 16, "it has %d bytes", n)
	})
}

// addresses returns n addresses from the one given on.
func addresses(first string, n int) []string {
	a := netip.MustParseAddr(first)
	all := make([]string, n)
	for i := range all {
		all[i] = a.String()
		a = a.Next()
	}
	return all
}

// scarceOnOneNode: the labels of nodes decide how many agents keep Warm leases.
func scarceOnOneNode(w world) {
	w.create(&v1alpha1.IPPool{ObjectMeta: metav1.ObjectMeta{Name: "rack"}, Spec: v1alpha1.IPPoolSpec{
		Subnet: "10.49.0.0/30", Warm: ptr.To[int64](2),
		NodeAffinity: &metav1.LabelSelector{MatchLabels: map[string]string{"rack": "a"}},
	}})
	label := func(node, rack string) {
		change(w, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}}, func(n *corev1.Node) { n.Labels = map[string]string{"rack": rack} })
	}
	label("n1", "a")
	// More than once, for the first change may be seen while the pool is looked at anyway.
	for range 3 {
		label("n2", "b")
		w.waitStatus("rack", "for one node nothing is scarce", func(s v1alpha1.IPPoolStatus) bool { return s.Total == 2 && s.Agents == 2 && !s.Scarce })
		label("n2", "a")
		w.waitStatus("rack", "for two nodes it is", func(s v1alpha1.IPPoolStatus) bool { return s.Scarce })
	}
}

// editPools edits pools, and returns once the leader has seen the edits. endUnseen ends leases while there
// is no leader, and verify wants the successor to tell of the pools as they are then.
func (w world) editPools() (endUnseen, verify func()) {
	w.Helper()
	pool, leaving := w.pool("edited", "10.50.0.0/24"), w.pool("leaving", "10.51.0.0/24")
	change(w, pool, func(p *v1alpha1.IPPool) { p.Spec.Reclaim.Cooldown = &v1alpha1.Duration{Duration: time.Hour} })
	pod := w.runningPod("pod-0", "n1")
	stays, ends, last := w.bound("edited", "10.50.0.9", pod), w.bound("edited", "10.50.0.10", pod), w.bound("leaving", "10.51.0.9", pod)
	cooled := w.bound("edited", "10.50.0.20", pod)
	w.reserve("routers", "10.50.0.10")
	change(w, pool, func(p *v1alpha1.IPPool) { p.Spec.ExcludeIPs = []string{"10.50.0.9"} })
	// Only then does it have the finalizer that keeps it.
	w.waitStatus("leaving", "is served", is("Ready", "True/Ready"))
	w.remove(leaving)
	w.waitStatus("edited", "names both leases outside", says("Outside", "True/AddressInUse", "10.50.0.9 ", "10.50.0.10 "))
	w.waitReservation("routers", "InUse", "True/AddressInUse", 1)
	w.waitStatus("leaving", "waits", is("Ready", "False/Deleting"))
	w.remove(cooled)
	w.waitStatus("edited", "an address cools down", func(s v1alpha1.IPPoolStatus) bool {
		return s.Used == 2 && slices.Equal(marks(s.InUse), []uint64{9, 10, 20})
	})
	return func() {
			w.remove(ends)
			w.remove(last)
		}, func() {
			w.waitStatus("edited", "names the lease that stays, has forgotten what cools down", func(s v1alpha1.IPPoolStatus) bool {
				c := meta.FindStatusCondition(s.Conditions, "Outside")
				return says("Outside", "True/AddressInUse", "10.50.0.9 ")(s) && !strings.Contains(c.Message, "10.50.0.10 ") &&
					s.Used == 1 && s.Reserved == 1 && slices.Equal(marks(s.InUse), []uint64{9})
			})
			w.waitReservation("routers", "InUse", "False/None", 0)
			w.waitEnded(leaving) // nobody saw its last lease end
			l := w.lease(stays.Name)
			check.That(w, l != nil && l.UID == stays.UID && l.Spec.State == v1alpha1.StateBound, "the lease outside is %+v", l)
		}
}

func deletion(w world) {
	pool := w.pool("leaving", "10.45.0.0/28")
	l := w.bound("leaving", "10.45.0.9", w.runningPod("leaving-0", "n1"))
	kept := w.retained("leaving", "10.45.0.10", "leaving", 0, forever)
	w.waitStatus("leaving", "two leases", func(s v1alpha1.IPPoolStatus) bool { return s.Used == 2 })
	w.remove(pool)
	w.waitStatus("leaving", "says what it waits for", says("Ready", "False/Deleting", "1 Bound, 1 Retained"))
	w.remove(l)
	w.waitStatus("leaving", "waits for the Retained one", says("Ready", "False/Deleting", "gone: 1 Retained"))
	w.remove(kept)
	w.waitEnded(pool)
}
