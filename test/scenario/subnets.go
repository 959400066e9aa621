// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fenceline/fenceline/apis/demand"
	"github.com/fenceline/fenceline/apis/v1alpha1"
)

const (
	// subnetSize is the number of addresses of the IPSubnet.
	subnetSize = 20
	// fewReplicas and manyReplicas are the sizes of the Deployment. Its first pool is too small for the
	// larger one.
	fewReplicas, manyReplicas = 2, 4
)

// application is an application whose template names the IPSubnet.
type application struct {
	client.Object
	// pods is the number of pods that the application shall have, addresses that of its pool.
	pods, addresses int
}

// subnets are applications with pools of one IPSubnet. All have the same name.
type subnets struct {
	*act
	// applications has the applications by kind.
	applications map[string]*application
}

// playSubnets: each application gets a pool of its own, whose size follows the replicas, and which ends
// with the application.
func playSubnets(ctx context.Context, a *act) error {
	s := &subnets{act: a}
	if err := s.makeSubnet(ctx); err != nil {
		return err
	}
	running, err := s.Capture()
	if err != nil {
		return err
	}
	s.after("end the capture", func(context.Context) error { _, err := running.Stop(); return err })
	for _, step := range []func(context.Context) error{s.begin, s.scaleOut, s.scaleIn, s.rollOut, s.endJob, s.end} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	return takeTurns(running.Frames(), s.addresses())
}

// makeSubnet makes the namespace, and the IPSubnet with the same name.
func (s *subnets) makeSubnet(ctx context.Context) error {
	if err := s.makeNamespace(ctx, nil); err != nil {
		return err
	}
	s.after("remove IPSubnet "+s.namespace, s.removeSubnet)
	subnet := &v1alpha1.IPSubnet{
		ObjectMeta: metav1.ObjectMeta{Name: s.namespace},
		Spec:       v1alpha1.IPSubnetSpec{Subnet: underlay.String(), IPs: s.ips(firstHost, subnetSize)},
	}
	if err := s.api.Create(ctx, subnet); err != nil {
		return fmt.Errorf("make IPSubnet %s: %w", s.namespace, err)
	}
	return nil
}

// begin makes the applications.
func (s *subnets) begin(ctx context.Context) error {
	meta := metav1.ObjectMeta{Namespace: s.namespace, Name: workload}
	of := func(kind, number string) (*metav1.LabelSelector, corev1.PodTemplateSpec) {
		labels := map[string]string{"app": kind}
		template := s.template(labels)
		template.Annotations = map[string]string{
			v1alpha1.AnnotationPrefix + demand.Subnet: fmt.Sprintf(`{"ipv4":[%q]}`, s.namespace),
			v1alpha1.AnnotationPrefix + demand.Number: number,
		}
		return &metav1.LabelSelector{MatchLabels: labels}, template
	}
	deployment, set, daemonSet, job := &appsv1.DeploymentSpec{}, &appsv1.StatefulSetSpec{}, &appsv1.DaemonSetSpec{}, &batchv1.JobSpec{}
	deployment.Selector, deployment.Template = of("Deployment", "+1")
	deployment.Replicas = ptr.To[int32](fewReplicas)
	deployment.Strategy.RollingUpdate = &appsv1.RollingUpdateDeployment{
		MaxSurge: ptr.To(intstr.FromInt32(1)), MaxUnavailable: ptr.To(intstr.FromInt32(0)),
	}
	set.Selector, set.Template = of("StatefulSet", "2")
	set.Replicas = ptr.To[int32](2)
	daemonSet.Selector, daemonSet.Template = of("DaemonSet", "+1")
	_, job.Template = of("Job", "+0")
	job.Template.Spec.RestartPolicy = corev1.RestartPolicyNever
	job.Parallelism = ptr.To[int32](2)
	nodes := len(s.Nodes())
	s.applications = map[string]*application{
		"Deployment":  {&appsv1.Deployment{ObjectMeta: meta, Spec: *deployment}, fewReplicas, fewReplicas + 1},
		"StatefulSet": {&appsv1.StatefulSet{ObjectMeta: meta, Spec: *set}, 2, 2},
		"DaemonSet":   {&appsv1.DaemonSet{ObjectMeta: meta, Spec: *daemonSet}, nodes, nodes + 1},
		"Job":         {&batchv1.Job{ObjectMeta: meta, Spec: *job}, 2, 2},
	}
	began := time.Now()
	for kind, app := range s.applications {
		if err := s.api.Create(ctx, app.Object); err != nil {
			return fmt.Errorf("make a %s: %w", kind, err)
		}
	}
	if err := s.areServed(ctx, "pods in pools of their own", nil); err != nil {
		return err
	}
	s.figures.add("pods of 4 applications Running, from their creation", time.Since(began))
	s.story.Say("A Deployment, a StatefulSet, a DaemonSet and a Job name one IPSubnet. Each has a pool of its own.")
	if err := s.show(ctx, "get", "flsubnet", s.namespace); err != nil {
		return err
	}
	return s.show(ctx, "get", "flpool", "--output=wide")
}

