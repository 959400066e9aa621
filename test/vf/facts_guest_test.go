// SPDX-License-Identifier: Apache-2.0

//go:build kernel && guest

package vf_test

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/rlimit"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/fenceline/fenceline/test/check"
	"github.com/fenceline/fenceline/test/namespaces"
	"github.com/fenceline/fenceline/test/network"
	"github.com/fenceline/fenceline/test/vf"
)

// facts are rows of a table. A fact that the product relies on must have the wanted value.
type facts struct {
	t    *testing.T
	rows []string
}

func newFacts(t *testing.T) *facts {
	t.Helper()
	release := string(check.Value(os.ReadFile("/proc/sys/kernel/osrelease"))(t))
	f := &facts{t: t, rows: []string{"| fact | " + strings.TrimSpace(release) + " |"}}
	t.Cleanup(func() { t.Log("\n" + strings.Join(f.rows, "\n")) })
	return f
}

// saw adds a row. An empty want allows any value.
func (f *facts) saw(what, got, want string) {
	f.t.Helper()
	f.rows = append(f.rows, "| "+what+" | "+got+" |")
	check.That(f.t, want == "" || got == want, "%s: %s, want %s", what, got, want)
}

// did adds a row about a call.
func (f *facts) did(what string, err error, want string) {
	f.t.Helper()
	f.saw(what, outcome(err), want)
}

func outcome(err error) string {
	if err == nil {
		return "yes"
	}
	if errno := unix.Errno(0); errors.As(err, &errno) {
		return unix.ErrnoName(errno)
	}
	return err.Error()
}

// scene has VFs 0 and 1 of a host in two pods, its PF, and the PF of another host.
type scene struct {
	*facts
	stage
	host             *vf.Host
	pod, sibling     *network.Namespace
	a, b, own, other *spot
}

func newScene(t *testing.T) *scene {
	t.Helper()
	l := vf.NewLAN(t, 2)
	s := &scene{facts: newFacts(t), host: l.Hosts[0], pod: network.New(t, "pod"), sibling: network.New(t, "sibling")}
	vfs := check.Value(s.host.VFs())(t)
	give(t, s.host, vfs[0], s.pod)
	give(t, s.host, vfs[1], s.sibling)
	s.a = newSpot(t, "the VF", s.pod, namespaces.PodInterface)
	s.b = newSpot(t, "its sibling", s.sibling, namespaces.PodInterface)
	s.own = newSpot(t, "its PF", s.host.Namespace, namespaces.Parent)
	s.other = newSpot(t, "another host", l.Hosts[1].Namespace, namespaces.Parent)
	s.spots = []*spot{s.a, s.b, s.own, s.other}
	s.warmUp(t)
	return s
}

// again moves the VF from the pod to its host, calls fn with its name there, and moves it back.
func (s *scene) again(t *testing.T, fn func(name string)) {
	t.Helper()
	v := check.Value(s.host.VFs())(t)[0]
	link := check.Value(s.pod.Links().LinkByName(namespaces.PodInterface))(t)
	target := check.Value(os.Open(s.host.Path()))(t)
	defer target.Close()
	check.OK(t, errors.Join(s.pod.Links().LinkSetDown(link), s.pod.Links().LinkSetName(link, v.Name()), s.pod.Links().LinkSetNsFd(link, int(target.Fd()))))
	fn(v.Name())
	give(t, s.host, v, s.pod)
	s.a = newSpot(t, s.a.name, s.pod, namespaces.PodInterface)
	s.spots[0] = s.a
}

func TestGuestFacts(t *testing.T) {
	s := newScene(t)
	s.whereAVFIsFound(t)
	s.whoHearsWhom(t)
	s.aClsactFilter(t)
	s.aPodWithNETADMIN(t)
	s.theWallAtThePF(t)
}

func (s *scene) whereAVFIsFound(t *testing.T) {
	v := check.Value(s.host.VFs())(t)[0]
	s.saw("the driver names the PCI address in a pod", same(check.Value(vf.BusInfo(s.pod, namespaces.PodInterface))(t), v.PCI), "yes")
	link := check.Value(s.pod.Links().LinkByName(namespaces.PodInterface))(t)
	s.saw("netlink names the PCI address in a pod", same(link.Attrs().ParentDev, v.PCI), "")
	s.saw("netlink's kind of a VF", link.Type(), "device")
	s.saw("sysfs names the PF of a VF that is a pod's", check.Value(s.host.PF(v))(t), namespaces.Parent)
	check.OK(t, s.host.Do(func() error {
		target, err := os.Readlink("/sys/bus/pci/devices/" + v.PCI + "/physfn")
		s.saw("physfn is the PCI address of the PF", same(target, "../"+s.host.PCI), "yes")
		return err
	}))
	vfs := pf(t, s.host).Attrs().Vfs
	s.saw("netlink lists the VFs of the PF", fmt.Sprint(len(vfs)), "2")
	s.saw("the PF knows the MAC of the VF", same(vfs[0].Mac.String(), s.a.mac.String()), "")
}

func same(got, want string) string {
	if got == want {
		return "yes"
	}
	return fmt.Sprintf("no: %q", got)
}

