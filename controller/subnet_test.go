// SPDX-License-Identifier: Apache-2.0

//go:build api

package main

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/test/check"
)

// crowd is the number of applications that arrive at once.
const crowd = 100

// TestPoolsOfIPSubnets runs the rules of pools for applications in one cluster.
func TestPoolsOfIPSubnets(t *testing.T) {
	w, server := newWorld(t)
	w.readyNode("n1")
	count := &calls{n: map[string]int{}}
	config := rest.CopyConfig(server.Admin())
	config.Wrap(count.wrap)
	w.runController(config, policy(), clock.RealClock{})
	t.Run("100 applications at once", func(t *testing.T) { w.in(t).manyAtOnce(count) })
	for name, run := range map[string]func(world){
		"a Deployment is scaled, deleted and made again": scaledDeployment,
		"fixed, flexible and back":                       fixedAndFlexible,
		"an exhausted subnet":                            exhaustedSubnet,
		"reserved and excluded addresses":                reservedOfSubnet,
		"several interfaces and two families":            severalInterfaces,
		"kinds of applications":                          kindsOfApplications,
		"default subnets":                                defaultSubnets,
		"overlapping subnets and pools that people drew": overlappingSubnets,
	} {
		t.Run(name, func(t *testing.T) { run(w.in(t)) })
	}
	w.checkDisjoint()
}

func (w world) manyAtOnce(count *calls) {
	w.subnet("crowd", "10.80.0.0/20")
	count.mu.Lock()
	before := maps.Clone(count.n)
	count.mu.Unlock()
	for i := range crowd {
		w.deployment(fmt.Sprintf("crowd-%d", i), 3, "subnet", `{"ipv4":["crowd"]}`)
	}
	w.waitSubnet("crowd", func(s v1alpha1.IPSubnetStatus) error {
		return unless(s.PoolCount == crowd && s.Allocated == 4*crowd && len(s.Carving) == 0 && s.Free == s.Total-s.Allocated && len(s.Unserved) == 0,
			"%d pools with %d of %d addresses, %d free, %d are being made, unserved are %v",
			s.PoolCount, s.Allocated, s.Total, s.Free, len(s.Carving), s.Unserved)
	})
	check.Equal(w, w.checkDisjoint(), crowd, "pools:")
	count.mu.Lock()
	defer count.mu.Unlock()
	total := 0
	for what, n := range count.n {
		total += n - before[what]
	}
	// One create, and the status of the pool; the rest is shared. The bound has room for a slow machine.
	each := float64(total) / crowd
	check.That(w, each <= 12, "%.1f requests for each application: %v, before them %v", each, count.n, before)
}

func scaledDeployment(w world) {
	w.subnet("scaled", "10.81.0.0/24", func(s *v1alpha1.IPSubnetSpec) { s.Gateway = ptr.To("10.81.0.1") })
	d := w.deployment("web", 2, "subnet", `{"ipv4":["scaled"]}`)
	pool := w.waitPool("web", 3)
	s := pool.Spec
	check.That(w, *s.Gateway == "10.81.0.1" && s.Application.Kind == "Deployment" && slices.Equal(s.NamespaceName, []string{"default"}) &&
		ptr.Deref(s.Warm, 9) == 0, "the pool is %+v", s)
	w.waitEventOf(d, "PoolMade", pool.Name)
	pod := w.runningPod("web-a", "n1")
	lease := w.bound(pool.Name, "10.81.0.4", pod)
	change(w, d, func(d *appsv1.Deployment) { d.Spec.Replicas = ptr.To[int32](5) })
	check.Equal(w, w.waitPool("web", 6).Name, pool.Name, "%s became", pool.Name)
	// The address of the pod is the last one but not free.
	change(w, d, func(d *appsv1.Deployment) { d.Spec.Replicas = ptr.To[int32](0) })
	w.waitPool("web", 1)
	w.eventually("the end of the withdrawal", func() error {
		p := w.poolsOf("web")[0]
		return unless(slices.Equal(p.Spec.IPs, []string{"10.81.0.4"}) && len(p.Spec.ExcludeIPs) == 0,
			"the pool has %v without %v", p.Spec.IPs, p.Spec.ExcludeIPs)
	})
	// With its last lease, the pool of the deleted application ends.
	check.OK(w, w.client.Delete(w.ctx, d))
	w.barrierSubnet("scaled")
	check.That(w, len(w.poolsOf("web")) == 1, "the pool of a living pod is gone")
	check.OK(w, w.client.Delete(w.ctx, lease))
	w.waitNoPool("web")
	w.waitSubnet("scaled", func(s v1alpha1.IPSubnetStatus) error {
		return unless(s.PoolCount == 0 && s.Allocated == 0 && s.Free == s.Total && s.Total != 0, "it counts %+v", s)
	})
	w.deployment("web", 1, "subnet", `{"ipv4":["scaled"]}`)
	w.waitPool("web", 2)
}