// scaleOut: the pool of the Deployment grows with it.
func (s *subnets) scaleOut(ctx context.Context) error {
	return s.scaleTo(ctx, manyReplicas)
}

// scaleIn: the pool of the Deployment withdraws addresses, as the pods that have them end.
func (s *subnets) scaleIn(ctx context.Context) error {
	return s.scaleTo(ctx, fewReplicas)
}

func (s *subnets) scaleTo(ctx context.Context, replicas int) error {
	deployment := s.applications["Deployment"]
	was := deployment.pods
	deployment.pods, deployment.addresses = replicas, replicas+1
	began := time.Now()
	if err := s.scale(ctx, replicas); err != nil {
		return err
	}
	if err := s.areServed(ctx, fmt.Sprintf("a pool for %d pods", replicas), nil); err != nil {
		return err
	}
	s.figures.add(fmt.Sprintf("Deployment from %d to %d pods, with its pool", was, replicas), time.Since(began))
	s.story.Say("The Deployment has %d pods instead of %d. Its pool gives out %d addresses, and no pool of another application has changed.",
		replicas, was, deployment.addresses)
	return nil
}

// rollOut replaces all pods of the Deployment by ones that start first: the address that the pool has
// more than there are replicas is enough.
func (s *subnets) rollOut(ctx context.Context) error {
	before, err := s.holdings(ctx)
	if err != nil {
		return err
	}
	deployment := s.applications["Deployment"]
	began := time.Now()
	change := client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"template":{"metadata":{"annotations":{"roll":"1"}}}}}`))
	if err := s.api.Patch(ctx, deployment.Object, change); err != nil {
		return fmt.Errorf("update the Deployment: %w", err)
	}
	isOut := func(ctx context.Context, held map[string]holding) error {
		if more := held["Deployment"].all.Minus(before["Deployment"].all); more.Len() > 0 {
			return fmt.Errorf("the pool of the Deployment has %v more than before", more.Entries())
		}
		return s.rolledOut(ctx, client.ObjectKeyFromObject(deployment))
	}
	if err := s.areServed(ctx, "the rollout", isOut); err != nil {
		return err
	}
	s.figures.add(fmt.Sprintf("rollout of %d pods on %d addresses", deployment.pods, deployment.addresses), time.Since(began))
	s.story.Say("All pods of the Deployment were replaced, each by a pod that started first.")
	return nil
}

// endJob: the pool of a Job ends with the Job, although the object stays.
func (s *subnets) endJob(ctx context.Context) error {
	job := s.applications["Job"].Object
	if err := s.api.Patch(ctx, job, client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"activeDeadlineSeconds":1}}`))); err != nil {
		return fmt.Errorf("give the Job a deadline: %w", err)
	}
	delete(s.applications, "Job")
	if err := s.areServed(ctx, "the end of the Job's pool", nil); err != nil {
		return err
	}
	s.story.Say("The Job has passed its deadline. Its pool has ended, although its object exists.")
	return s.deleteAll(ctx, job)
}

