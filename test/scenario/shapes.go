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

// shapes are workloads that use one pool, one after the other. It has an address for each node, and a spare one.
type shapes struct {
	*act
	size int
}

// playShapes: updates with maxSurge need the spare address again and again. A pod of a Job that has
// ended frees its address, although the pod object stays.
func playShapes(ctx context.Context, a *act) {
	s := &shapes{act: a, size: len(a.Nodes())}
	s.makePool(ctx, s.size+1, nil)
	running := s.record()
	s.daemonSet(ctx)
	s.surging(ctx)
	s.job(ctx)
	frames := running.Frames()
	check(takeTurns(frames, s.addresses()))
	speakers := 0
	for host := range s.size + 1 {
		speakers += len(capture.Speakers(frames, s.address(firstHost+host)))
	}
	must(speakers >= 5*s.size, "%d addresses had %d speakers, not %d: too little was shown", s.size+1, speakers, 5*s.size)
	s.story.Say("The %d addresses had %d speakers, one at a time.", s.size+1, speakers)
}

// daemonSet: each node replaces its pod by one that starts first.
func (s *shapes) daemonSet(ctx context.Context) {
	set := &appsv1.DaemonSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: "daemon"},
		Spec: appsv1.DaemonSetSpec{
			Selector: selector(), Template: s.template(selector().MatchLabels),
			UpdateStrategy: appsv1.DaemonSetUpdateStrategy{RollingUpdate: &appsv1.RollingUpdateDaemonSet{
				MaxSurge: ptr.To(intstr.FromInt32(1)), MaxUnavailable: ptr.To(intstr.FromInt32(0)),
			}},
		},
	}
	s.updated(ctx, set, func(ctx context.Context) {
		d := &appsv1.DaemonSet{}
		check(s.api.Get(ctx, client.ObjectKeyFromObject(set), d))
		t := d.Status
		must(t.ObservedGeneration >= d.Generation && int(t.UpdatedNumberScheduled) == s.size && int(t.NumberAvailable) == s.size,
			"of %d pods %d are new and %d available", t.DesiredNumberScheduled, t.UpdatedNumberScheduled, t.NumberAvailable)
	})
}

// surging is a Deployment. Its update has one pod more at a time, and none less.
func (s *shapes) surging(ctx context.Context) {
	d := s.deployment()
	d.Spec = appsv1.DeploymentSpec{
		Replicas: ptr.To(int32(s.size)), Selector: selector(), Template: s.template(selector().MatchLabels),
		Strategy: appsv1.DeploymentStrategy{RollingUpdate: &appsv1.RollingUpdateDeployment{
			MaxSurge: ptr.To(intstr.FromInt32(1)), MaxUnavailable: ptr.To(intstr.FromInt32(0)),
		}},
	}
	s.updated(ctx, d, func(ctx context.Context) { s.rolledOut(ctx, client.ObjectKeyFromObject(d)) })
}

// updated makes a workload, replaces all its pods by a change of its template, and removes it.
func (s *shapes) updated(ctx context.Context, object client.Object, isOut func(context.Context)) {
	name := fmt.Sprintf("%T %s", object, object.GetName())
	did(s.api.Create(ctx, object), "make %s", name)
	eventually(ctx, podLimit, name+" to run", isOut)
	began := time.Now()
	s.rollOut(ctx, object, 1)
	eventually(ctx, podLimit, "the update of "+name, isOut)
	took := time.Since(began)
	// Pods of the former template may be Terminating still.
	eventually(ctx, podLimit, "leases that equal the pods of "+name, s.leasesEqualHolders)
	s.story.Say("All pods of %s were replaced in %s, each by a pod that started first: the pool has one spare address.", name, round(took))
	did(s.api.Delete(ctx, object, client.PropagationPolicy(metav1.DeletePropagationForeground)), "remove %s", name)
	s.hasNoLease(ctx, s.namespace, podLimit)
}

// job: its pods ask a server over the underlay and end. There are twice as many as addresses.
func (s *shapes) job(ctx context.Context) {
	server := s.runPod(ctx, "server", nil, nil)
	template := s.template(map[string]string{"app": "job"})
	template.Spec.RestartPolicy = corev1.RestartPolicyNever
	template.Spec.Containers[0].Args = []string{"get", "http://" + netip.AddrPortFrom(addressOf(server), httpPort).String()}
	job := &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: "job"},
		Spec:       batchv1.JobSpec{Completions: ptr.To[int32](jobPods), Parallelism: ptr.To(int32(s.size)), Template: template},
	}
	began := time.Now()
	did(s.api.Create(ctx, job), "make a Job")
	eventually(ctx, podLimit, "the end of the Job", func(ctx context.Context) {
		check(s.api.Get(ctx, client.ObjectKeyFromObject(job), job))
		must(job.Status.Succeeded == jobPods, "%d pods have succeeded, %d failed", job.Status.Succeeded, job.Status.Failed)
	})
	s.deletePod(ctx, server, false)
	s.hasNoLease(ctx, s.namespace, podLimit)
	s.story.Say("A Job of %d pods ended in %s, with %d addresses. All are free, although %d pod objects exist.", jobPods, round(time.Since(began)), s.size, len(s.pods(ctx)))
	did(s.api.Delete(ctx, job, client.PropagationPolicy(metav1.DeletePropagationBackground)), "remove the Job")
	s.podsEnd(ctx, podLimit)
}
