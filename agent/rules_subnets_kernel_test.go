// SPDX-License-Identifier: Apache-2.0

//go:build kernel

package main

import (
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/test/check"
)

// subnets: the agent reads the owner of a pod to find the pool of its application.
func (m *machine) subnets(t *testing.T) {
	meta := metav1.ObjectMeta{Namespace: "shop", Name: "web"}
	labels := map[string]string{"app": "web"}
	template := corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{
		RestartPolicy: corev1.RestartPolicyAlways, Containers: []corev1.Container{{Name: "c", Image: "none"}},
	}}
	deployment := &appsv1.Deployment{ObjectMeta: meta, Spec: appsv1.DeploymentSpec{Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: template}}
	check.OK(t, m.Create(t.Context(), deployment))
	set := &appsv1.ReplicaSet{ObjectMeta: meta, Spec: appsv1.ReplicaSetSpec{Selector: deployment.Spec.Selector, Template: template}}
	set.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(deployment, appsv1.SchemeGroupVersion.WithKind("Deployment"))}
	job := &batchv1.Job{ObjectMeta: meta, Spec: batchv1.JobSpec{Template: *template.DeepCopy()}}
	job.Spec.Template.Spec.RestartPolicy = corev1.RestartPolicyNever
	stateful := &appsv1.StatefulSet{ObjectMeta: meta, Spec: appsv1.StatefulSetSpec{Selector: deployment.Spec.Selector, Template: template}}
	daemons := &appsv1.DaemonSet{ObjectMeta: meta, Spec: appsv1.DaemonSetSpec{Selector: deployment.Spec.Selector, Template: template}}
	for i, c := range []struct {
		kind        string
		owner       client.Object
		api         schema.GroupVersion
		application v1alpha1.Application
	}{
		{"ReplicaSet", set, appsv1.SchemeGroupVersion, v1alpha1.Application{APIGroup: "apps", Kind: "Deployment"}},
		{"Job", job, batchv1.SchemeGroupVersion, v1alpha1.Application{APIGroup: "batch", Kind: "Job"}},
		{"StatefulSet", stateful, appsv1.SchemeGroupVersion, v1alpha1.Application{APIGroup: "apps", Kind: "StatefulSet"}},
		{"DaemonSet", daemons, appsv1.SchemeGroupVersion, v1alpha1.Application{APIGroup: "apps", Kind: "DaemonSet"}},
	} {
		t.Run("a pod of a "+c.kind, func(t *testing.T) {
			check.OK(t, m.Create(t.Context(), c.owner))
			c.application.Namespace, c.application.Name, c.application.Interface = "shop", "web", "0"
			pool := m.pool(t, "of-"+strings.ToLower(c.application.Kind), 93+i, func(p *v1alpha1.IPPool) {
				p.Spec.IPSubnet, p.Spec.Application = "s", &c.application
			})
			m.gets(t, m.sandbox(saying("ipam.fenceline.io/subnet", `{"ipv4":["s"]}`), func(p *corev1.Pod) {
				p.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(c.owner, c.api.WithKind(c.kind))}
			}), pool.Spec.Subnet[:len("10.70.93.")])
		})
	}
}