// end: the pools end with the applications, and the IPSubnet has all its addresses again.
func (s *subnets) end(ctx context.Context) error {
	held, err := s.holdings(ctx)
	if err != nil {
		return err
	}
	var all []client.Object
	for _, app := range s.applications {
		all = append(all, app.Object)
	}
	began := time.Now()
	if err := s.deleteAll(ctx, all...); err != nil {
		return err
	}
	clear(s.applications)
	if err := s.areServed(ctx, "the end of all pools", nil); err != nil {
		return err
	}
	s.figures.add("end of 3 pools, from the deletion of their applications", time.Since(began))
	for _, h := range held {
		leases, err := s.leases(ctx, h.name)
		if err != nil {
			return err
		}
		if len(leases) > 0 {
			return fmt.Errorf("pool %s has ended, and leases are left: %s", h.name, brief(leases))
		}
	}
	s.story.Say("All applications are deleted. The pools have ended, and all %d addresses are free.", subnetSize)
	return s.removeSubnet(ctx)
}

func (s *subnets) deleteAll(ctx context.Context, objects ...client.Object) error {
	for _, o := range objects {
		if err := s.api.Delete(ctx, o, client.PropagationPolicy(metav1.DeletePropagationBackground)); err != nil {
			return fmt.Errorf("delete %T %s: %w", o, o.GetName(), err)
		}
	}
	return nil
}

// areServed waits until each application has its pods and a pool of its own for them, no other pool is
// there, and the IPSubnet counts right. It judges the rules of all pools at each look. also is one more
// condition, or nil.
func (s *subnets) areServed(ctx context.Context, what string, also func(context.Context, map[string]holding) error) error {
	var broken error
	err := eventually(ctx, podLimit, what, func(ctx context.Context) error {
		held, err := s.holdings(ctx)
		if err != nil {
			return err
		}
		broken = keepApart(held)
		if broken == nil {
			err = s.fits(ctx, held)
		}
		if err != nil || broken != nil || also == nil {
			return err
		}
		return also(ctx, held)
	})
	return errors.Join(err, broken)
}

// fits returns an error unless the pools are those of the applications, with their pods.
func (s *subnets) fits(ctx context.Context, held map[string]holding) error {
	pods, err := s.pods(ctx)
	if err != nil {
		return err
	}
	allocated := uint64(0)
	for kind, h := range held {
		app := s.applications[kind]
		if app == nil {
			return fmt.Errorf("pool %s of the %s still exists, with leases %s", h.name, kind, brief(h.leases))
		}
		if int(h.offered.Len()) != app.addresses {
			return fmt.Errorf("the pool of the %s gives out %v, not %d addresses", kind, h.offered.Entries(), app.addresses)
		}
		own := slices.DeleteFunc(slices.Clone(pods), func(p corev1.Pod) bool { return p.Labels["app"] != kind })
		if len(own) != app.pods {
			return fmt.Errorf("the %s has the pods %s, not %d", kind, names(own), app.pods)
		}
		if err := equal(h.leases, own); err != nil {
			return fmt.Errorf("the %s: %w", kind, err)
		}
		allocated += h.all.Len()
	}
	if len(held) < len(s.applications) {
		return fmt.Errorf("only %v have pools", slices.Sorted(maps.Keys(held)))
	}
	subnet := &v1alpha1.IPSubnet{}
	if err := s.api.Get(ctx, client.ObjectKey{Name: s.namespace}, subnet); err != nil {
		return err
	}
	t := subnet.Status
	if t.Total != subnetSize || t.Allocated != int64(allocated) || t.Free != t.Total-t.Allocated || t.PoolCount != int64(len(held)) || len(t.Unserved) > 0 {
		return fmt.Errorf("%d pools have %d addresses, and the IPSubnet counts %+v", len(held), allocated, t)
	}
	return nil
}

// removeSubnet removes the namespace, the pools and the IPSubnet.
func (s *subnets) removeSubnet(ctx context.Context) error {
	if err := s.removeNamespace(ctx); err != nil {
		return err
	}
	held, err := s.holdings(ctx)
	if err != nil {
		return err
	}
	for _, h := range held {
		if err := s.removePool(ctx, h.name); err != nil {
			return err
		}
	}
	subnet := &v1alpha1.IPSubnet{ObjectMeta: metav1.ObjectMeta{Name: s.namespace}}
	if err := client.IgnoreNotFound(s.api.Delete(ctx, subnet)); err != nil {
		return err
	}
	return eventually(ctx, cleanupLimit, "the end of IPSubnet "+s.namespace, func(ctx context.Context) error {
		return s.isGone(ctx, subnet, "pools")
	})
}
