// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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

// template returns a pod that answers with its name.
func (a *act) template(labels map[string]string) corev1.PodTemplateSpec {
	return corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: labels},
		Spec: corev1.PodSpec{
			TerminationGracePeriodSeconds: ptr.To[int64](podGrace),
			Containers: []corev1.Container{{
				Name: "app", Image: images.AppImage, ImagePullPolicy: corev1.PullNever, Args: []string{"serve"},
			}},
		},
	}
}

// startPod creates a pod on a node, or on any node if node is nil. change may be nil.
func (a *act) startPod(ctx context.Context, name string, node *cluster.Node, change func(*corev1.Pod)) error {
	template := a.template(map[string]string{"app": name})
	pod := &corev1.Pod{ObjectMeta: template.ObjectMeta, Spec: template.Spec}
	pod.Namespace, pod.Name = a.namespace, name
	if node != nil {
		pod.Spec.NodeSelector = map[string]string{corev1.LabelHostname: node.Name()}
	}
	if change != nil {
		change(pod)
	}
	if err := a.api.Create(ctx, pod); err != nil {
		return fmt.Errorf("make pod %s: %w", name, err)
	}
	return nil
}

// runPod creates a pod and waits until it is Ready.
func (a *act) runPod(ctx context.Context, name string, node *cluster.Node, change func(*corev1.Pod)) (*cluster.Pod, error) {
	if err := a.startPod(ctx, name, node, change); err != nil {
		return nil, err
	}
	running, err := a.running(ctx, 1, func(p *corev1.Pod) bool { return p.Name == name })
	if err != nil {
		return nil, err
	}
	return running[0], nil
}

// deletePod deletes a pod. With force, Kubernetes removes the object without the node.
func (a *act) deletePod(ctx context.Context, pod *cluster.Pod, force bool) error {
	grace := client.GracePeriodSeconds(podGrace)
	if force {
		grace = client.GracePeriodSeconds(0)
	}
	object := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name}}
	if err := a.api.Delete(ctx, object, grace); err != nil {
		return fmt.Errorf("delete pod %s: %w", pod.Name, err)
	}
	return nil
}

// pods returns the pods of the scenario's namespace.
func (a *act) pods(ctx context.Context) ([]corev1.Pod, error) {
	list := &corev1.PodList{}
	if err := a.api.List(ctx, list, client.InNamespace(a.namespace)); err != nil {
		return nil, fmt.Errorf("list the pods of %s: %w", a.namespace, err)
	}
	return list.Items, nil
}

// running waits until exactly count pods match, are Ready and are not Terminating, and returns them.
func (a *act) running(ctx context.Context, count int, match func(*corev1.Pod) bool) ([]*cluster.Pod, error) {
	var found []*cluster.Pod
	err := eventually(ctx, podLimit, fmt.Sprintf("%d running pods", count), func(ctx context.Context) error {
		pods, err := a.pods(ctx)
		if err != nil {
			return err
		}
		var ready []corev1.Pod
		for _, p := range pods {
			if match(&p) && isReady(&p) && p.DeletionTimestamp == nil {
				ready = append(ready, p)
			}
		}
		if len(ready) != count {
			return a.missing(ctx, pods, len(ready))
		}
		found = nil
		for _, p := range ready {
			pod, err := a.Pod(ctx, p.Namespace, p.Name)
			if err != nil {
				return err
			}
			if len(pod.IPs) == 0 {
				return fmt.Errorf("pod %s has no address", pod.Name)
			}
			found = append(found, pod)
		}
		return nil
	})
	return found, err
}

func everyPod(*corev1.Pod) bool { return true }

// missing returns an error with the state of the pods and the last warning about them.
func (a *act) missing(ctx context.Context, pods []corev1.Pod, ready int) error {
	text := fmt.Sprintf("%d are: %s", ready, names(pods))
	events := &corev1.EventList{}
	if err := a.api.List(ctx, events, client.InNamespace(a.namespace)); err != nil {
		return errors.Join(errors.New(text), err)
	}
	var last *corev1.Event
	for i := range events.Items {
		if e := &events.Items[i]; e.Type == corev1.EventTypeWarning && (last == nil || eventTime(e).After(eventTime(last))) {
			last = e
		}
	}
	if last != nil {
		text += fmt.Sprintf("; last warning: %s %s: %s", last.InvolvedObject.Name, last.Reason, last.Message)
	}
	return errors.New(text)
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

// patient lets a pod stay for as long as Kubernetes does by itself where its node is not ready, which
// the node is while its agent is away or its network is uninstalled. Here that is two seconds.
func patient(pod *corev1.Pod) {
	pod.Spec.Tolerations = append(pod.Spec.Tolerations, corev1.Toleration{
		Key: corev1.TaintNodeNotReady, Operator: corev1.TolerationOpExists,
		Effect: corev1.TaintEffectNoExecute, TolerationSeconds: ptr.To[int64](300),
	})
}
