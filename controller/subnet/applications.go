// SPDX-License-Identifier: Apache-2.0

package subnet

import (
	"context"
	"errors"
	"fmt"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fenceline/fenceline/internal/demand"
	"github.com/fenceline/fenceline/internal/owner"
)

// candidate is an application with a template of its pods.
type candidate struct {
	ref      owner.Ref
	created  metav1.Time
	template *corev1.PodTemplateSpec
	replicas int
}

// templated lists the applications with a template, without those that start no pods any more, and
// without the Jobs of a CronJob. uncounted are the DaemonSets that their controller has not counted yet.
func (r *Reconciler) templated(ctx context.Context) (all []candidate, uncounted map[Identity]bool, err error) {
	var (
		deployments  appsv1.DeploymentList
		statefulSets appsv1.StatefulSetList
		daemonSets   appsv1.DaemonSetList
		jobs         batchv1.JobList
		cronJobs     batchv1.CronJobList
	)
	for _, list := range []client.ObjectList{&deployments, &statefulSets, &daemonSets, &jobs, &cronJobs} {
		if err := r.Client.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
			return nil, nil, fmt.Errorf("list applications: %w", err)
		}
	}
	uncounted = map[Identity]bool{}
	add := func(o metav1.Object, group, kind string, template *corev1.PodTemplateSpec, replicas int) {
		if o.GetDeletionTimestamp() != nil {
			return // a finalizer keeps it, and its controller makes no pods for it
		}
		all = append(all, candidate{refOf(o, group, kind), o.GetCreationTimestamp(), template, replicas})
	}
	for i := range deployments.Items {
		d := &deployments.Items[i]
		add(d, appsv1.GroupName, "Deployment", &d.Spec.Template, replicasOf(d))
	}
	for i := range statefulSets.Items {
		s := &statefulSets.Items[i]
		add(s, appsv1.GroupName, "StatefulSet", &s.Spec.Template, int(ptr.Deref(s.Spec.Replicas, 1)))
	}
	for i := range daemonSets.Items {
		d := &daemonSets.Items[i]
		if d.Status.ObservedGeneration == 0 {
			uncounted[IdentityOf(refOf(d, appsv1.GroupName, "DaemonSet"))] = true
			continue
		}
		add(d, appsv1.GroupName, "DaemonSet", &d.Spec.Template, int(d.Status.DesiredNumberScheduled))
	}
	running := map[types.UID]int{} // pods of the Jobs of a CronJob
	for i := range jobs.Items {
		j := &jobs.Items[i]
		if isIdle(j) {
			continue
		}
		pods := podsOf(&j.Spec, j.Status)
		if above, ok := owner.Of(j); ok && above.Group == batchv1.GroupName && above.Kind == "CronJob" {
			running[above.UID] += pods
			continue
		}
		add(j, batchv1.GroupName, "Job", &j.Spec.Template, pods)
	}
	for i := range cronJobs.Items {
		c := &cronJobs.Items[i]
		spec, pods := &c.Spec.JobTemplate.Spec, running[c.UID]
		switch suspended := ptr.Deref(c.Spec.Suspend, false) || ptr.Deref(spec.Suspend, false); {
		case !suspended:
			pods = max(pods, podsOf(spec, batchv1.JobStatus{}))
		case pods == 0:
			continue
		}
		add(c, batchv1.GroupName, "CronJob", &spec.Template, pods)
	}
	return all, uncounted, nil
}

func refOf(o metav1.Object, group, kind string) owner.Ref {
	return owner.Ref{Group: group, Kind: kind, Namespace: o.GetNamespace(), Name: o.GetName(), UID: o.GetUID()}
}

// isTemplated reports whether the controller watches the templates of a kind.
func isTemplated(group, kind string) bool {
	return group == appsv1.GroupName && slices.Contains([]string{"Deployment", "StatefulSet", "DaemonSet"}, kind) ||
		group == batchv1.GroupName && slices.Contains([]string{"Job", "CronJob"}, kind)
}

