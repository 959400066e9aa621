// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"context"
	"fmt"
	"net/netip"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fenceline/fenceline/test/capture"
)

// jobPods is the number of pods of the Job: more than there are addresses.
const jobPods = 6

// shapes are workloads that use one pool, one after the other. It has an address for each node, and a
// spare one.
type shapes struct {
	*act
	size int
}

// playShapes: updates with maxSurge need the spare address again and again. A pod of a Job that has
// ended frees its address, although the pod object stays.
func playShapes(ctx context.Context, a *act) error {
	s := &shapes{act: a, size: len(a.Nodes())}
	check(s.makePool(ctx, s.size+1, nil))
	running := value(s.Capture())
	s.after("end the capture", func(context.Context) error { _, err := running.Stop(); return err })
	for _, step := range []func(context.Context) error{s.daemonSet, s.deployment, s.job} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	frames := running.Frames()
	check(takeTurns(frames, s.addresses()))
	speakers := 0
	for host := range s.size + 1 {
		speakers += len(capture.Speakers(frames, s.address(firstHost+host)))
	}
	if least := 5 * s.size; speakers < least {
		return fmt.Errorf("%d addresses had %d speakers, not %d: too little was shown", s.size+1, speakers, least)
	}
	s.story.Say("The %d addresses had %d speakers, one at a time.", s.size+1, speakers)
	return nil
}

// daemonSet: each node replaces its pod by one that starts first.
func (s *shapes) daemonSet(ctx context.Context) error {
	set := &appsv1.DaemonSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: "daemon"},
		Spec: appsv1.DaemonSetSpec{
			Selector: selector(), Template: s.template(selector().MatchLabels),
			UpdateStrategy: appsv1.DaemonSetUpdateStrategy{RollingUpdate: &appsv1.RollingUpdateDaemonSet{
				MaxSurge: ptr.To(intstr.FromInt32(1)), MaxUnavailable: ptr.To(intstr.FromInt32(0)),
			}},
		},
	}
	isOut := func(ctx context.Context) error {
		d := &appsv1.DaemonSet{}
		if err := s.api.Get(ctx, client.ObjectKeyFromObject(set), d); err != nil {
			return err
		}
		if t := d.Status; t.ObservedGeneration < d.Generation || int(t.UpdatedNumberScheduled) != s.size || int(t.NumberAvailable) != s.size {
			return fmt.Errorf("of %d pods %d are new and %d available", t.DesiredNumberScheduled, t.UpdatedNumberScheduled, t.NumberAvailable)
		}
		return nil
	}
	return s.updated(ctx, set, isOut)
}

// deployment: its update has one pod more at a time, and none less.
func (s *shapes) deployment(ctx context.Context) error {
	d := &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: workload},
		Spec: appsv1.DeploymentSpec{
			Replicas: ptr.To(int32(s.size)), Selector: selector(), Template: s.template(selector().MatchLabels),
			Strategy: appsv1.DeploymentStrategy{RollingUpdate: &appsv1.RollingUpdateDeployment{
				MaxSurge: ptr.To(intstr.FromInt32(1)), MaxUnavailable: ptr.To(intstr.FromInt32(0)),
			}},
		},
	}
	return s.updated(ctx, d, func(ctx context.Context) error { return s.rolledOut(ctx, client.ObjectKeyFromObject(d)) })
}

// updated makes a workload, replaces all its pods by a change of its template, and removes it.
func (s *shapes) updated(ctx context.Context, object client.Object, isOut func(context.Context) error) error {
	name := fmt.Sprintf("%T %s", object, object.GetName())
	if err := s.api.Create(ctx, object); err != nil {
		return fmt.Errorf("make %s: %w", name, err)
	}
	if err := eventually(ctx, podLimit, name+" to run", isOut); err != nil {
		return err
	}
	began := time.Now()
	change := client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"template":{"metadata":{"annotations":{"roll":"1"}}}}}`))
	if err := s.api.Patch(ctx, object, change); err != nil {
		return fmt.Errorf("update %s: %w", name, err)
	}
	if err := eventually(ctx, podLimit, "the update of "+name, isOut); err != nil {
		return err
	}
	took := time.Since(began)
	s.figures.add(fmt.Sprintf("update of %d pods of %T, one spare address", s.size, object), took)
	// Pods of the former template may be Terminating still.
	if err := eventually(ctx, podLimit, "leases that equal the pods of "+name, s.leasesEqualHolders); err != nil {
		return err
	}
	s.story.Say("All pods of %s were replaced in %s, each by a pod that started first: the pool has one spare address.", name, round(took))
	if err := s.api.Delete(ctx, object, client.PropagationPolicy(metav1.DeletePropagationForeground)); err != nil {
		return fmt.Errorf("remove %s: %w", name, err)
	}
	return s.allFree(ctx)
}

// job: its pods ask a server over the underlay and end. There are twice as many as addresses.
func (s *shapes) job(ctx context.Context) error {
	server, err := s.runPod(ctx, "server", nil, nil)
	if err != nil {
		return err
	}
	template := s.template(map[string]string{"app": "job"})
	template.Spec.RestartPolicy = corev1.RestartPolicyNever
	template.Spec.Containers[0].Args = []string{"get", "http://" + netip.AddrPortFrom(addressOf(server), httpPort).String()}
	job := &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: "job"},
		Spec:       batchv1.JobSpec{Completions: ptr.To[int32](jobPods), Parallelism: ptr.To(int32(s.size)), Template: template},
	}
	began := time.Now()
	if err := s.api.Create(ctx, job); err != nil {
		return fmt.Errorf("make a Job: %w", err)
	}
	err = eventually(ctx, podLimit, "the end of the Job", func(ctx context.Context) error {
		if err := s.api.Get(ctx, client.ObjectKeyFromObject(job), job); err != nil {
			return err
		}
		if job.Status.Succeeded != jobPods {
			return fmt.Errorf("%d pods have succeeded, %d failed", job.Status.Succeeded, job.Status.Failed)
		}
		return nil
	})
	if err != nil {
		return err
	}
	s.figures.add(fmt.Sprintf("Job of %d pods on %d addresses", jobPods, s.size), time.Since(began))
	if err := s.deletePod(ctx, server, false); err != nil {
		return err
	}
	if err := s.allFree(ctx); err != nil {
		return err
	}
	pods, err := s.pods(ctx)
	if err != nil {
		return err
	}
	s.story.Say("A Job of %d pods ended in %s, with %d addresses. All are free, although %d pod objects exist.", jobPods, round(time.Since(began)), s.size, len(pods))
	if err := s.api.Delete(ctx, job, client.PropagationPolicy(metav1.DeletePropagationBackground)); err != nil {
		return fmt.Errorf("remove the Job: %w", err)
	}
	return eventually(ctx, podLimit, "the end of the Job's pods", func(ctx context.Context) error {
		pods, err := s.pods(ctx)
		if err == nil && len(pods) > 0 {
			err = fmt.Errorf("there are %s", names(pods))
		}
		return err
	})
}

// allFree waits until the pool has no lease.
func (s *shapes) allFree(ctx context.Context) error {
	return eventually(ctx, podLimit, "the end of all leases", func(ctx context.Context) error {
		leases, err := s.leases(ctx, s.namespace)
		if err == nil && len(leases) > 0 {
			err = fmt.Errorf("there are %s", brief(leases))
		}
		return err
	})
}