func (s *scene) whoHearsWhom(t *testing.T) {
	for _, c := range []struct {
		what string
		from *spot
		dst  net.HardwareAddr
		want string
	}{
		{"a broadcast of the VF is heard by", s.a, broadcast(), "its sibling, its PF, another host"},
		{"a broadcast of the PF is heard by", s.own, broadcast(), "the VF, its sibling, another host"},
		{"a broadcast of another host is heard by", s.other, broadcast(), "the VF, its sibling, its PF"},
		{"unicast of the VF to its sibling is heard by", s.a, s.b.mac, "its sibling"},
		{"unicast of the VF to its PF is heard by", s.a, s.own.mac, "its PF"},
		{"unicast of the VF to another host is heard by", s.a, s.other.mac, "another host"},
		{"unicast of the PF to the VF is heard by", s.own, s.a.mac, "the VF"},
		{"unicast of another host to the VF is heard by", s.other, s.a.mac, "the VF"},
	} {
		s.saw(c.what, s.whoHears(t, c.from, c.dst, c.from.mac, c.from), c.want)
	}
	s.saw("a broadcast of the VF with a foreign MAC is heard by", s.whoHears(t, s.a, broadcast(), net.HardwareAddr{2, 7, 7, 7, 7, 7}, s.a), "")
}

// drop is a program that drops every frame.
func drop(t *testing.T) *ebpf.Program {
	t.Helper()
	check.OK(t, rlimit.RemoveMemlock())
	p := check.Value(ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.SchedCLS, License: "GPL", Instructions: asm.Instructions{
		asm.Mov.Imm(asm.R0, 2), asm.Return(), // TC_ACT_SHOT
	}}))(t)
	t.Cleanup(func() { check.OK(t, p.Close()) })
	return p
}

// dropByClsact makes an interface send nothing, by a filter.
func dropByClsact(t *testing.T, ns *network.Namespace, iface string) {
	t.Helper()
	index := check.Value(ns.Index(iface))(t)
	check.OK(t, errors.Join(
		ns.Links().QdiscAdd(clsact(index)),
		ns.Links().FilterAdd(&netlink.BpfFilter{
			FilterAttrs: netlink.FilterAttrs{LinkIndex: index, Parent: netlink.HANDLE_MIN_EGRESS, Handle: 1, Protocol: unix.ETH_P_ALL, Priority: 1},
			Fd:          drop(t).FD(), Name: "drop", DirectAction: true,
		})))
}

func clsact(index int) netlink.Qdisc {
	return &netlink.Clsact{QdiscAttrs: netlink.QdiscAttrs{LinkIndex: index, Handle: netlink.MakeHandle(0xffff, 0), Parent: netlink.HANDLE_CLSACT}}
}

func (s *scene) aClsactFilter(t *testing.T) {
	s.again(t, func(name string) { dropByClsact(t, s.host.Namespace, name) })
	s.saw("after a move with a clsact filter a broadcast is heard by", s.whoHears(t, s.a, broadcast(), s.a.mac, s.b), "its sibling, its PF, another host")
	dropByClsact(t, s.pod, namespaces.PodInterface)
	s.saw("with a clsact filter in the pod, it is heard by", s.whoHears(t, s.a, broadcast(), s.a.mac, s.b), "nobody")
	index := check.Value(s.pod.Index(namespaces.PodInterface))(t)
	s.did("a pod with NET_ADMIN can delete the clsact qdisc", asPod(s.pod, func() error { return netlink.QdiscDel(clsact(index)) }), "")
	s.saw("then a broadcast is heard by", s.whoHears(t, s.a, broadcast(), s.a.mac, s.b), "")
}

func (s *scene) aPodWithNETADMIN(t *testing.T) {
	link := check.Value(s.pod.Links().LinkByName(namespaces.PodInterface))(t)
	setMAC := func(mac net.HardwareAddr) error {
		return asPod(s.pod, func() error { return netlink.LinkSetHardwareAddr(link, mac) })
	}
	was := s.a.mac
	chosen := net.HardwareAddr{2, 0, 0, 0, 0, 0x77}
	s.did("it can change the MAC of its VF", setMAC(chosen), "")
	s.saw("unicast of another host to this MAC is heard by", s.whoHears(t, s.other, chosen, s.other.mac, s.other), "")
	s.saw("unicast of a sibling to this MAC is heard by", s.whoHears(t, s.b, chosen, s.b.mac, s.b), "")
	s.did("it can take the MAC of a sibling", setMAC(s.b.mac), "")
	s.saw("unicast of another host to that MAC is heard by", s.whoHears(t, s.other, s.b.mac, s.other.mac, s.other), "")
	check.OK(t, setMAC(was))
	s.did("it can set promiscuous mode", asPod(s.pod, func() error { return netlink.SetPromiscOn(link) }), "")
	s.saw("then unicast to a sibling is heard by", s.whoHears(t, s.other, s.b.mac, s.other.mac, s.other), "")
	check.OK(t, s.pod.Do(func() error { return netlink.SetPromiscOff(link) }))
	s.did("it can add a macvlan on its VF", asPod(s.pod, func() error {
		return netlink.LinkAdd(&netlink.Macvlan{LinkAttrs: netlink.LinkAttrs{Name: "m0", ParentIndex: link.Attrs().Index}, Mode: netlink.MACVLAN_MODE_BRIDGE})
	}), "")
}

