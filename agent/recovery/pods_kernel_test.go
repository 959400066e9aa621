// SPDX-License-Identifier: Apache-2.0

//go:build kernel

package recovery_test

import (
	"bytes"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/bpf"
	"github.com/fenceline/fenceline/test/capture"
	"github.com/fenceline/fenceline/test/fakenode"
	"github.com/fenceline/fenceline/test/network"
)

func TestPodsOfTwoNodesGetAddressesPastAForeignHost(t *testing.T) {
	u := newUnderlay(t, fakenode.V4("10.0.0.2-10.0.0.4"))
	host := u.Host(netip.MustParsePrefix("10.0.0.2/24"), nil)
	m1, m2 := u.machine(1), u.machine(2)
	a, b := m1.guest("a", "u1"), m2.guest("b", "u2")
	check(t, a.add())
	check(t, b.add())
	if a.addr.String() != "10.0.0.3" || b.addr.String() != "10.0.0.4" {
		t.Errorf("got %s and %s", a.addr, b.addr)
	}
	l := u.api.Leases()["10.0.0.2"]
	if l == nil || l.Spec.State != v1alpha1.StateQuarantined || l.Spec.Conflict.MAC != host.MAC.String() {
		t.Errorf("the foreign host's lease: %+v", l)
	}
	for _, pair := range []struct {
		from *network.Namespace
		to   netip.Addr
	}{{a.Namespace, b.addr}, {b.Namespace, a.addr}, {host.Namespace, a.addr}, {host.Namespace, b.addr}} {
		if !reaches(t.Context(), pair.from, pair.to) {
			t.Errorf("%s does not answer %s", pair.to, pair.from.Name)
		}
	}
}

func TestAfterADELNoFrameFollowsTheLeasesEnd(t *testing.T) {
	u := newUnderlay(t, fakenode.V4("10.0.0.2"))
	host := u.Host(netip.MustParsePrefix("10.0.0.9/24"), nil)
	a := u.machine(1).guest("a", "u1")
	check(t, a.add())
	frames := u.Capture()
	freed := make(chan time.Time, 1)
	slot := a.machine.slot(a)
	u.api.Freed = func(*v1alpha1.IPLease) {
		freed <- time.Now()
		if dead, err := a.machine.Guards.Kernel.(fakenode.MortalKernel).Kernel.(*bpf.Kernel).SlotDead(slot); err != nil || !dead {
			t.Errorf("the lease ends before its slot (%v)", err)
		}
	}
	// 500 questions a second while the pod is deleted, whose interface lives on.
	ping := host.Command(t.Context(), "ping", "-q", "-i", "0.002", a.addr.String())
	check(t, ping.Start())
	spoken := func() []capture.Frame { return capture.From(capture.SpokenFor(frames.Frames(), a.addr), a.mac) }
	u.eventually("the pod answers", func() bool { return len(spoken()) > 20 })
	a.del()
	// Where two cores carry two machines, a frame that has passed the guard may be on its way.
	at := (<-freed).Add(20 * time.Millisecond)
	u.eventually("it is asked after the lease's end", func() bool { return len(capture.After(capture.From(frames.Frames(), host.MAC), at)) > 100 })
	check(t, ping.Process.Kill())
	_ = ping.Wait() // says that it was killed
	if late := capture.After(spoken(), at); len(late) > 0 {
		t.Errorf("%d frames after the lease's end, the first %s later: %v", len(late), late[0].Time.Sub(at), late[0])
	}
	if len(u.api.Leases()) != 0 {
		t.Errorf("leases %v", u.api.Leases())
	}
}

func TestPodsDoNotNoticeARestartOfTheAgent(t *testing.T) {
	u := newUnderlay(t, fakenode.V4("10.0.0.2-10.0.0.4"))
	host := u.Host(netip.MustParsePrefix("10.0.0.9/24"), nil)
	m := u.machine(1)
	a := m.guest("a", "u1")
	check(t, a.add())
	var out bytes.Buffer
	ping := host.Command(t.Context(), "ping", "-q", "-i", "0.01", "-c", "150", "-W", "1", a.addr.String())
	ping.Stdout = &out
	check(t, ping.Start())
	before, _ := m.Journal.Get(a.request.ContainerID, a.request.Interface)
	m.stop()
	m.start()
	m.resumeAll()
	// The lease is deleted by hand: the pod keeps its address under a new one.
	old := u.api.Leases()[a.addr.String()]
	u.api.Drop(old)
	m.Recovery.Changed(old.Name)
	m.resumeAll()
	check(t, ping.Wait())
	if want := "150 received, 0% packet loss"; !strings.Contains(out.String(), want) {
		t.Errorf("want %q: %s", want, out.String())
	}
	l := u.api.Leases()[old.Name]
	after, _ := m.Journal.Get(a.request.ContainerID, a.request.Interface)
	if l == nil || l.UID == old.UID || after.Slot != before.Slot || after.Addresses[0].Token <= before.Addresses[0].Token {
		t.Errorf("lease %v, journal %+v", l, after)
	}
	b := m.guest("b", "u2")
	check(t, b.add())
	if sb := m.slot(b); sb == after.Slot || !reaches(t.Context(), host.Namespace, b.addr) {
		t.Errorf("the next pod has slot %d beside %d, or is mute", sb, after.Slot)
	}
}

