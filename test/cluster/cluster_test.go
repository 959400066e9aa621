// SPDX-License-Identifier: Apache-2.0

//go:build cluster

package cluster_test

import (
	"context"
	"errors"
	"net/netip"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fenceline/fenceline/test/capture"
	"github.com/fenceline/fenceline/test/cluster"
)

// TestTheRig shows, without Fenceline, that the cluster is what tests take it
// for: above all that a zombie lives and that the capture sees it.
func TestTheRig(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), 8*time.Minute)
	defer cancel()
	before := takeInventory(t)
	c, err := cluster.Up(ctx, cluster.Options{
		Prefix: "flrig", Management: netip.MustParsePrefix("172.30.1.0/24"),
		CNIConfig: cluster.HostLocalMacvlan, KubeProxy: cluster.Nftables, Progress: t.Output(),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := cluster.Down(context.Background(), "flrig"); err != nil {
			t.Error(err)
		}
	})
	r := &rig{Cluster: c, client: connect(t, c)}
	r.deploy(ctx, t)
	for _, tc := range []struct {
		name string
		test func(context.Context, *testing.T)
	}{
		{"pods on different nodes reach each other over the underlay", r.podsReachEachOther},
		{"another process opens the same cluster", r.anotherProcessOpensIt},
		{"the capture names the speakers for an address", r.captureNamesSpeakers},
		{"the API server can be away while pods speak", r.apiServerAway},
		{"a pod behind a cut management cable becomes a zombie that answers", r.zombieAnswers},
		{"a cut underlay silences a node", r.underlayCut},
		{"a frozen pod outlives its deletion", r.frozenPod},
		{"a pod with a stopped shim outlives its deletion", r.stoppedShim},
		{"a killed daemon starts again", r.daemonRestarts},
		{"a node powers off and on again", r.powerCycle},
	} {
		if !t.Run(tc.name, func(t *testing.T) { tc.test(ctx, t) }) {
			break // the next one builds on it
		}
	}
	t.Run("nothing is left behind", func(t *testing.T) {
		if err := c.Down(ctx); err != nil {
			t.Fatal(err)
		}
		before.compare(t, takeInventory(t))
	})
}

func (r *rig) podsReachEachOther(ctx context.Context, t *testing.T) {
	from, to := r.pod(ctx, t, 1), r.pod(ctx, t, 2)
	if err := answers(ctx, from, to); err != nil {
		t.Error(err)
	}
	said, err := from.Exec(ctx, "curl", "--silent", "--max-time", "3", "http://"+to.IPs[0].String()+":8080")
	if err != nil || !strings.HasPrefix(said, to.Name+" ") {
		t.Errorf("HTTP answer %q, %v; want one of %s", said, err, to.Name)
	}
}

func (r *rig) anotherProcessOpensIt(ctx context.Context, t *testing.T) {
	other, err := cluster.Open("flrig")
	if err != nil {
		t.Fatal(err)
	}
	host, err := other.Node(2).Exec(ctx, "hostname")
	if err != nil || strings.TrimSpace(host) != "n2" {
		t.Errorf("host name of node 2: %q, %v", host, err)
	}
}