// replicasOf returns the number of pods of a Deployment. A paused one follows its replicas too, but its
// controller makes no ReplicaSet for it, so it has no pods before its first rollout.
func replicasOf(d *appsv1.Deployment) int {
	if d.Spec.Paused && d.Status.Replicas == 0 {
		return 0
	}
	return int(ptr.Deref(d.Spec.Replicas, 1))
}

// podsOf returns the greatest number of pods that a Job runs at a time from now on. Indexed and elastic
// Jobs count alike. Without completions, a Job starts no pod once one of its pods has succeeded.
func podsOf(spec *batchv1.JobSpec, status batchv1.JobStatus) int {
	n := ptr.Deref(spec.Parallelism, 1)
	switch {
	case spec.Completions != nil:
		n = max(0, min(n, *spec.Completions-status.Succeeded))
	case status.Succeeded > 0:
		n = min(n, status.Active)
	}
	return int(n)
}

// isIdle reports whether a Job starts no pods: it is suspended, or it ends.
func isIdle(j *batchv1.Job) bool {
	ends := []batchv1.JobConditionType{batchv1.JobComplete, batchv1.JobFailed, batchv1.JobSuccessCriteriaMet, batchv1.JobFailureTarget}
	return ptr.Deref(j.Spec.Suspend, false) || slices.ContainsFunc(j.Status.Conditions, func(c batchv1.JobCondition) bool {
		return slices.Contains(ends, c.Type) && c.Status == corev1.ConditionTrue
	})
}

// demands returns the applications among the candidates that ask for addresses of IPSubnets, or for which
// the default IPSubnets v4 and v6 are meant: not those in the namespaces ofPools, which name pools, or in
// namespaces that they do not serve.
func demands(candidates []candidate, v4, v6 []string, f Facts, ofPools map[string]bool) []Application {
	var all []Application
	for _, c := range candidates {
		if c.template.Spec.HostNetwork {
			continue
		}
		app := Application{Ref: c.ref, Created: c.created, Replicas: c.replicas}
		var asks bool
		app.Demand, asks, app.Problem = demand.Parse(c.template.Annotations)
		if !asks {
			namespace := c.ref.Namespace
			open4 := demand.Open(v4, f.Subnets, namespace, f.Namespaces[namespace])
			open6 := demand.Open(v6, f.Subnets, namespace, f.Namespaces[namespace])
			if len(open4)+len(open6) == 0 || demand.NamesPools(c.template.Annotations) || ofPools[namespace] {
				continue
			}
			app.Demand, app.Problem = demand.Default(c.template.Annotations, open4, open6)
		}
		all = append(all, app)
	}
	return all
}

// namespaces returns the labels of all namespaces, and the namespaces whose annotations name pools.
func (r *Reconciler) namespaces(ctx context.Context) (labels map[string]map[string]string, ofPools map[string]bool, err error) {
	namespaces := &metav1.PartialObjectMetadataList{}
	namespaces.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("NamespaceList"))
	if err := r.Client.List(ctx, namespaces, client.UnsafeDisableDeepCopy); err != nil {
		return nil, nil, fmt.Errorf("list namespaces: %w", err)
	}
	labels, ofPools = map[string]map[string]string{}, map[string]bool{}
	for i := range namespaces.Items {
		n := &namespaces.Items[i]
		labels[n.Name], ofPools[n.Name] = n.Labels, demand.NamespaceNamesPools(n.Annotations)
	}
	return labels, ofPools, nil
}

// isUncounted reports whether the number of pods of an owner cannot be known.
func isUncounted(err error) bool {
	return slices.ContainsFunc([]error{owner.ErrNoScale, owner.ErrNoAPI, owner.ErrNoRight, errBare}, func(known error) bool {
		return errors.Is(err, known)
	})
}
