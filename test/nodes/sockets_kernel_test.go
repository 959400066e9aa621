// SPDX-License-Identifier: Apache-2.0

//go:build kernel

package nodes_test

import (
	"errors"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/test/check"
	"github.com/fenceline/fenceline/test/nodes"
)

// raw opens a raw socket in a pod. Its frames skip the queue of the interface, and so its guard, if err is nil.
func raw(t *testing.T, pod *nodes.Sandbox) (socket int, err error) {
	t.Helper()
	check.OK(t, pod.Do(func() (e error) {
		socket, e = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
		return e
	}))
	return socket, unix.SetsockoptInt(socket, unix.SOL_PACKET, unix.PACKET_QDISC_BYPASS, 1)
}

// skips returns the error of a raw socket of a pod.
func skips(t *testing.T, pod *nodes.Sandbox) error {
	t.Helper()
	socket, err := raw(t, pod)
	check.OK(t, unix.Close(socket))
	return err
}

func TestPodsGetNoSocketThatSkipsTheirGuard(t *testing.T) {
	ctx, c := cluster(t, nodes.Limit, 1)
	pool := c.Pool("v4", "10.66.0.0/24", "10.66.0.2-10.66.0.9")
	n := c.Nodes[0]
	again := func(flags ...string) {
		t.Helper()
		check.OK(t, n.StopAgent())
		n.Flags = flags
		check.OK(t, errors.Join(n.StartAgent(), n.AwaitAgent(ctx)))
	}
	again("--cgroup-dir=")
	old, plain := started(ctx, t, n, "old", nil), started(ctx, t, n, "plain", nil)
	socket, err := raw(t, old)
	check.OK(t, err)
	defer unix.Close(socket)
	metric := func() float64 { return check.Value(n.Sum(ctx, "fenceline_socket_guard", nil))(t) }
	check.Equal(t, metric(), 0, "switched off, the metric:")

	again()
	check.Equal(t, metric(), 1, "the metric:")
	young := started(ctx, t, n, "young", nil)
	all := map[string]*nodes.Sandbox{"from before, with a raw socket": old, "from before": plain, "new": young}
	refused := func(when string) {
		t.Helper()
		for name, pod := range all {
			check.Is(t, skips(t, pod), unix.EPERM, "%s, a pod %s:", when, name)
		}
	}
	refused("with the agent")
	c.Eventually(t, "an event of the pod with the raw socket", func() error {
		return eventOf(ctx, c, "Pod", old.Pod.Name, "RawSocketsKept", "eth0")
	})
	others := check.Value(countEvents(ctx, c, "Pod", plain.Pod.Name, "RawSocketsKept", ""))(t)
	check.Equal(t, others, 0, "events of the pod without one:")

	pool.Spec.SourceGuardAllow = &v1alpha1.SourceGuardAllow{Roles: []v1alpha1.SourceGuardRole{v1alpha1.RoleDirectTransmit}}
	change(ctx, t, c, pool)
	c.Eventually(t, "the edit reaches a running pod", func() error { return skips(t, young) })
	pool.Spec.SourceGuardAllow = nil
	change(ctx, t, c, pool)
	c.Eventually(t, "the edit is taken back", func() error {
		if skips(t, young) == nil {
			return errors.New("allowed")
		}
		return nil
	})
	check.OK(t, n.KillAgent())
	refused("without the agent")
}
