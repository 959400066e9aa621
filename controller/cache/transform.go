// SPDX-License-Identifier: Apache-2.0

package cache

import (
	"slices"
	"unique"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/controller/agents"
	"github.com/fenceline/fenceline/controller/podview"
	"github.com/fenceline/fenceline/internal/demand"
	"github.com/fenceline/fenceline/internal/owner"
)

// The transforms keep exactly the fields that the controller's decisions read: a decision from the
// cached object must be the same as from the live object. A decision that reads a new field adds it here.

// slimMeta keeps the identity of an object.
func slimMeta(m metav1.ObjectMeta) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Namespace: m.Namespace, Name: m.Name, UID: m.UID, ResourceVersion: m.ResourceVersion,
		CreationTimestamp: m.CreationTimestamp, DeletionTimestamp: m.DeletionTimestamp,
		DeletionGracePeriodSeconds: m.DeletionGracePeriodSeconds,
	}
}

// slimLease keeps the whole spec, because a lease is written back from the cache. It returns a
// copy: the lease is an element of a list's array, and would keep the whole array in memory.
func slimLease(lease *v1alpha1.IPLease) *v1alpha1.IPLease {
	slim := *lease
	slim.ManagedFields = nil
	spec := &slim.Spec
	share(&spec.Pool, &spec.Parent, &spec.NodeName, &spec.Session)
	share(&spec.State)
	share(&spec.Reason)
	if spec.Address == slim.Name {
		spec.Address = slim.Name
	}
	if h := spec.Holder; h != nil {
		share(&h.Namespace, &h.Interface, &h.OwnerGroup, &h.OwnerKind, &h.OwnerName)
	}
	return &slim
}

// slimHint drops the answer, which is long: only the agent reads it.
func slimHint(hint *v1alpha1.LeaseHint) *v1alpha1.LeaseHint {
	slim := *hint
	slim.ManagedFields, slim.Status.Leases = nil, nil
	return &slim
}

// share makes equal strings use the same memory.
func share[T ~string](of ...*T) {
	for _, s := range of {
		*s = unique.Make(*s).Value()
	}
}

func slimPod(pod *podview.Pod) *podview.Pod {
	slim := &podview.Pod{ObjectMeta: slimMeta(pod.ObjectMeta), Spec: pod.Spec}
	if uid := owner.StaticUID(pod.Annotations); uid != "" {
		slim.Annotations = map[string]string{owner.ConfigHash: uid, corev1.MirrorPodAnnotationKey: uid}
	}
	if _, ok, _ := demand.Parse(pod.Annotations); ok {
		// The owner of the pod may be an application that the controller learns of by its pods only.
		slim.OwnerReferences = pod.OwnerReferences
		slim.Annotations = merge(slim.Annotations, pod.Annotations, demand.Annotations())
	}
	if agents.IsAgent(pod) {
		slim.Labels = pod.Labels
		slim.Annotations = map[string]string{v1alpha1.AnnotationAgentIndex: pod.Annotations[v1alpha1.AnnotationAgentIndex]}
		slim.Status = &podview.Status{Conditions: slimConditions(pod.StatusOrEmpty().Conditions)}
	}
	if owner.IsTarget(pod) {
		slim.Labels = map[string]string{owner.LabelMigration: pod.Labels[owner.LabelMigration]}
		slim.OwnerReferences = pod.OwnerReferences
	}
	share(&slim.Namespace, &slim.Spec.NodeName)
	if pod.IsFinished() {
		slim.Status = &podview.Status{Phase: pod.StatusOrEmpty().Phase, Conditions: slimConditions(pod.StatusOrEmpty().Conditions)}
		if at := pod.LastEnd(); !at.IsZero() {
			slim.Status.ContainerStatuses = []corev1.ContainerStatus{{State: corev1.ContainerState{
				Terminated: &corev1.ContainerStateTerminated{FinishedAt: metav1.NewTime(at)},
			}}}
		}
	}
	return slim
}

func slimConditions(conditions []corev1.PodCondition) []corev1.PodCondition {
	slim := make([]corev1.PodCondition, 0, len(conditions))
	for _, c := range conditions {
		slim = append(slim, corev1.PodCondition{Type: c.Type, Status: c.Status, LastTransitionTime: c.LastTransitionTime})
	}
	return slim
}

func slimNode(node *corev1.Node) *corev1.Node {
	slim := &corev1.Node{ObjectMeta: slimMeta(node.ObjectMeta)}
	slim.Labels = node.Labels
	kept := []string{corev1.TaintNodeOutOfService, corev1.TaintNodeNotReady, corev1.TaintNodeUnreachable}
	for _, t := range node.Spec.Taints {
		if slices.Contains(kept, t.Key) {
			slim.Spec.Taints = append(slim.Spec.Taints, t)
		}
	}
	for _, c := range node.Status.Conditions {
		if c.Type == corev1.NodeReady {
			slim.Status.Conditions = []corev1.NodeCondition{{
				Type: c.Type, Status: c.Status, LastTransitionTime: c.LastTransitionTime,
			}}
		}
	}
	return slim
}