// barrierSubnet returns after the controller has looked at all applications again.
func (w world) barrierSubnet(name string) {
	w.Helper()
	d := w.deployment("barrier-"+name, 1, "subnet", fmt.Sprintf(`{"ipv4":[%q]}`, name))
	w.waitPool(d.Name, 2)
	check.OK(w, w.client.Delete(w.ctx, d))
	w.waitNoPool(d.Name)
}

func fixedAndFlexible(w world) {
	w.subnet("sized", "10.83.0.0/24")
	d := w.deployment("sized", 2, "subnet", `{"ipv4":["sized"]}`, "ippool-ip-number", "5")
	w.waitPool("sized", 5)
	number := func(value string) func(*appsv1.Deployment) {
		return func(d *appsv1.Deployment) {
			d.Spec.Template.Annotations[v1alpha1.AnnotationPrefix+"ippool-ip-number"] = value
		}
	}
	change(w, d, number("+2"))
	w.waitPool("sized", 4)
	change(w, d, func(d *appsv1.Deployment) { d.Spec.Replicas = ptr.To[int32](3) })
	w.waitPool("sized", 5)
	change(w, d, number("+0"))
	w.waitPool("sized", 3)
	change(w, d, number("2"))
	w.waitPool("sized", 2)
	change(w, d, number("many"))
	w.waitEvent("default", "SubnetUnserved", "sized", "ippool-ip-number")
	w.waitPool("sized", 2)
}

func exhaustedSubnet(w world) {
	w.subnet("small", "10.84.0.0/24", func(s *v1alpha1.IPSubnetSpec) { s.IPs = []string{"10.84.0.10-10.84.0.15"} })
	first := w.deployment("first", 3, "subnet", `{"ipv4":["small"]}`)
	w.waitPool("first", 4)
	second := w.deployment("second", 3, "subnet", `{"ipv4":["small"]}`)
	w.waitEvent("default", "SubnetUnserved", "second", "4 addresses are wanted, and IPSubnet small has fewer left")
	w.waitUnserved("small", "second", "IPSubnet small has fewer left")
	w.waitMetric("fenceline_subnet_unserved_applications subnet=small", func(v float64) bool { return v == 1 })
	change(w, first, func(d *appsv1.Deployment) { d.Spec.Replicas = ptr.To[int32](1) })
	w.waitPool("second", 4)
	w.waitSubnet("small", func(s v1alpha1.IPSubnetStatus) error {
		c := meta.FindStatusCondition(s.Conditions, v1alpha1.ConditionExhausted)
		return unless(len(s.Unserved) == 0 && c != nil && c.Status == metav1.ConditionTrue, "it lists %v, and Exhausted is %v", s.Unserved, c)
	})
	// A pool that cannot grow keeps what it has.
	change(w, second, func(d *appsv1.Deployment) { d.Spec.Replicas = ptr.To[int32](9) })
	w.waitUnserved("small", "second", "10 addresses are wanted")
	w.waitEventOf(second, "SubnetUnserved", "10 addresses are wanted")
	w.waitPool("second", 4)
}

func reservedOfSubnet(w world) {
	w.subnet("holes", "10.85.0.0/24", func(s *v1alpha1.IPSubnetSpec) {
		s.IPs, s.ExcludeIPs, s.Gateway = []string{"10.85.0.1-10.85.0.9"}, []string{"10.85.0.2"}, ptr.To("10.85.0.1")
	})
	w.reserve("holes", "10.85.0.3")
	w.waitReservation("holes", "Ready", "True/Ready", 0) // before an application asks
	w.deployment("holes", 1, "subnet", `{"ipv4":["holes"]}`)
	pool := w.waitPool("holes", 2)
	check.List(w, pool.Spec.IPs, []string{"10.85.0.4-10.85.0.5"}, "the pool has")
	// A free address that becomes reserved is replaced.
	w.reserve("holes-later", "10.85.0.4")
	w.eventually("another address", func() error {
		pool := w.waitPool("holes", 2)
		return unless(slices.Equal(pool.Spec.IPs, []string{"10.85.0.5-10.85.0.6"}), "the pool has %v", pool.Spec.IPs)
	})
}

