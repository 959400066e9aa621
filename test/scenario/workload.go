// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"context"
	"fmt"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
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

// deploy makes a Deployment that spreads its pods over all live nodes.
func (a *act) deploy(ctx context.Context, replicas int, changes ...func(*corev1.PodSpec)) {
	template := a.template(selector().MatchLabels)
	for _, change := range changes {
		change(&template.Spec)
	}
	template.Spec.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{{
		MaxSkew: 1, TopologyKey: corev1.LabelHostname, WhenUnsatisfiable: corev1.DoNotSchedule,
		LabelSelector: selector(),
		// A node that is cut off is tainted, and does not count.
		NodeTaintsPolicy: ptr.To(corev1.NodeInclusionPolicyHonor),
	}}
	deployment := a.deployment()
	deployment.Spec = appsv1.DeploymentSpec{Replicas: ptr.To(int32(replicas)), Selector: selector(), Template: template}
	did(a.api.Create(ctx, deployment), "make a Deployment")
}

// deploySet makes a StatefulSet of one pod, which prefers the node. The label does not match the
// Deployment, which spreads only its own pods.
func (a *act) deploySet(ctx context.Context, node *cluster.Node) {
	labels := map[string]string{"app": setLabel}
	template := a.template(labels)
	template.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
		PreferredDuringSchedulingIgnoredDuringExecution: []corev1.PreferredSchedulingTerm{{Weight: 100, Preference: nodeIs(corev1.NodeSelectorOpIn, node)}},
	}}
	set := &appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: a.namespace, Name: workload},
		Spec: appsv1.StatefulSetSpec{
			Replicas: ptr.To[int32](1), Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: template,
		},
	}
	did(a.api.Create(ctx, set), "make a StatefulSet")
}

// nodeIs selects the node, or all others.
func nodeIs(operator corev1.NodeSelectorOperator, node *cluster.Node) corev1.NodeSelectorTerm {
	return corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{{
		Key: corev1.LabelHostname, Operator: operator, Values: []string{node.Name()},
	}}}
}

// deployment returns the Deployment of deploy without its contents, to be changed.
func (a *act) deployment() *appsv1.Deployment {
	return &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: a.namespace, Name: workload}}
}

// patch merges a change into an object.
func (a *act) patch(ctx context.Context, object client.Object, change string, args ...any) {
	merged := client.RawPatch(types.MergePatchType, fmt.Appendf(nil, change, args...))
	did(a.api.Patch(ctx, object, merged), "change %T %s", object, object.GetName())
}

// rollOut changes the template of a workload, so that all its pods are replaced.
func (a *act) rollOut(ctx context.Context, object client.Object, number int) {
	a.patch(ctx, object, `{"spec":{"template":{"metadata":{"annotations":{"roll":"%d"}}}}}`, number)
}

// rolledOut fails until all pods of a Deployment are available and of
// the present template, and no others are left.
func (a *act) rolledOut(ctx context.Context, name client.ObjectKey) {
	d := &appsv1.Deployment{}
	check(a.api.Get(ctx, name, d))
	s := &d.Status
	if s.ObservedGeneration < d.Generation || s.UpdatedReplicas != *d.Spec.Replicas || s.Replicas > s.UpdatedReplicas || s.AvailableReplicas < s.UpdatedReplicas {
		fail("of %d pods %d are new and %d available", s.Replicas, s.UpdatedReplicas, s.AvailableReplicas)
	}
}

// podOn returns the pod of the list that is on the node.
func podOn(node *cluster.Node, pods []*cluster.Pod) *cluster.Pod {
	i := slices.IndexFunc(pods, func(p *cluster.Pod) bool { return p.Node.Name() == node.Name() })
	must(i >= 0, "no pod is on node %s", node.Name())
	return pods[i]
}
