// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"context"
	"fmt"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/internal/demand"
	"github.com/fenceline/fenceline/internal/poolset"
)

// application is an application whose template names the IPSubnet.
type application struct {
	client.Object
	// pods is the wanted number of pods of the application, addresses the size of its pool.
	pods, addresses int
}

// subnets are applications by kind, with pools of one IPSubnet. All have the same name.
type subnets struct {
	*act
	applications map[string]application
	// pools has the addresses of each pool by its name.
	pools map[string][]string
}

// playSubnets: each application gets a pool of its own. One address more than replicas is enough for a
// rollout that starts the new pod first. The pool ends with the application.
func playSubnets(ctx context.Context, a *act) {
	s := &subnets{a, nil, map[string][]string{}}
	s.makeNamespace(ctx)
	s.after("remove IPSubnet "+s.namespace, s.removeSubnet)
	subnet := &v1alpha1.IPSubnet{
		ObjectMeta: metav1.ObjectMeta{Name: s.namespace},
		Spec:       v1alpha1.IPSubnetSpec{Subnet: underlay.String(), IPs: s.ips(firstHost, 20)},
	}
	did(s.api.Create(ctx, subnet), "make IPSubnet %s", s.namespace)
	running := s.record()
	s.begin(ctx)
	s.replacePods(ctx)
	s.endJob(ctx)
	s.end(ctx)
	check(takeTurns(running.Frames(), s.addresses()))
}

func (s *subnets) begin(ctx context.Context) {
	meta := metav1.ObjectMeta{Namespace: s.namespace, Name: workload}
	of := func(kind, number string) (*metav1.LabelSelector, corev1.PodTemplateSpec) {
		template := s.template(map[string]string{"app": kind})
		template.Annotations = map[string]string{
			v1alpha1.AnnotationPrefix + demand.Subnet: fmt.Sprintf(`{"ipv4":[%q]}`, s.namespace),
			v1alpha1.AnnotationPrefix + demand.Number: number,
		}
		return &metav1.LabelSelector{MatchLabels: template.Labels}, template
	}
	deployment, daemonSet, job := &appsv1.Deployment{ObjectMeta: meta}, &appsv1.DaemonSet{ObjectMeta: meta}, &batchv1.Job{ObjectMeta: meta}
	deployment.Spec.Selector, deployment.Spec.Template = of("Deployment", "+1")
	deployment.Spec.Replicas = ptr.To[int32](2)
	deployment.Spec.Strategy.RollingUpdate = &appsv1.RollingUpdateDeployment{
		MaxSurge: ptr.To(intstr.FromInt32(1)), MaxUnavailable: ptr.To(intstr.FromInt32(0)),
	}
	daemonSet.Spec.Selector, daemonSet.Spec.Template = of("DaemonSet", "+1")
	_, job.Spec.Template = of("Job", "+0")
	job.Spec.Template.Spec.RestartPolicy, job.Spec.Parallelism = corev1.RestartPolicyNever, ptr.To[int32](2)
	nodes := len(s.Nodes())
	s.applications = map[string]application{"Deployment": {deployment, 2, 3}, "DaemonSet": {daemonSet, nodes, nodes + 1}, "Job": {job, 2, 2}}
	for kind, app := range s.applications {
		did(s.api.Create(ctx, app.Object), "make a %s", kind)
	}
	s.areServed(ctx, "pods in pools of their own", nil)
	s.story.Say("A Deployment, a DaemonSet and a Job name one IPSubnet. Each has a pool of its own.")
	s.show(ctx, "get", "flpool", "--output=wide")
}

// replacePods replaces all pods of the Deployment by ones that start first.
func (s *subnets) replacePods(ctx context.Context) {
	deployment := s.applications["Deployment"]
	s.rollOut(ctx, deployment.Object, 1)
	s.areServed(ctx, "the rollout", func(ctx context.Context) { s.rolledOut(ctx, client.ObjectKeyFromObject(deployment)) })
}

// endJob: the pool of a Job ends with the Job, although the object stays.
func (s *subnets) endJob(ctx context.Context) {
	job := s.applications["Job"].Object
	s.patch(ctx, job, `{"spec":{"activeDeadlineSeconds":1}}`)
	delete(s.applications, "Job")
	s.areServed(ctx, "the end of the Job's pool", func(ctx context.Context) { check(s.api.Get(ctx, client.ObjectKeyFromObject(job), job)) })
}

// end: the pools end with the applications, and leave no lease.
func (s *subnets) end(ctx context.Context) {
	for kind, app := range s.applications {
		did(s.api.Delete(ctx, app.Object, client.PropagationPolicy(metav1.DeletePropagationBackground)), "delete the %s", kind)
	}
	clear(s.applications)
	s.areServed(ctx, "the end of all pools", nil)
	s.story.Say("The rollout needed one address more than pods. The pools ended with their applications.")
	for pool := range s.pools {
		s.hasNoLease(ctx, pool, eventLimit)
	}
	s.removeSubnet(ctx)
}

// areServed waits until each application has its pods and one pool for them, there is no other pool,
// and also succeeds.
func (s *subnets) areServed(ctx context.Context, what string, also func(context.Context)) {
	eventually(ctx, podLimit, what, func(ctx context.Context) {
		pools := &v1alpha1.IPPoolList{}
		did(s.api.List(ctx, pools), "list the pools")
		pods := s.pods(ctx)
		served := 0
		for i := range pools.Items {
			pool := &pools.Items[i]
			if pool.Spec.IPSubnet != s.namespace {
				continue
			}
			served++
			s.serves(ctx, pool, pods)
		}
		must(served == len(s.applications), "%d applications have %d pools", len(s.applications), served)
		if also != nil {
			also(ctx)
		}
	})
}

// serves fails unless the pool belongs to an application, has the addresses that it had first, and
// serves the application's pods.
func (s *subnets) serves(ctx context.Context, pool *v1alpha1.IPPool, pods []corev1.Pod) {
	kind := pool.Spec.Application.Kind
	leases := s.leases(ctx, pool.Name)
	app, wanted := s.applications[kind]
	must(wanted, "pool %s of the %s still exists, with leases %s", pool.Name, kind, brief(leases))
	offered, err := poolset.Addresses(pool)
	if err != nil || int(offered.Len()) != app.addresses {
		fail("the pool of the %s gives out %v, not %d addresses (%w)", kind, offered.Entries(), app.addresses, err)
	}
	if was, ok := s.pools[pool.Name]; ok && !slices.Equal(was, pool.Spec.IPs) {
		fail("the pool of the %s has %v, and had %v", kind, pool.Spec.IPs, was)
	}
	s.pools[pool.Name] = pool.Spec.IPs
	own := slices.DeleteFunc(slices.Clone(pods), func(p corev1.Pod) bool { return p.Labels["app"] != kind })
	must(len(own) == app.pods, "the %s has the pods %s, not %d", kind, names(own), app.pods)
	did(equal(leases, own), "the %s", kind)
}

// removeSubnet removes the namespace, with which the pools end, and the IPSubnet.
func (s *subnets) removeSubnet(ctx context.Context) {
	s.removeNamespace(ctx)
	subnet := &v1alpha1.IPSubnet{ObjectMeta: metav1.ObjectMeta{Name: s.namespace}}
	check(client.IgnoreNotFound(s.api.Delete(ctx, subnet)))
	eventually(ctx, cleanupLimit, "the end of IPSubnet "+s.namespace, func(ctx context.Context) { s.isGone(ctx, subnet, "pools") })
}
