// SPDX-License-Identifier: Apache-2.0

//go:build kernel && guest

package subinterface

import (
	"slices"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/fenceline/fenceline/test/check"
	"github.com/fenceline/fenceline/test/network"
)

func TestGuestSubinterfacesComeAndGo(t *testing.T) {
	ns, pod := network.New(t, "node"), network.New(t, "pod")
	check.OK(t, ns.AddBridge("eth1"))
	floor := Wanted{Name: "eth1.100", Parent: "eth1", ID: 100, Of: "pool floor"}
	all := func() (links []Link) {
		t.Helper()
		check.OK(t, ns.Do(func() (err error) { links, err = Kernel{}.Links(); return err }))
		return links
	}
	look := func() Link {
		t.Helper()
		l, _ := find(all(), func(l Link) bool { return l.Name == "eth1.100" })
		return l
	}
	check.OK(t, ns.SetUp("eth1", false))
	check.OK(t, ns.Do(func() error { return Kernel{}.Make(floor) })) // while its parent is down
	made := look()
	check.Must(t, made.VLAN == 100 && made.Ours && !made.Used && made.Lower == check.Value(ns.Index("eth1"))(t), "made %+v", made)
	check.OK(t, ns.SetUp("eth1", true))
	check.OK(t, ns.Do(func() error { return Kernel{}.SetUp(made) }))
	check.That(t, look().Up, "it is down")

	// The real plugin makes the interface of a pod like this one.
	check.OK(t, ns.AddMacvlan("eth1.100", nil, pod, "net1"))
	check.OK(t, pod.SetUp("net1", true))
	check.That(t, look().Used, "the interface of a pod does not use it")
	check.OK(t, pod.DeleteLink("net1"))
	check.That(t, !look().Used, "it is used by nothing")

	// The same ID under another name, and the same name with another ID.
	links := all()
	p := MakePlan([]Wanted{floor}, links)
	check.That(t, len(p.Make)+len(p.Remove)+len(p.Refused) == 0, "plan %+v", p)
	check.OK(t, ns.Do(func() error { return Kernel{}.Remove(made) }))
	check.OK(t, ns.Do(func() error { return Kernel{}.Remove(made) })) // again
	check.Same(t, look(), Link{}, "it was not removed:")
	other := &netlink.Vlan{LinkAttrs: netlink.LinkAttrs{Name: "eth1.100", ParentIndex: made.Lower}, VlanId: 200}
	check.OK(t, ns.Links().LinkAdd(other))
	links = all()
	p = MakePlan([]Wanted{floor}, links)
	check.That(t, p.Refused["eth1.100"] != nil && len(p.Make)+len(p.Remove) == 0, "plan %+v", p)
	check.That(t, !slices.ContainsFunc(links, func(l Link) bool { return l.Ours }), "what somebody else made counts as ours")
}