// slimService keeps the addresses of the load balancer.
func slimService(s *corev1.Service) *corev1.Service {
	slim := &corev1.Service{ObjectMeta: slimMeta(s.ObjectMeta)}
	slim.Spec.Type = s.Spec.Type
	for _, ingress := range s.Status.LoadBalancer.Ingress {
		slim.Status.LoadBalancer.Ingress = append(slim.Status.LoadBalancer.Ingress, corev1.LoadBalancerIngress{IP: ingress.IP})
	}
	return slim
}

func slimStatefulSet(set *appsv1.StatefulSet) *appsv1.StatefulSet {
	slim := &appsv1.StatefulSet{ObjectMeta: slimMeta(set.ObjectMeta)}
	slim.Spec.Replicas, slim.Spec.Ordinals = set.Spec.Replicas, set.Spec.Ordinals
	annotations := append(v1alpha1.FixedAddressAnnotations(), demand.Annotations()...)
	slim.Spec.Template = slimTemplate(set.Spec.Template, annotations)
	return slim
}

// merge returns the annotations together with those of the given names.
func merge(into, all map[string]string, names []string) map[string]string {
	for _, name := range names {
		if value, ok := all[name]; ok {
			if into == nil {
				into = map[string]string{}
			}
			into[name] = value
		}
	}
	return into
}

// slimTemplate keeps the annotations of the given names, and whether the pods have addresses at all.
func slimTemplate(t corev1.PodTemplateSpec, annotations []string) corev1.PodTemplateSpec {
	return corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Annotations: merge(nil, t.Annotations, annotations)},
		Spec:       corev1.PodSpec{HostNetwork: t.Spec.HostNetwork},
	}
}

func slimDeployment(d *appsv1.Deployment) *appsv1.Deployment {
	slim := &appsv1.Deployment{ObjectMeta: slimMeta(d.ObjectMeta)}
	slim.Generation, slim.Spec.Replicas, slim.Spec.Paused = d.Generation, d.Spec.Replicas, d.Spec.Paused
	if d.Spec.Paused {
		slim.Status.Replicas = min(1, d.Status.Replicas) // it only counts whether there are pods
	}
	slim.Spec.Template = slimTemplate(d.Spec.Template, demand.Annotations())
	return slim
}

func slimDaemonSet(d *appsv1.DaemonSet) *appsv1.DaemonSet {
	slim := &appsv1.DaemonSet{ObjectMeta: slimMeta(d.ObjectMeta)}
	slim.Spec.Template = slimTemplate(d.Spec.Template, demand.Annotations())
	slim.Status.DesiredNumberScheduled = d.Status.DesiredNumberScheduled
	// Of the generation it only counts whether the DaemonSet's controller has seen one.
	slim.Status.ObservedGeneration = min(1, d.Status.ObservedGeneration)
	return slim
}

func slimJob(j *batchv1.Job) *batchv1.Job {
	slim := &batchv1.Job{ObjectMeta: slimMeta(j.ObjectMeta)}
	slim.OwnerReferences = j.OwnerReferences
	slim.Spec.Parallelism, slim.Spec.Completions, slim.Spec.Suspend = j.Spec.Parallelism, j.Spec.Completions, j.Spec.Suspend
	slim.Status.Succeeded = j.Status.Succeeded
	if j.Spec.Completions == nil && j.Status.Succeeded > 0 {
		slim.Status.Active = j.Status.Active // otherwise it does not count
	}
	slim.Spec.Template = slimTemplate(j.Spec.Template, demand.Annotations())
	for _, c := range j.Status.Conditions {
		slim.Status.Conditions = append(slim.Status.Conditions, batchv1.JobCondition{Type: c.Type, Status: c.Status})
	}
	return slim
}

func slimCronJob(c *batchv1.CronJob) *batchv1.CronJob {
	slim := &batchv1.CronJob{ObjectMeta: slimMeta(c.ObjectMeta)}
	slim.Spec.Suspend = c.Spec.Suspend
	spec := &c.Spec.JobTemplate.Spec
	slim.Spec.JobTemplate.Spec = batchv1.JobSpec{Parallelism: spec.Parallelism, Completions: spec.Completions, Suspend: spec.Suspend}
	slim.Spec.JobTemplate.Spec.Template = slimTemplate(spec.Template, demand.Annotations())
	return slim
}
