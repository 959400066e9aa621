// SPDX-License-Identifier: Apache-2.0

//go:build kernel && guest

package nodes_test

import (
	"errors"
	"net/netip"
	"slices"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fenceline/fenceline/agent/segment/claim"
	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/test/capture"
	"github.com/fenceline/fenceline/test/check"
	"github.com/fenceline/fenceline/test/namespaces"
	"github.com/fenceline/fenceline/test/nodes"
)

// All pods of a node have the MAC of the parent. A pod has all that a macvlan pod has. Its address
// is taken while its agent is dead. The claim asks for this holder by its token, so the pod beside
// it, with the same MAC, still speaks.
func TestGuestPodsOnIPVLAN(t *testing.T) {
	c, lan := newInGuest(t)
	c.StartController()
	c.NamedPool("one", "10.66.0.0/24", "10.66.0.20")
	c.NamedPool("others", "10.66.0.0/24", "10.66.0.30-10.66.0.39")
	outside := lan.Host(t, "outside", "eth0", netip.MustParsePrefix("10.66.0.1/24"))
	dark, light, o := c.Nodes[0], c.Nodes[1], &off{Cluster: c, t: t, ctx: t.Context()}
	const plugin = `"type":"ipvlan","mode":"l2","master":"` + namespaces.Parent + `"`
	zombie := attached(t, dark, "zombie", plugin, nodes.Wants("one"))
	beside := attached(t, dark, "beside", plugin, nodes.Wants("others"))
	far := attached(t, light, "far", plugin, nodes.Wants("others"))
	l := &v1alpha1.IPLease{}
	check.OK(t, c.Get(t.Context(), client.ObjectKey{Name: zombie.Addr.String()}, l))
	parent := check.Value(dark.MAC(namespaces.Parent))(t).String()
	check.List(t, []string{zombie.MAC.String(), beside.MAC.String(), l.Spec.Holder.MAC}, []string{parent, parent, parent}, "MACs of pods and lease")

	whole := func(s *nodes.Sandbox) {
		t.Helper()
		check.That(t, check.Value(s.Guarded())(t), "%s is not guarded", s.Addr)
		at := netip.AddrPortFrom(s.Addr, 8080)
		knows(t, "a probe", dark.Namespace, netip.Addr{}, "tcp", at, nodeAddress(1))
		knows(t, "the pod of the other node", far.Namespace, netip.Addr{}, "tcp", at, far.Addr)
		knows(t, "a host", outside, netip.Addr{}, "tcp", at, netip.MustParseAddr("10.66.0.1"))
	}
	for _, s := range []*nodes.Sandbox{zombie, beside} {
		serve(t, s.Namespace, "tcp", netip.AddrPortFrom(s.Addr, 8080))
		whole(s)
	}
	knows(t, "the pod beside", zombie.Namespace, netip.Addr{}, "tcp", netip.AddrPortFrom(beside.Addr, 8080), zombie.Addr)
	mute(t, zombie, beside.Addr)
	check.OK(t, dark.KillAgent())
	check.OK(t, dark.AwaitAgent(t.Context()))
	whole(zombie)
	mute(t, zombie, beside.Addr)

	token := check.Value(dark.Entries())(t)[zombie.Attachment()].Addresses[0].Token
	check.OK(t, dark.KillAgent())
	dark.ShutAPI(true)
	o.report(dark, corev1.ConditionUnknown)
	zombie.Abandon()
	check.OK(t, c.ForgetPod(t.Context(), zombie.Pod))
	next := attached(t, light, "next", plugin, nodes.Wants("one"))
	check.Equal(t, next.Addr, zombie.Addr, "the next pod has")
	c.Eventually(t, "the take-over was fenced", func() error { return saidFenced(t.Context(), c, next) })
	acks := capture.About(capture.Of(c.Frames.Frames(), "ack"), zombie.Addr)
	check.That(t, slices.ContainsFunc(acks, func(a capture.Frame) bool {
		f, err := claim.Unmarshal(a.Payload, claimKey)
		return err == nil && f.Flags == claim.Asks(token)|claim.FlagAck && a.Source.String() == parent
	}), "no ack of the holder with the token %d: %v", token, acks)
	mute(t, zombie, zombie.Addr)
	serve(t, next.Namespace, "tcp", netip.AddrPortFrom(next.Addr, 8080))
	knows(t, "the next pod", outside, netip.Addr{}, "tcp", netip.AddrPortFrom(next.Addr, 8080), netip.MustParseAddr("10.66.0.1"))
	knows(t, "the next pod, from the pod beside the zombie", beside.Namespace, netip.Addr{}, "tcp", netip.AddrPortFrom(next.Addr, 8080), beside.Addr)
	whole(beside)

	dark.ShutAPI(false)
	check.OK(t, errors.Join(dark.StartAgent(), dark.AwaitAgent(t.Context())))
	o.report(dark, corev1.ConditionTrue)
	for _, s := range []*nodes.Sandbox{zombie, beside, far, next} {
		check.OK(t, errors.Join(s.End(t.Context()), c.ForgetPod(t.Context(), s.Pod)))
	}
	c.Eventually(t, "all is given back", func() error { return c.LeasesAreLiving(t.Context()) })
}

// mute fails the test unless a pod's kernel refuses each announcement of an address from the pod.
func mute(t *testing.T, s *nodes.Sandbox, addr netip.Addr) {
	t.Helper()
	var sent, refused atomic.Int64
	stop := check.Value(s.Cry(namespaces.PodInterface, addr, &sent, &refused))(t)
	check.Becomes(t, patience, "refused frames", func() bool { return refused.Load()+sent.Load() >= 3 })
	stop()
	check.That(t, sent.Load() == 0, "%d frames of %s for %s were sent", sent.Load(), s.ContainerID, addr)
}