func (r *rig) captureNamesSpeakers(ctx context.Context, t *testing.T) {
	pod, prober := r.pod(ctx, t, 1), r.pod(ctx, t, 2)
	addr := netip.MustParsePrefix("10.77.9.9/16")
	running, err := r.Capture()
	if err != nil {
		t.Fatal(err)
	}
	host, err := r.ForeignHost("foreign", addr, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := prober.Exec(ctx, "arping", "-q", "-f", "-c", "3", "-w", "3", "-I", cluster.PodInterface, addr.Addr().String()); err != nil {
		t.Error(err)
	}
	if _, err := host.Exec(ctx, "ping", "-q", "-c", "1", "-W", "3", pod.IPs[0].String()); err != nil {
		t.Error(err)
	}
	frames, err := running.Stop()
	if err != nil {
		t.Fatal(err)
	}
	if got := capture.Speakers(frames, addr.Addr()); len(got) != 1 || got[0] != host.MAC.String() {
		t.Errorf("speakers for %s: %v, want %s", addr.Addr(), got, host.MAC)
	}
	mac, err := pod.MAC()
	if err != nil {
		t.Fatal(err)
	}
	spoken := capture.SpokenFor(frames, pod.IPs[0])
	if len(spoken) == 0 || len(capture.From(spoken, mac)) != len(spoken) || spoken[0].Port != "ul-n1" {
		t.Errorf("frames for %s, which has MAC %s on n1: %v", pod.IPs[0], mac, spoken)
	}
	if err := host.Remove(); err != nil {
		t.Error(err)
	}
}

func (r *rig) apiServerAway(ctx context.Context, t *testing.T) {
	from, to := r.pod(ctx, t, 1), r.pod(ctx, t, 2)
	if err := r.StopAPIServer(ctx); err != nil {
		t.Fatal(err)
	}
	if err := answers(ctx, from, to); err != nil {
		t.Error(err)
	}
	if err := r.StartAPIServer(ctx); err != nil {
		t.Fatal(err)
	}
	if err := r.WaitReady(ctx); err != nil {
		t.Error(err)
	}
}

func (r *rig) zombieAnswers(ctx context.Context, t *testing.T) {
	zombie, prober := r.pod(ctx, t, 1), r.pod(ctx, t, 2)
	if err := zombie.Node.CutManagement(); err != nil {
		t.Fatal(err)
	}
	started := time.Now()
	eventually(ctx, t, "the deletion of the pod on the cut node", func() error {
		// A DaemonSet's pod tolerates the node's absence; a person does not.
		node, err := r.client.CoreV1().Nodes().Get(ctx, "n1", metav1.GetOptions{})
		if err != nil {
			return err
		}
		for _, taint := range node.Spec.Taints {
			if taint.Key == corev1.TaintNodeUnreachable && taint.Effect == corev1.TaintEffectNoExecute {
				return nil
			}
		}
		return errors.New("the node counts as reachable")
	})
	t.Logf("unreachable after %s", time.Since(started).Round(100*time.Millisecond))
	now := int64(0)
	if err := r.client.CoreV1().Pods("default").Delete(ctx, zombie.Name, metav1.DeleteOptions{GracePeriodSeconds: &now}); err != nil {
		t.Fatal(err)
	}
	if err := answers(ctx, prober, zombie); err != nil {
		t.Error(err)
	}
	if _, err := zombie.Exec(ctx, "ping", "-q", "-c", "1", "-W", "3", prober.IPs[0].String()); err != nil {
		t.Error(err)
	}
	if err := zombie.Node.HealManagement(); err != nil {
		t.Fatal(err)
	}
	eventually(ctx, t, "the end of the zombie on the healed node", func() error {
		if zombie.Alive() {
			return errors.New("it is alive")
		}
		return nil
	})
	if err := r.WaitReady(ctx); err != nil {
		t.Error(err)
	}
}

func (r *rig) underlayCut(ctx context.Context, t *testing.T) {
	cut, prober := r.pod(ctx, t, 1), r.pod(ctx, t, 2)
	if err := cut.Node.CutUnderlay(); err != nil {
		t.Fatal(err)
	}
	if err := answers(ctx, prober, cut); err == nil {
		t.Error("a pod behind a cut underlay answers")
	}
	if err := cut.Node.HealUnderlay(); err != nil {
		t.Fatal(err)
	}
	if err := answers(ctx, prober, cut); err != nil {
		t.Error(err)
	}
}

// outlives deletes the pod by force while something keeps it from ending.
func (r *rig) outlives(ctx context.Context, t *testing.T, pod *cluster.Pod, release func() error) {
	t.Helper()
	prober := r.pod(ctx, t, 2)
	now := int64(0)
	if err := r.client.CoreV1().Pods("default").Delete(ctx, pod.Name, metav1.DeleteOptions{GracePeriodSeconds: &now}); err != nil {
		t.Fatal(err)
	}
	eventually(ctx, t, "the pod's object to go", func() error {
		_, err := r.client.CoreV1().Pods("default").Get(ctx, pod.Name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return errors.Join(errors.New("it is still there"), err)
	})
	r.pod(ctx, t, 3) // its successor runs beside it
	if err := answers(ctx, prober, pod); err != nil {
		t.Error(err)
	}
	if err := release(); err != nil {
		t.Fatal(err)
	}
	eventually(ctx, t, "the end of the pod", func() error {
		if pod.Alive() {
			return errors.New("it is alive")
		}
		return nil
	})
}

func (r *rig) frozenPod(ctx context.Context, t *testing.T) {
	pod := r.pod(ctx, t, 3)
	if err := pod.Freeze(ctx); err != nil {
		t.Fatal(err)
	}
	r.outlives(ctx, t, pod, func() error { return pod.Thaw(ctx) })
}

func (r *rig) stoppedShim(ctx context.Context, t *testing.T) {
	pod := r.pod(ctx, t, 3)
	if err := pod.StopShim(); err != nil {
		t.Fatal(err)
	}
	r.outlives(ctx, t, pod, pod.ContinueShim)
}

func (r *rig) daemonRestarts(ctx context.Context, t *testing.T) {
	node := r.Node(2)
	if err := node.Kill(ctx, "kubelet"); err != nil {
		t.Fatal(err)
	}
	if n, err := node.Signal("kubelet", syscall.SIGTERM); err != nil || n != 0 {
		t.Errorf("%d kubelets after the kill, %v", n, err)
	}
	if err := node.StartDaemon(ctx, "kubelet"); err != nil {
		t.Fatal(err)
	}
	if n, err := node.Signal("app", 0); err != nil || n != 1 {
		t.Errorf("%d processes called app on the node, %v; want the container's", n, err)
	}
	if err := r.WaitReady(ctx); err != nil {
		t.Error(err)
	}
}

func (r *rig) powerCycle(ctx context.Context, t *testing.T) {
	pod, prober := r.pod(ctx, t, 1), r.pod(ctx, t, 2)
	if err := pod.Freeze(ctx); err != nil { // the power cord does not care
		t.Fatal(err)
	}
	if err := pod.Node.PowerOff(ctx); err != nil {
		t.Fatal(err)
	}
	if err := answers(ctx, prober, pod); err == nil {
		t.Error("a pod of a node that is off answers")
	}
	if err := pod.Node.PowerOn(ctx); err != nil {
		t.Fatal(err)
	}
	if err := r.WaitReady(ctx); err != nil {
		t.Fatal(err)
	}
	eventually(ctx, t, "an answer from the booted node", func() error { return answers(ctx, prober, r.pod(ctx, t, 1)) })
}
