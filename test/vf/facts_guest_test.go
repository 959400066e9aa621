// SPDX-License-Identifier: Apache-2.0

//go:build kernel && guest

package vf_test

import (
	"errors"
	"fmt"
	"net"
	"os"
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

// scene has VFs 0 and 1 of a host in two pods, its PF, and the PF of another host.
type scene struct {
	stage
	host             *vf.Host
	pod, sibling     *network.Namespace
	a, b, own, other *spot
}

func newScene(t *testing.T) *scene {
	t.Helper()
	l := vf.NewLAN(t, 2)
	s := &scene{host: l.Hosts[0], pod: network.New(t, "pod"), sibling: network.New(t, "sibling")}
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
	s.theWallAtThePF(t)
}

func (s *scene) whereAVFIsFound(t *testing.T) {
	v := check.Value(s.host.VFs())(t)[0]
	check.Equal(t, check.Value(vf.BusInfo(s.pod, namespaces.PodInterface))(t), v.PCI, "the driver names the PCI address in a pod:")
	link := check.Value(s.pod.Links().LinkByName(namespaces.PodInterface))(t)
	check.Equal(t, link.Type(), "device", "netlink's kind of a VF:")
	check.Equal(t, check.Value(s.host.PF(v))(t), namespaces.Parent, "sysfs names the PF of a VF that is a pod's:")
	check.OK(t, s.host.Do(func() error {
		target, err := os.Readlink("/sys/bus/pci/devices/" + v.PCI + "/physfn")
		check.Equal(t, target, "../"+s.host.PCI, "physfn is the PCI address of the PF:")
		return err
	}))
	check.Equal(t, len(pf(t, s.host).Attrs().Vfs), 2, "netlink lists the VFs of the PF:")
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
		check.Equal(t, s.whoHears(t, c.from, c.dst, c.from.mac, c.from), c.want, "%s", c.what)
	}
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
	heard := func() string { return s.whoHears(t, s.a, broadcast(), s.a.mac, s.b) }
	s.again(t, func(name string) { dropByClsact(t, s.host.Namespace, name) })
	check.Equal(t, heard(), "its sibling, its PF, another host", "after a move with a clsact filter a broadcast is heard by")
	dropByClsact(t, s.pod, namespaces.PodInterface)
	check.Equal(t, heard(), "nobody", "with a clsact filter in the pod, it is heard by")
	index := check.Value(s.pod.Index(namespaces.PodInterface))(t)
	check.OK(t, s.pod.Do(func() error { return netlink.QdiscDel(clsact(index)) }))
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
	check.OK(t, links.LinkSetVfVlan(parent, 0, 5))
	s.whoHears(t, s.a, broadcast(), s.a.mac, s.b) // the card may lose its first frames
	inVLAN5 := s.vlan(t, 5)
	// A packet socket on the PF gets the frames of all VLANs.
	s.spots = append(s.spots, inVLAN5)
	const both = "its PF, its PF in VLAN 5"
	check.Equal(t, s.whoHears(t, s.a, broadcast(), s.a.mac, s.b), both, "a broadcast of the VF, with interfaces of VLAN 5 on the PF")
	check.Equal(t, s.whoHears(t, inVLAN5, s.a.mac, inVLAN5.mac, s.own), "the VF", "unicast of the PF in VLAN 5 to the VF")
	check.Equal(t, s.whoHears(t, s.a, inVLAN5.mac, s.a.mac, s.b), both, "unicast of the VF to the PF in VLAN 5")
	check.OK(t, links.LinkSetVfVlan(parent, 0, 0))

	check.OK(t, os.WriteFile("/sys/bus/pci/drivers/igbvf/unbind", []byte(check.Value(s.host.VFs())(t)[0].PCI), 0))
	_, err := s.pod.Links().LinkByName(namespaces.PodInterface)
	check.That(t, err != nil, "the pod has the interface of a VF without a driver")
}
