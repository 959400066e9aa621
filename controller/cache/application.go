// SPDX-License-Identifier: Apache-2.0

package cache

import (
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fenceline/fenceline/internal/demand"
)

// slimTemplate keeps the annotations of the given names, and whether the pods have addresses at all.
func slimTemplate(t corev1.PodTemplateSpec, annotations []string) corev1.PodTemplateSpec {
	return corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Annotations: merge(nil, t.Annotations, annotations)},
		Spec:       corev1.PodSpec{HostNetwork: t.Spec.HostNetwork},
	}
}

func slimDeployment(d *appsv1.Deployment) *appsv1.Deployment {
	slim := &appsv1.Deployment{ObjectMeta: slimMeta(d.ObjectMeta)}
	slim.Generation, slim.Spec.Replicas = d.Generation, d.Spec.Replicas
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
	slim.Spec.Parallelism, slim.Spec.Completions = j.Spec.Parallelism, j.Spec.Completions
	slim.Spec.Template = slimTemplate(j.Spec.Template, demand.Annotations())
	for _, c := range j.Status.Conditions {
		slim.Status.Conditions = append(slim.Status.Conditions, batchv1.JobCondition{Type: c.Type, Status: c.Status})
	}
	return slim
}

func slimCronJob(c *batchv1.CronJob) *batchv1.CronJob {
	slim := &batchv1.CronJob{ObjectMeta: slimMeta(c.ObjectMeta)}
	slim.Spec.JobTemplate.Spec.Parallelism = c.Spec.JobTemplate.Spec.Parallelism
	slim.Spec.JobTemplate.Spec.Completions = c.Spec.JobTemplate.Spec.Completions
	slim.Spec.JobTemplate.Spec.Template = slimTemplate(c.Spec.JobTemplate.Spec.Template, demand.Annotations())
	return slim
}
