// SPDX-License-Identifier: Apache-2.0

//go:build kernel

package nodes_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/test/capture"
	"github.com/fenceline/fenceline/test/namespaces"
	"github.com/fenceline/fenceline/test/nodes"
)

// The MAC moves with the address of a StatefulSet's pod: first to another node, then by force away from
// a zombie. A host that never learns another neighbour entry reaches the pod each time. The kernel of
// the zombie, which has the same MAC, acknowledges the claim.
func TestTheMACMovesWithTheAddressOfAName(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 2*nodes.Limit)
	defer cancel()
	c := nodes.New(t, 3)
	c.FromIPPool("v4", "10.66.0.0/24", "10.66.0.2-10.66.0.9", "0a:58")
	check(t, c.Create(ctx, setOf("web", 1)))
	c.StartController()
	host := c.Host(netip.MustParsePrefix("10.66.0.1/24"))
	o := &off{Cluster: c, t: t, ctx: ctx}
	w := &name{Cluster: c, t: t, ctx: ctx}

	first := w.begin(c.Nodes[0])
	mac := fromAddress(first.Addr)
	check(t, host.Command(ctx, "ip", "neigh", "replace", first.Addr.String(), "lladdr", mac.String(), "nud", "permanent", "dev", namespaces.HostInterface).Run())
	reached := func(s *nodes.Sandbox) {
		t.Helper()
		if s.Addr != first.Addr || s.MAC.String() != mac.String() {
			t.Errorf("web-0 had %s with %s, and has %s with %s", first.Addr, mac, s.Addr, s.MAC)
		}
		l := &v1alpha1.IPLease{}
		check(t, c.Get(ctx, client.ObjectKey{Name: s.Addr.String()}, l))
		if l.Spec.Holder == nil || l.Spec.Holder.MAC != mac.String() {
			t.Errorf("the lease names %+v", l.Spec.Holder)
		}
		check(t, host.Command(ctx, "ping", "-q", "-c", "1", "-w", "30", s.Addr.String()).Run())
	}
	reached(first)
	w.end(first)
	second := w.begin(c.Nodes[1])
	reached(second)

	// Its node is cut off from the API server and has no agent. Its pod lives on.
	check(t, c.Nodes[1].KillAgent())
	o.report(c.Nodes[1], corev1.ConditionUnknown)
	check(t, c.ForgetPod(ctx, second.Pod))
	second.Abandon()
	third := w.begin(c.Nodes[2])
	reached(third)
	c.Eventually(t, "the take-over was fenced", func() error { return saidFenced(ctx, c, third) })

	// The zombie tries to speak.
	spoken := func() []capture.Frame {
		return capture.From(capture.SpokenFor(capture.After(c.Frames.Frames(), third.Since), third.Addr), mac)
	}
	c.Eventually(t, "the third pod's frames are captured", func() error {
		if len(spoken()) == 0 {
			return errors.New("there are none")
		}
		return nil
	})
	home := spoken()[len(spoken())-1].Port
	_ = second.Command(ctx, "ping", "-q", "-c", "3", "-i", "0.2", "-w", "2", "10.66.0.1").Run()
	reached(third)
	for _, f := range spoken() {
		if f.Port != home {
			t.Errorf("the zombie spoke: %s", f)
		}
	}
	check(t, errors.Join(c.Nodes[1].StartAgent(), c.Nodes[1].AwaitAgent(ctx)))
	o.report(c.Nodes[1], corev1.ConditionTrue)
	check(t, second.End(ctx))
	reached(third)
	c.Eventually(t, "the leases are those of the living", func() error { return c.LeasesAreLiving(ctx) })
}

// fromAddress is the MAC of an IPv4 address with the prefix 0a:58.
func fromAddress(addr netip.Addr) net.HardwareAddr {
	return append(net.HardwareAddr{0x0a, 0x58}, addr.AsSlice()...)
}

// saidFenced returns an error until an event says that the take-over of a sandbox was fenced.
func saidFenced(ctx context.Context, c *nodes.Cluster, s *nodes.Sandbox) error {
	all := &eventsv1.EventList{}
	if err := c.List(ctx, all, client.InNamespace(nodes.Shop)); err != nil {
		return err
	}
	var notes []string
	for _, e := range all.Items {
		if e.Regarding.UID == s.Pod.UID {
			notes = append(notes, e.Reason+": "+e.Note)
		}
	}
	// A verification by a node may have fenced it before.
	fenced := capture.Of(c.Frames.Frames(), "ack")
	if len(fenced) == 0 {
		return fmt.Errorf("no ack was sent; the events are %q", strings.Join(notes, "; "))
	}
	return nil
}