// vlan makes an interface of a VLAN on the PF.
func (s *scene) vlan(t *testing.T, id int) *spot {
	t.Helper()
	const name = "vlan"
	check.OK(t, s.host.AddChild(namespaces.Parent, &netlink.Vlan{VlanId: id}, s.host.Namespace, name))
	check.OK(t, s.host.SetUp(name, true))
	return newSpot(t, fmt.Sprintf("its PF in VLAN %d", id), s.host.Namespace, name)
}

// theWallAtThePF unbinds the VF last, because the VF does not come back to its pod.
func (s *scene) theWallAtThePF(t *testing.T) {
	links, parent := s.host.Links(), pf(t, s.host)
	foreign := net.HardwareAddr{2, 7, 7, 7, 7, 7}

	s.did("spoofchk on", links.LinkSetVfSpoofchk(parent, 0, true), "")
	s.saw("then a broadcast with a foreign MAC is heard by", s.whoHears(t, s.a, broadcast(), foreign, s.b), "")
	s.did("spoofchk off", links.LinkSetVfSpoofchk(parent, 0, false), "")
	s.did("trust on", links.LinkSetVfTrust(parent, 0, true), "")
	s.did("trust off", links.LinkSetVfTrust(parent, 0, false), "")
	s.did("state disable", links.LinkSetVfState(parent, 0, netlink.VF_LINK_STATE_DISABLE), "")
	s.did("max_tx_rate 1", links.LinkSetVfTxRate(parent, 0, 1), "")
	s.did("max_tx_rate 0", links.LinkSetVfTxRate(parent, 0, 0), "")

	s.did("vlan 5", links.LinkSetVfVlan(parent, 0, 5), "")
	s.saw("then a broadcast of the VF is heard by", s.whoHears(t, s.a, broadcast(), s.a.mac, s.b), "")
	s.saw("unicast of the VF to its sibling is heard by", s.whoHears(t, s.a, s.b.mac, s.a.mac, s.b), "")
	s.saw("unicast of the VF to another host is heard by", s.whoHears(t, s.a, s.other.mac, s.a.mac, s.b), "")
	s.saw("a broadcast of its sibling is heard by", s.whoHears(t, s.b, broadcast(), s.b.mac, s.own), "")
	s.saw("unicast of its sibling to the VF is heard by", s.whoHears(t, s.b, s.a.mac, s.b.mac, s.own), "")
	inVLAN5 := s.vlan(t, 5)
	// A packet socket on the PF gets the frames of all VLANs.
	s.spots = append(s.spots, inVLAN5)
	s.saw("a broadcast of the VF, with interfaces of VLAN 5 on the PF", s.whoHears(t, s.a, broadcast(), s.a.mac, s.b), "its PF, its PF in VLAN 5")
	s.saw("a broadcast of the PF in VLAN 5", s.whoHears(t, inVLAN5, broadcast(), inVLAN5.mac, s.own), "")
	s.saw("unicast of the PF in VLAN 5 to the VF", s.whoHears(t, inVLAN5, s.a.mac, inVLAN5.mac, s.own), "the VF")
	s.saw("unicast of the VF to the PF in VLAN 5", s.whoHears(t, s.a, inVLAN5.mac, s.a.mac, s.b), "its PF, its PF in VLAN 5")
	s.spots = s.spots[:4]
	s.did("vlan 0", links.LinkSetVfVlan(parent, 0, 0), "")
	s.saw("then a broadcast of the VF is heard by", s.whoHears(t, s.a, broadcast(), s.a.mac, s.b), "")

	s.did("an administrative MAC, the one that the VF has", links.LinkSetVfHardwareAddr(parent, 0, s.a.mac), "")
	s.saw("then a broadcast of the VF is heard by", s.whoHears(t, s.a, broadcast(), s.a.mac, s.b), "")
	link := check.Value(s.pod.Links().LinkByName(namespaces.PodInterface))(t)
	s.did("then a pod with NET_ADMIN can change the MAC", asPod(s.pod, func() error { return netlink.LinkSetHardwareAddr(link, foreign) }), "")
	s.saw("and unicast of another host to this MAC is heard by", s.whoHears(t, s.other, foreign, s.other.mac, s.other), "")
	s.did("and it can have the old one back", asPod(s.pod, func() error { return netlink.LinkSetHardwareAddr(link, s.a.mac) }), "")
	s.saw("and unicast of another host to the VF is heard by", s.whoHears(t, s.other, s.a.mac, s.other.mac, s.other), "")

	s.did("unbind the VF from its driver", os.WriteFile("/sys/bus/pci/drivers/igbvf/unbind", []byte(check.Value(s.host.VFs())(t)[0].PCI), 0), "yes")
	_, err := s.pod.Links().LinkByName(namespaces.PodInterface)
	s.saw("then the pod has the interface", fmt.Sprint(err == nil), "false")
}
