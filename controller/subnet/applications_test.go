// SPDX-License-Identifier: Apache-2.0

package subnet

import (
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/fenceline/fenceline/test/check"
)

// An application counts the pods that run or will run, as the controllers of Kubernetes make them.
func TestPodsOfAJob(t *testing.T) {
	spec := func(parallelism, completions int32) batchv1.JobSpec {
		return batchv1.JobSpec{Parallelism: &parallelism, Completions: &completions}
	}
	queue := batchv1.JobSpec{Parallelism: new(int32(4))}
	for _, row := range []struct {
		rule   string
		spec   batchv1.JobSpec
		status batchv1.JobStatus
		want   int
	}{
		{"one, if it says nothing", batchv1.JobSpec{}, batchv1.JobStatus{}, 1},
		{"as many as run beside each other", spec(3, 9), batchv1.JobStatus{}, 3},
		{"no more than it has to complete", spec(4, 2), batchv1.JobStatus{}, 2},
		{"no more than are left to complete", spec(4, 9), batchv1.JobStatus{Succeeded: 7}, 2},
		{"none, once all have completed", spec(4, 2), batchv1.JobStatus{Succeeded: 2}, 0},
		{"an elastic Job has fewer completions than have succeeded", spec(2, 2), batchv1.JobStatus{Succeeded: 3}, 0},
		{"a parallelism of 0 pauses a Job", spec(0, 2), batchv1.JobStatus{}, 0},
		{"a work queue has all its workers until one of them succeeds", queue, batchv1.JobStatus{Active: 2}, 4},
		{"then it starts none", queue, batchv1.JobStatus{Active: 2, Succeeded: 1}, 2},
	} {
		check.Equal(t, podsOf(&row.spec, row.status), row.want, "%s:", row.rule)
	}
	for _, end := range []batchv1.JobConditionType{batchv1.JobComplete, batchv1.JobFailed, batchv1.JobSuccessCriteriaMet, batchv1.JobFailureTarget} {
		j := &batchv1.Job{Status: batchv1.JobStatus{Conditions: []batchv1.JobCondition{{Type: end, Status: corev1.ConditionTrue}}}}
		check.That(t, isIdle(j), "a Job with condition %s starts pods", end)
	}
	check.That(t, isIdle(&batchv1.Job{Spec: batchv1.JobSpec{Suspend: new(true)}}), "a suspended Job starts pods")
	check.That(t, !isIdle(&batchv1.Job{}), "a Job starts no pods")
}

func TestPodsOfADeployment(t *testing.T) {
	for _, row := range []struct {
		rule string
		d    appsv1.Deployment
		want int
	}{
		{"one, if it says nothing", appsv1.Deployment{}, 1},
		{"a paused one without pods has no ReplicaSet yet", appsv1.Deployment{Spec: appsv1.DeploymentSpec{Replicas: new(int32(3)), Paused: true}}, 0},
		{"a paused one with pods still follows its replicas",
			appsv1.Deployment{Spec: appsv1.DeploymentSpec{Replicas: new(int32(3)), Paused: true}, Status: appsv1.DeploymentStatus{Replicas: 1}}, 3},
	} {
		check.Equal(t, replicasOf(&row.d), row.want, "%s:", row.rule)
	}
}
