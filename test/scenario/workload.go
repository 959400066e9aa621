// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"context"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fenceline/fenceline/test/cluster"
)

// workload is the name of every Deployment and StatefulSet.
const workload = "web"

// setLabel is the label "app" of the pods of deploySet.
const setLabel = "set"

func selector() *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchLabels: map[string]string{"app": workload}}
}

// deploy makes a Deployment whose pods are on as many nodes as there are live
// ones.
func (a *act) deploy(ctx context.Context, replicas int, changes ...func(*corev1.PodTemplateSpec)) error {
	template := a.template(selector().MatchLabels)
	for _, change := range changes {
		change(&template)
	}
	template.Spec.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{{
		MaxSkew: 1, TopologyKey: corev1.LabelHostname, WhenUnsatisfiable: corev1.DoNotSchedule,
		LabelSelector: selector(),
		// A node that is cut off is tainted, and does not count.
		NodeTaintsPolicy: ptr.To(corev1.NodeInclusionPolicyHonor),
	}}
	deployment := &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: a.namespace, Name: workload},
		Spec:       appsv1.DeploymentSpec{Replicas: ptr.To(int32(replicas)), Selector: selector(), Template: template},
	}
	if err := a.api.Create(ctx, deployment); err != nil {
		return fmt.Errorf("make a Deployment: %w", err)
	}
	return nil
}

// deploySet makes a StatefulSet of one pod that is on the node as long as it
// can be. The label does not match the Deployment, which spreads its own pods.
func (a *act) deploySet(ctx context.Context, node *cluster.Node) error {
	labels := map[string]string{"app": setLabel}
	template := a.template(labels)
	prefer(node)(&template)
	set := &appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: a.namespace, Name: workload},
		Spec: appsv1.StatefulSetSpec{
			Replicas: ptr.To[int32](1), Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: template,
		},
	}
	if err := a.api.Create(ctx, set); err != nil {
		return fmt.Errorf("make a StatefulSet: %w", err)
	}
	return nil
}

// prefer puts pods on the node as long as they can be there.
func prefer(node *cluster.Node) func(*corev1.PodTemplateSpec) {
	return func(template *corev1.PodTemplateSpec) {
		template.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
			PreferredDuringSchedulingIgnoredDuringExecution: []corev1.PreferredSchedulingTerm{{
				Weight: 100,
				Preference: corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{{
					Key: corev1.LabelHostname, Operator: corev1.NodeSelectorOpIn, Values: []string{node.Name()},
				}}},
			}},
		}}
	}
}

// scale changes the size of the Deployment.
func (a *act) scale(ctx context.Context, replicas int) error {
	deployment := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: a.namespace, Name: workload}}
	patch := client.RawPatch("application/merge-patch+json", []byte(fmt.Sprintf(`{"spec":{"replicas":%d}}`, replicas)))
	if err := a.api.Patch(ctx, deployment, patch); err != nil {
		return fmt.Errorf("scale the Deployment to %d: %w", replicas, err)
	}
	return nil
}

// rolledOut returns an error until all pods of a Deployment are available and of
// the present template, and no others are left.
func (a *act) rolledOut(ctx context.Context, name client.ObjectKey) error {
	d := &appsv1.Deployment{}
	if err := a.api.Get(ctx, name, d); err != nil {
		return err
	}
	s := &d.Status
	if s.ObservedGeneration < d.Generation || s.UpdatedReplicas != *d.Spec.Replicas || s.Replicas > s.UpdatedReplicas || s.AvailableReplicas < s.UpdatedReplicas {
		return fmt.Errorf("of %d pods %d are new and %d available", s.Replicas, s.UpdatedReplicas, s.AvailableReplicas)
	}
	return nil
}

// podOn returns the pod of the list that is on the node.
func podOn(node *cluster.Node, pods []*cluster.Pod) (*cluster.Pod, error) {
	for _, p := range pods {
		if p.Node.Name() == node.Name() {
			return p, nil
		}
	}
	return nil, fmt.Errorf("no pod is on node %s", node.Name())
}