func severalInterfaces(w world) {
	w.subnet("four", "10.86.0.0/24")
	w.subnet("six", "fd00:86::/64")
	w.deployment("dual", 1, "subnets", `[{"interface":"eth0","ipv4":["four"],"ipv6":["six"]},{"interface":"net1","ipv4":["four"]}]`)
	w.eventually("three pools", func() error {
		got := map[string]int{}
		for _, p := range w.poolsOf("dual") {
			got[p.Spec.Application.Interface+" "+p.Spec.Subnet]++
		}
		return unless(maps.Equal(got, map[string]int{"eth0 10.86.0.0/24": 1, "eth0 fd00:86::/64": 1, "net1 10.86.0.0/24": 1}),
			"the pools are %v", got)
	})
}

func kindsOfApplications(w world) {
	w.subnet("kinds", "10.90.0.0/24")
	annotations := []string{"subnet", `{"ipv4":["kinds"]}`}
	selector := func(name string) *metav1.LabelSelector {
		return &metav1.LabelSelector{MatchLabels: map[string]string{"app": name}}
	}
	named := func(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Namespace: "default", Name: name} }

	w.create(&appsv1.StatefulSet{ObjectMeta: named("db"), Spec: appsv1.StatefulSetSpec{Replicas: ptr.To[int32](2), Selector: selector("db"), Template: template("db", annotations...)}})
	w.waitPool("db", 3)
	// Nobody has counted the pods of a DaemonSet at its creation, so it must not settle in a small IPSubnet.
	w.subnet("few", "10.94.0.0/30")
	daemons := &appsv1.DaemonSet{ObjectMeta: named("daemons"), Spec: appsv1.DaemonSetSpec{
		Selector: selector("daemons"), Template: template("daemons", "subnet", `{"ipv4":["few","kinds"]}`),
	}}
	w.create(daemons)
	w.barrierSubnet("kinds")
	daemons.Status.DesiredNumberScheduled, daemons.Status.ObservedGeneration = 3, 1
	check.OK(w, w.client.Status().Update(w.ctx, daemons))
	w.waitPool("daemons", 4)

	run := template("run", annotations...)
	run.Spec.RestartPolicy = corev1.RestartPolicyNever
	job := &batchv1.Job{ObjectMeta: named("run"), Spec: batchv1.JobSpec{Parallelism: ptr.To[int32](4), Completions: ptr.To[int32](2), Template: run}}
	w.create(job)
	w.waitPool("run", 3)
	suspend := func(o *batchv1.Job) { o.Spec.Suspend = ptr.To(!ptr.Deref(o.Spec.Suspend, false)) }
	change(w, job, suspend)
	w.waitNoPool("run")
	change(w, job, suspend)
	w.waitPool("run", 3)
	now := metav1.Now()
	job.Status.StartTime, job.Status.CompletionTime, job.Status.Succeeded = &now, &now, 2
	job.Status.Conditions = []batchv1.JobCondition{
		{Type: batchv1.JobSuccessCriteriaMet, Status: corev1.ConditionTrue, LastTransitionTime: now}, {Type: batchv1.JobComplete, Status: corev1.ConditionTrue, LastTransitionTime: now},
	}
	check.OK(w, w.client.Status().Update(w.ctx, job))
	w.waitNoPool("run")
	cron := &batchv1.CronJob{ObjectMeta: named("nightly"), Spec: batchv1.CronJobSpec{Schedule: "0 0 * * *", JobTemplate: batchv1.JobTemplateSpec{Spec: batchv1.JobSpec{Template: run}}}}
	w.create(cron)
	w.waitPool("nightly", 2)
	change(w, cron, func(c *batchv1.CronJob) { c.Spec.Suspend = ptr.To(true) })
	w.waitNoPool("nightly")
	// A Job that a person made from the CronJob is not in its status.
	for _, name := range []string{"by-hand", "by-plan"} {
		one := &batchv1.Job{ObjectMeta: named(name), Spec: batchv1.JobSpec{Template: run}}
		one.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(cron, batchv1.SchemeGroupVersion.WithKind("CronJob"))}
		w.create(one)
	}
	w.waitPool("nightly", 3)

	paused := w.deployment("paused", 0, annotations...)
	change(w, paused, func(d *appsv1.Deployment) { d.Spec.Replicas, d.Spec.Paused = ptr.To[int32](2), true })
	w.barrierSubnet("kinds")
	check.That(w, len(w.poolsOf("paused")) == 0, "a Deployment without a ReplicaSet has a pool")
	change(w, paused, func(d *appsv1.Deployment) { d.Spec.Paused = false })
	w.waitPool("paused", 3)

	// A ReplicaSet without a Deployment is known by its pods, and counted by its scale.
	set := &appsv1.ReplicaSet{ObjectMeta: named("alone"), Spec: appsv1.ReplicaSetSpec{Replicas: ptr.To[int32](3), Selector: selector("alone"), Template: template("alone", annotations...)}}
	w.create(set)
	pod := w.podObject("default", "alone-x", "n1")
	pod.Annotations = set.Spec.Template.Annotations
	pod.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(set, appsv1.SchemeGroupVersion.WithKind("ReplicaSet"))}
	w.create(pod)
	w.waitPool("alone", 4)

	// A pod without an owner needs a fixed number.
	bare := w.podObject("default", "bare", "n1")
	bare.Annotations = template("bare", annotations...).Annotations
	w.create(bare)
	w.waitUnserved("kinds", "bare", "give a fixed number in the annotation ippool-ip-number")
	fixed := w.podObject("default", "fixed", "n1")
	fixed.Annotations = template("fixed", append(annotations, "ippool-ip-number", "1")...).Annotations
	w.create(fixed)
	w.waitPool("fixed", 1)
	fixed.Status.Phase = corev1.PodSucceeded
	check.OK(w, w.client.Status().Update(w.ctx, fixed))
	w.waitNoPool("fixed")
}

