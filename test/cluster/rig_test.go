// SPDX-License-Identifier: Apache-2.0

//go:build cluster

package cluster_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/fenceline/fenceline/test/cluster"
	"github.com/fenceline/fenceline/test/images"
)

type rig struct {
	*cluster.Cluster
	client kubernetes.Interface
}

func connect(t *testing.T, c *cluster.Cluster) kubernetes.Interface {
	t.Helper()
	config, err := c.RESTConfig()
	if err != nil {
		t.Fatal(err)
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// deploy starts one pod on each node.
func (r *rig) deploy(ctx context.Context, t *testing.T) {
	t.Helper()
	labels := map[string]string{"app": "speaker"}
	grace := int64(1)
	_, err := r.client.AppsV1().DaemonSets("default").Create(ctx, &appsv1.DaemonSet{
		ObjectMeta: metav1.ObjectMeta{Name: "speaker"},
		Spec: appsv1.DaemonSetSpec{
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec: corev1.PodSpec{
					TerminationGracePeriodSeconds: &grace,
					Containers: []corev1.Container{{
						Name: "app", Image: images.AppImage, ImagePullPolicy: corev1.PullNever, Args: []string{"serve"},
					}},
				},
			},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for n := 1; n <= 3; n++ {
		r.pod(ctx, t, n)
	}
}

// pod returns the running pod of a node.
func (r *rig) pod(ctx context.Context, t *testing.T, node int) *cluster.Pod {
	t.Helper()
	var name string
	eventually(ctx, t, fmt.Sprintf("a running pod on node %d", node), func() error {
		pods, err := r.client.CoreV1().Pods("default").List(ctx, metav1.ListOptions{FieldSelector: "spec.nodeName=" + cluster.NodeName(node)})
		if err != nil {
			return err
		}
		for _, p := range pods.Items {
			if p.DeletionTimestamp == nil && p.Status.PodIP != "" && p.Status.Phase == corev1.PodRunning {
				name = p.Name
				return nil
			}
		}
		return errors.New("none")
	})
	pod, err := r.Pod(ctx, "default", name)
	if err != nil {
		t.Fatal(err)
	}
	return pod
}

func eventually(ctx context.Context, t *testing.T, what string, condition func() error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		err := condition()
		if err == nil {
			return
		}
		select {
		case <-ctx.Done():
			t.Fatalf("wait for %s: %v", what, err)
		case <-tick.C:
		}
	}
}

func answers(ctx context.Context, from, to *cluster.Pod) error {
	_, err := from.Exec(ctx, "arping", "-q", "-f", "-c", "3", "-w", "3", "-I", cluster.PodInterface, to.IPs[0].String())
	return err
}
