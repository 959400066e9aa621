// SPDX-License-Identifier: Apache-2.0

//go:build kernel && guest

package vf_test

import (
	"errors"
	"net"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/test/capture"
	"github.com/fenceline/fenceline/test/check"
	"github.com/fenceline/fenceline/test/namespaces"
	"github.com/fenceline/fenceline/test/nodes"
	"github.com/fenceline/fenceline/test/vf"
)

// A pod drives its VF itself, as with DPDK: ADD finds no interface, and there is never a guard. (The kernel's
// driver takes the place of this program later.) Its node is cut off from the API server, and another host claims
// its address. The agent tells the PF to switch the VF off, and acks only then.
func TestGuestAVFWithoutAnInterface(t *testing.T) {
	c := vf.New(t, 2)
	c.StartController()
	c.NamedPool("one", "10.66.0.0/24", "10.66.0.20")
	c.NamedPool("others", "10.66.0.0/24", "10.66.0.30-10.66.0.39")
	p, dark, host := podsOf(c, vf.HostDevice, vf.Delegated), c.Nodes[0], c.LAN.Hosts[0]
	v := check.Value(host.VFs())(t)[0]
	beside := p.add(t, 1, 1, nodes.Wants("others"))
	// Without a driver, the VF has the MAC of its PF only, as the plugin sets it by "mac".
	check.OK(t, host.Links().LinkSetVfHardwareAddr(pf(t, host), 0, net.HardwareAddr{2, 0, 0, 0, 0x99, 1}))
	check.OK(t, host.Drive(v, "uio_pci_generic"))

	pod := check.Value(dark.NewPod(t.Context(), "dpdk", nodes.Wants("one")))(t)
	zombie := check.Value(c.NewSandbox(1, pod, v, vf.HostDevice, vf.Delegated))(t)
	zombie.UserDriven = true
	check.OK(t, zombie.Add(t.Context()))
	l := &v1alpha1.IPLease{}
	check.OK(t, c.Get(t.Context(), client.ObjectKey{Name: v1alpha1.LeaseName("", zombie.Addr)}, l))
	info := pf(t, host).Attrs().Vfs[0]
	if h := l.Spec.Holder; h.Guarded || h.MAC != info.Mac.String() || l.Spec.Parent != namespaces.Parent {
		t.Errorf("the lease is of %+v on %s, want no guard, MAC %s on %s", h, l.Spec.Parent, info.Mac, namespaces.Parent)
	}
	check.OK(t, host.Drive(v, ""))
	check.OK(t, host.Collect(beside.Namespace))
	give(t, host, v, zombie.Namespace)
	vf.AwaitCarrier(t, zombie.Namespace, namespaces.PodInterface)
	zombie.MAC = check.Value(zombie.Namespace.MAC(namespaces.PodInterface))(t)
	ear, shout := listen(t, beside.Namespace, zombie), newShout(t, zombie, beside)
	check.Eventually(t, limit, "frames of the program at the VF beside", func() error { return ear.heardSince(time.Time{}) })

	dark.ShutAPI(true)
	begun := time.Now()
	check.OK(t, errors.Join(dark.Report(t.Context(), corev1.ConditionUnknown), zombie.Outlive(t.Context())))
	next := p.begin(t, 2, 0, nodes.Wants("one"))
	about := capture.About(capture.After(c.Frames.Frames(), begun), zombie.Addr)
	claims, acks := capture.Of(about, "claim"), capture.From(capture.Of(about, "ack"), check.Value(host.MAC(namespaces.Parent))(t))
	if len(claims) == 0 || len(acks) == 0 || next.Addr != zombie.Addr {
		t.Fatalf("%d claims, %d acks of the PF, next pod with %s: %v", len(claims), len(acks), next.Addr, about)
	}
	shout.more(t, 500)
	check.That(t, ear.heardSince(acks[0].Time.Add(lateLimit)) != nil, "the VF beside hears the program after the ack")
	shout.stop()

	dark.ShutAPI(false)
	check.OK(t, dark.Report(t.Context(), corev1.ConditionTrue))
	check.OK(t, host.Drive(v, "uio_pci_generic"))
	check.That(t, cutOff(t, host), "the VF is on before its DEL")
	check.OK(t, zombie.Del(t.Context()))
	check.Becomes(t, limit, "the VF is on again", func() bool { return !cutOff(t, host) })
	check.OK(t, errors.Join(host.Drive(v, ""), host.Collect(beside.Namespace)))
	p.removeAll(t, beside, next)
}