func defaultSubnets(w world) {
	w.deployment("before", 1)
	w.deployment("named", 1, "ippool", `{"ipv4":["drawn"]}`)
	s := w.subnet("default", "10.91.0.0/24", func(s *v1alpha1.IPSubnetSpec) { s.Default = ptr.To(true) })
	w.waitPool("before", 2)
	// The IPSubnet of other namespaces neither serves nor refuses, until the labels of the namespace match.
	w.subnet("labelled", "10.95.0.0/24", func(s *v1alpha1.IPSubnetSpec) {
		s.NamespaceAffinity = &metav1.LabelSelector{MatchLabels: map[string]string{"tier": "gold"}}
	})
	w.deployment("gold", 1, "subnet", `{"ipv4":["labelled"]}`)
	w.waitUnserved("labelled", "gold", "does not match the labels of namespace default")
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "default"}}
	change(w, namespace, func(n *corev1.Namespace) { n.Labels["tier"] = "gold" })
	w.waitPool("gold", 2)
	w.deployment("other", 1, "subnet", `{"ipv4":["missing"]}`)
	w.barrierSubnet("default")
	for _, app := range []string{"named", "other"} {
		check.That(w, len(w.poolsOf(app)) == 0, "%s has a pool", app)
	}
	change(w, s, func(s *v1alpha1.IPSubnet) { s.Spec.NamespaceName = []string{"bank"} })
	w.waitNoPool("before")
}

func overlappingSubnets(w world) {
	w.pool("drawn", "10.92.0.0/29")
	older := w.subnet("older", "10.92.0.0/28")
	w.eventually("another second, by the API server's clock", func() error {
		probe := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "clock"}}
		err := w.client.Create(w.ctx, probe, client.DryRunAll)
		return unless(err == nil && probe.CreationTimestamp.After(older.CreationTimestamp.Time), "not yet: %v", err)
	})
	w.subnet("younger", "10.92.0.0/27")
	overlapping := func(total int64) func(v1alpha1.IPSubnetStatus) error {
		return func(s v1alpha1.IPSubnetStatus) error {
			return unless(meta.IsStatusConditionTrue(s.Conditions, v1alpha1.ConditionOverlapping) && s.Total == total, "total %d, %v", s.Total, s.Conditions)
		}
	}
	// Of 30 host addresses, the older one has 14. The younger one also has 10.92.0.15, which is no host there.
	w.waitSubnet("younger", overlapping(16))
	w.waitSubnet("older", overlapping(8))
}
