// SPDX-License-Identifier: Apache-2.0

//go:build api

package uninstall

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fenceline/fenceline/test/check"
	"github.com/fenceline/fenceline/test/controlplane"
)

// nodeNames are the nodes that there are. The kubelet is Ready on all but the last.
var nodeNames = []string{"n1", "n2", "off"}

// kubelet is what a kubelet and a scheduler do for Fenceline's pods: the steps
// of the uninstallation run, as the program and with the rights that the chart
// names; every other pod is said to be Ready, and ends when it is deleted.
type kubelet struct {
	*cluster
	// ran are the pods whose program was run.
	ran sync.Map
}

func (k *kubelet) run(ctx context.Context) {
	wait.UntilWithContext(ctx, func(ctx context.Context) {
		var pods corev1.PodList
		if err := k.api.List(ctx, &pods, client.InNamespace(namespace)); err != nil {
			return // the test has ended, or the next look succeeds
		}
		for i := range pods.Items {
			if err := k.sync(ctx, &pods.Items[i]); client.IgnoreNotFound(err) != nil && ctx.Err() == nil {
				k.t.Logf("pod %s: %v", pods.Items[i].Name, err)
			}
		}
	}, 50*time.Millisecond)
}

func (k *kubelet) sync(ctx context.Context, pod *corev1.Pod) error {
	switch {
	case pod.Spec.NodeName == "":
		return k.api.SubResource("binding").Create(ctx, pod, &corev1.Binding{Target: corev1.ObjectReference{Kind: "Node", Name: placed(pod)}})
	case pod.Spec.NodeName == "off":
		return nil
	case pod.DeletionTimestamp != nil:
		return k.api.Delete(ctx, pod, client.GracePeriodSeconds(0))
	case pod.Status.Phase != corev1.PodPending:
		return nil
	case pod.Spec.RestartPolicy == corev1.RestartPolicyNever: // of a Job
		return k.runProgram(ctx, pod)
	default:
		pod.Status.Phase = corev1.PodRunning
		pod.Status.Conditions = append(pod.Status.Conditions, corev1.PodCondition{Type: corev1.PodReady, Status: corev1.ConditionTrue})
		return k.api.Status().Update(ctx, pod)
	}
}

// placed is where a DaemonSet wants its pod; others go to the first node.
func placed(pod *corev1.Pod) string {
	if a := pod.Spec.Affinity; a != nil && a.NodeAffinity != nil {
		for _, term := range a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms {
			for _, field := range term.MatchFields {
				if field.Key == "metadata.name" {
					return field.Values[0]
				}
			}
		}
	}
	return nodeNames[0]
}

// runProgram runs the pod's container in the background and reports its end.
func (k *kubelet) runProgram(ctx context.Context, pod *corev1.Pod) error {
	if _, ran := k.ran.LoadOrStore(pod.UID, true); ran {
		return nil
	}
	container := pod.Spec.Containers[0]
	step := container.Args[len(container.Args)-1]
	if step == "finish" && len(k.meanwhile) > 0 {
		if err := (<-k.meanwhile)(); err != nil {
			return err
		}
	}
	var args []string
	for _, arg := range container.Args {
		args = append(args, strings.ReplaceAll(arg, "$(POD_NAMESPACE)", namespace))
	}
	access, err := k.server.ServiceAccount(ctx, namespace, pod.Spec.ServiceAccountName, nil)
	if err != nil {
		return err
	}
	kubeconfig := k.t.TempDir() + "/kubeconfig"
	if err := controlplane.WriteKubeconfig(access, kubeconfig); err != nil {
		return err
	}
	k.programs.Go(func() {
		cmd := exec.CommandContext(ctx, k.program, args...)
		cmd.Env = append(os.Environ(), "KUBECONFIG="+kubeconfig)
		log := &bytes.Buffer{}
		cmd.Stdout, cmd.Stderr = log, log
		phase := corev1.PodSucceeded
		if err := cmd.Run(); err != nil {
			phase = corev1.PodFailed
			// Helm 4 takes the rights back itself once the pod has failed, Helm 3 does not.
			binding := &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "fenceline-uninstall"}}
			err := k.api.Get(ctx, client.ObjectKeyFromObject(binding), binding)
			check.That(k.t, apierrors.IsNotFound(err), "%s failed, and the controller may still end the agents: %v", step, err)
		}
		k.said.Store(step, log.String())
		// The controllers of Kubernetes may have written the pod meanwhile.
		err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
			if err := k.api.Get(ctx, client.ObjectKeyFromObject(pod), pod); err != nil {
				return err
			}
			pod.Status.Phase = phase
			return k.api.Status().Update(ctx, pod)
		})
		check.That(k.t, client.IgnoreNotFound(err) == nil || ctx.Err() != nil, "report the end of %s: %v", pod.Name, err)
	})
	return nil
}
