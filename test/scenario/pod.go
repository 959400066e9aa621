// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fenceline/fenceline/test/cluster"
	"github.com/fenceline/fenceline/test/images"
)

const (
	// podLimit is how long pods may take to run on a machine of two cores.
	podLimit = 90 * time.Second
	// appPort is the TCP port on which a pod answers with its name.
	appPort = 7000
	// podGrace is the termination grace of all pods.
	podGrace = 1
)

// template returns a pod that answers with its name. Kubernetes evicts it five minutes after its node is
// not Ready, so a busy machine that misses renewals of the node's Lease does not end it.
func (a *act) template(labels map[string]string, changes ...func(*corev1.PodSpec)) corev1.PodTemplateSpec {
	t := corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: labels},
		Spec: corev1.PodSpec{
			TerminationGracePeriodSeconds: ptr.To[int64](podGrace),
			Containers: []corev1.Container{{
				Name: "app", Image: images.AppImage, ImagePullPolicy: corev1.PullNever, Args: []string{"serve"},
			}},
		},
	}
	for _, taint := range []string{corev1.TaintNodeNotReady, corev1.TaintNodeUnreachable} {
		t.Spec.Tolerations = append(t.Spec.Tolerations, corev1.Toleration{
			Key: taint, Operator: corev1.TolerationOpExists,
			Effect: corev1.TaintEffectNoExecute, TolerationSeconds: ptr.To[int64](300),
		})
	}
	for _, change := range changes {
		change(&t.Spec)
	}
	return t
}

// startPod creates a pod on a node, or on any node if node is nil. change may be nil.
func (a *act) startPod(ctx context.Context, name string, node *cluster.Node, change func(*corev1.Pod)) {
	template := a.template(map[string]string{"app": name})
	pod := &corev1.Pod{ObjectMeta: template.ObjectMeta, Spec: template.Spec}
	pod.Namespace, pod.Name = a.namespace, name
	if node != nil {
		pod.Spec.NodeSelector = map[string]string{corev1.LabelHostname: node.Name()}
	}
	if change != nil {
		change(pod)
	}
	did(a.api.Create(ctx, pod), "make pod %s", name)
}

// runPod creates a pod and waits until it is Ready.
func (a *act) runPod(ctx context.Context, name string, node *cluster.Node, change func(*corev1.Pod)) *cluster.Pod {
	a.startPod(ctx, name, node, change)
	return a.pod(ctx, name)
}

// pod waits until the pod is Ready.
func (a *act) pod(ctx context.Context, name string) *cluster.Pod {
	return a.running(ctx, 1, func(p *corev1.Pod) bool { return p.Name == name })[0]
}

// deletePod deletes a pod. With force, Kubernetes removes the object without the node.
func (a *act) deletePod(ctx context.Context, pod *cluster.Pod, force bool) {
	grace := client.GracePeriodSeconds(podGrace)
	if force {
		grace = client.GracePeriodSeconds(0)
	}
	object := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name}}
	did(a.api.Delete(ctx, object, grace), "delete pod %s", pod.Name)
}

// pods returns the pods of the scenario's namespace.
func (a *act) pods(ctx context.Context) []corev1.Pod {
	list := &corev1.PodList{}
	did(a.api.List(ctx, list, client.InNamespace(a.namespace)), "list the pods of %s", a.namespace)
	return list.Items
}

// running waits until exactly count pods match, are Ready and are not Terminating, and returns them.
func (a *act) running(ctx context.Context, count int, match func(*corev1.Pod) bool) []*cluster.Pod {
	var found []*cluster.Pod
	eventually(ctx, podLimit, fmt.Sprintf("%d running pods", count), func(ctx context.Context) {
		pods := a.pods(ctx)
		var ready []corev1.Pod
		for _, p := range pods {
			if match(&p) && isReady(&p) && p.DeletionTimestamp == nil {
				ready = append(ready, p)
			}
		}
		if len(ready) != count {
			a.missing(ctx, pods, len(ready))
		}
		found = nil
		for _, p := range ready {
			pod := value(a.Pod(ctx, p.Namespace, p.Name))
			must(len(pod.IPs) != 0, "pod %s has no address", pod.Name)
			found = append(found, pod)
		}
	})
	return found
}

func everyPod(*corev1.Pod) bool { return true }

// missing fails with the state of the pods and the last warning about them.
func (a *act) missing(ctx context.Context, pods []corev1.Pod, ready int) {
	text := fmt.Sprintf("%d are: %s", ready, names(pods))
	events := &corev1.EventList{}
	did(a.api.List(ctx, events, client.InNamespace(a.namespace)), "%s", text)
	var last *corev1.Event
	for i := range events.Items {
		if e := &events.Items[i]; e.Type == corev1.EventTypeWarning && (last == nil || eventTime(e).After(eventTime(last))) {
			last = e
		}
	}
	if last != nil {
		text += fmt.Sprintf("; last warning: %s %s: %s", last.InvolvedObject.Name, last.Reason, last.Message)
	}
	fail("%s", text)
}

// names lists pods with their phases and nodes.
func names(pods []corev1.Pod) string {
	var list []string
	for _, p := range pods {
		phase := string(p.Status.Phase)
		if p.DeletionTimestamp != nil {
			phase = "Terminating"
		}
		list = append(list, fmt.Sprintf("%s %s on %s", p.Name, phase, p.Spec.NodeName))
	}
	return fmt.Sprintf("[%s]", strings.Join(list, ", "))
}

func isReady(pod *corev1.Pod) bool {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

func addressOf(pod *cluster.Pod) netip.Addr { return pod.IPs[0] }

func macOf(pod *cluster.Pod) net.HardwareAddr { return value(pod.MAC()) }

// evicted makes Kubernetes evict a pod two seconds after its node is not Ready.
func evicted(pod *corev1.PodSpec) { pod.Tolerations = nil }

// workload is the name of every Deployment and StatefulSet.
const workload = "web"

// setLabel is the label "app" of the pods of deploySet.
const setLabel = "set"

func selector() *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchLabels: map[string]string{"app": workload}}
}

// deploy makes a Deployment that spreads its pods over all live nodes.
func (a *act) deploy(ctx context.Context, replicas int, changes ...func(*corev1.PodSpec)) {
	template := a.template(selector().MatchLabels, changes...)
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
func (a *act) deploySet(ctx context.Context, node *cluster.Node, changes ...func(*corev1.PodSpec)) {
	labels := map[string]string{"app": setLabel}
	template := a.template(labels, changes...)
	template.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
		PreferredDuringSchedulingIgnoredDuringExecution: []corev1.PreferredSchedulingTerm{{Weight: 100, Preference: nodeIs(corev1.NodeSelectorOpIn, node)}},
	}}
	set := &appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: a.namespace, Name: workload},
		Spec:       appsv1.StatefulSetSpec{Replicas: ptr.To[int32](1), Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: template},
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

// rolledOut fails until all pods of a Deployment are available and of the present template, and no others are left.
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