// The whole story of a zombie, with the zombie's agent dead.
func TestAStatefulSetPodTakesItsAddressFromAZombieWhoseAgentIsDead(t *testing.T) {
	u := newUnderlay(t, fakenode.V4("10.0.0.2-10.0.0.4"))
	host := u.Host(netip.MustParsePrefix("10.0.0.9/24"), nil)
	m1, m2 := u.machine(1), u.machine(2)
	zombie := m1.guest("web-0", "u1", fakenode.OfStatefulSet)
	check(t, zombie.add())
	m1.stop()
	if !reaches(t.Context(), host.Namespace, zombie.addr) {
		t.Fatal("the zombie is dead")
	}
	l := u.api.Leases()[zombie.addr.String()]
	l.RecordToken()
	token := l.Spec.Holder.Token
	fakenode.Quarantined(v1alpha1.ReasonPodGone)(&l.Spec)
	l.Spec.Previous.Token = token // as the controller records it
	u.api.Put(l)
	frames := u.Capture()
	heir := m2.guest("web-0", "u2", fakenode.OfStatefulSet)
	check(t, heir.add())
	if heir.addr != zombie.addr || !reaches(t.Context(), host.Namespace, heir.addr) {
		t.Errorf("the heir of %s has %s, or is mute", zombie.addr, heir.addr)
	}
	claims := capture.Of(capture.About(frames.Frames(), heir.addr), "claim")
	if len(claims) == 0 {
		t.Fatalf("no claim among %v", frames.Frames())
	}
	settled := claims[0].Time.Add(20 * time.Millisecond)
	if late := capture.After(capture.From(capture.SpokenFor(frames.Frames(), heir.addr), zombie.mac), settled); len(late) > 0 {
		t.Errorf("the zombie speaks after the claim: %v", late)
	}
	if l := u.api.Leases()[heir.addr.String()]; l.Spec.State != v1alpha1.StateBound || l.Spec.NodeName != "n2" || l.Spec.Previous != nil {
		t.Errorf("lease %+v", l.Spec)
	}
	// The zombie's agent comes back, and cleans up without a word to the heir's lease.
	m1.start()
	m1.resumeAll()
	if len(m1.Journal.All()) != 0 || u.api.Leases()[heir.addr.String()].Spec.Holder.PodUID != "u2" {
		t.Errorf("journal %v, lease %+v", m1.Journal.All(), u.api.Leases()[heir.addr.String()].Spec.Holder)
	}
}

// The crash points of agent/holder's plain tests once more, over the real kernel.
func TestARealKernelAfterAnAgentDiedAtAnyStepOfADD(t *testing.T) {
	u := newUnderlay(t, fakenode.V4("10.0.0.2"))
	host := u.Host(netip.MustParsePrefix("10.0.0.9/24"), nil)
	m := u.machine(1)
	u.api.Freed = func(l *v1alpha1.IPLease) {
		for _, e := range m.Journal.All() {
			if dead, err := m.Guards.Kernel.(fakenode.MortalKernel).Kernel.(*bpf.Kernel).SlotDead(e.Slot); err != nil || e.Slot != 0 && !dead {
				t.Errorf("%s is free, and slot %d is not dead (%v)", l.Name, e.Slot, err)
			}
		}
	}
	for step := 0; ; step++ {
		g := m.guest("web", "u"+string(rune('a'+step)))
		m.death.Left = step
		err := g.add()
		died := m.death.Left == 0
		m.stop()
		m.start()
		m.resumeAll()
		if err == nil {
			if !reaches(t.Context(), host.Namespace, g.addr) {
				t.Errorf("step %d: the pod is mute", step)
			}
		}
		g.del()
		if err == nil {
			check(t, g.DeleteLink("eth0"))
		}
		check(t, m.Guards.Sweep())
		if left := m.Journal.All(); len(left) != 0 || len(u.api.Leases()) != 0 {
			t.Fatalf("step %d: journal %v, leases %v", step, left, u.api.Leases())
		}
		if leases, err := m.Guards.Kernel.Leases(); err != nil || len(leases) != 0 {
			t.Fatalf("step %d: the kernel holds %v, %v", step, leases, err)
		}
		if !died {
			break
		}
	}
}
