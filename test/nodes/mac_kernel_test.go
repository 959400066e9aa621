// SPDX-License-Identifier: Apache-2.0

//go:build kernel

package nodes_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os/exec"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fenceline/fenceline/agent/segment"
	"github.com/fenceline/fenceline/agent/segment/wire"
	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/internal/frames"
	"github.com/fenceline/fenceline/test/capture"
	"github.com/fenceline/fenceline/test/check"
	"github.com/fenceline/fenceline/test/namespaces"
	"github.com/fenceline/fenceline/test/nodes"
)

// The MAC moves with the address of a StatefulSet's pod: first to another node, then by force away
// from a zombie. A host that never updates its neighbour entry still reaches the pod. The kernel of
// the zombie, which has the same MAC, acknowledges the claim.
func TestTheMACMovesWithTheAddressOfAName(t *testing.T) {
	ctx, c := cluster(t, 2*nodes.Limit, 3)
	c.FromIPPool("v4", "10.66.0.0/24", "10.66.0.2-10.66.0.9", "0a:58")
	check.OK(t, c.Create(ctx, setOf("web", 1)))
	c.StartController()
	host := c.Host(netip.MustParsePrefix("10.66.0.1/24"))
	o := &off{Cluster: c, t: t, ctx: ctx}
	w := &name{Cluster: c, t: t, ctx: ctx}

	first := w.begin(c.Nodes[0])
	mac := fromAddress(first.Addr)
	check.OK(t, host.Command(ctx, "ip", "neigh", "replace", first.Addr.String(), "lladdr", mac.String(), "nud", "permanent", "dev", namespaces.HostInterface).Run())
	reached := func(s *nodes.Sandbox) {
		t.Helper()
		check.That(t, s.Addr == first.Addr && s.MAC.String() == mac.String(), "web-0 had %s with %s, and has %s with %s", first.Addr, mac, s.Addr, s.MAC)
		l := &v1alpha1.IPLease{}
		check.OK(t, c.Get(ctx, client.ObjectKey{Name: s.Addr.String()}, l))
		if l.Spec.Holder == nil || l.Spec.Holder.MAC != mac.String() {
			t.Errorf("the lease names %+v", l.Spec.Holder)
		}
		check.OK(t, host.Command(ctx, "ping", "-q", "-c", "1", "-w", "30", s.Addr.String()).Run())
	}
	reached(first)
	w.end(first)
	second := w.begin(c.Nodes[1])
	reached(second)

	// Its node is cut off from the API server and has no agent. Its pod lives on.
	check.OK(t, c.Nodes[1].KillAgent())
	o.report(c.Nodes[1], corev1.ConditionUnknown)
	check.OK(t, c.ForgetPod(ctx, second.Pod))
	second.Abandon()
	third := w.begin(c.Nodes[2])
	reached(third)
	c.Eventually(t, "the take-over was fenced", func() error { return saidFenced(ctx, c, third) })

	// The zombie tries to speak.
	spoken := func() []capture.Frame {
		return capture.From(capture.SpokenFor(capture.After(c.Frames.Frames(), third.Since), third.Addr), mac)
	}
	speaksLater := func(than time.Time) {
		t.Helper()
		c.Eventually(t, "the third pod's frames are captured", func() error {
			if all := spoken(); len(all) == 0 || !all[len(all)-1].Time.After(than) {
				return errors.New("there are none")
			}
			return nil
		})
	}
	speaksLater(third.Since)
	home := spoken()[len(spoken())-1].Port
	refused(t, second)
	err := second.Command(ctx, "ping", "-q", "-c", "3", "-i", "0.2", "-w", "2", "10.66.0.1").Run()
	if _, unanswered := errors.AsType[*exec.ExitError](err); !unanswered {
		t.Errorf("the zombie pings: %v", err)
	}
	tried := time.Now()
	reached(third)
	speaksLater(tried) // what the zombie has said would be captured before
	for _, f := range spoken() {
		check.That(t, f.Port == home, "the zombie spoke: %s", f)
	}
	check.OK(t, errors.Join(c.Nodes[1].StartAgent(), c.Nodes[1].AwaitAgent(ctx)))
	o.report(c.Nodes[1], corev1.ConditionTrue)
	check.OK(t, second.End(ctx))
	reached(third)
	c.Eventually(t, "the leases are those of the living", func() error { return c.LeasesAreLiving(ctx) })
}

// fromAddress is the MAC of an IPv4 address with the prefix 0a:58.
func fromAddress(addr netip.Addr) net.HardwareAddr {
	return append(net.HardwareAddr{0x0a, 0x58}, addr.AsSlice()...)
}

// refused sends frames from a sandbox, and fails the test unless the kernel refuses each of them.
func refused(t *testing.T, s *nodes.Sandbox) {
	t.Helper()
	out := check.Value(wire.OpenPort(s.Path(), namespaces.PodInterface))(t)
	for range 10 {
		for _, f := range check.Value(frames.Announce(s.MAC, s.Addr))(t) {
			if err := out.Send(f); !errors.Is(err, unix.ENOBUFS) {
				t.Errorf("a frame of %s on %s was not refused: %v", s.Addr, s.Node().Name, err)
			}
		}
	}
	check.OK(t, out.Close())
}

// saidFenced returns an error until an event reports that the last holder of a sandbox's address was
// fenced, with the ack as proof. The ADD that took the address reports it, or an earlier
// verification.
func saidFenced(ctx context.Context, c *nodes.Cluster, s *nodes.Sandbox) error {
	all := &eventsv1.EventList{}
	if err := c.List(ctx, all); err != nil {
		return err
	}
	var notes []string
	said := false
	for _, e := range all.Items {
		ofADD := e.Regarding.UID == s.Pod.UID
		if ofADD || e.Regarding.Name == s.Addr.String() {
			notes = append(notes, e.Reason+": "+e.Note)
		}
		said = said || e.Reason == "Fenced" && e.Regarding.Name == s.Addr.String() ||
			e.Reason == "AddressTakenOver" && ofADD && strings.HasSuffix(e.Note, string(segment.Fenced))
	}
	if !said || len(capture.About(capture.Of(c.Frames.Frames(), "ack"), s.Addr)) == 0 {
		return fmt.Errorf("no such event, or no ack of %s; the events are %q", s.Addr, strings.Join(notes, "; "))
	}
	return nil
}
