// SPDX-License-Identifier: Apache-2.0

//go:build kernel && guest && !notcx

package vf_test

import (
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/fenceline/fenceline/test/check"
	"github.com/fenceline/fenceline/test/must"
	"github.com/fenceline/fenceline/test/namespaces"
	"github.com/fenceline/fenceline/test/vf"
)

func TestGuestFactsOfATCXLink(t *testing.T) {
	s := newScene(t)
	var attached link.Link
	s.again(t, func(name string) {
		check.OK(t, s.host.Do(func() (err error) {
			index := check.Value(s.host.Index(name))(t)
			attached, err = link.AttachTCX(link.TCXOptions{Interface: index, Program: drop(t), Attach: ebpf.AttachTCXEgress})
			return err
		}))
	})
	heard := func() string { return s.whoHears(t, s.a, broadcast(), s.a.mac, s.b) }
	check.Equal(t, heard(), "nobody", "after a move with a tcx link a broadcast is heard by")
	info := check.Value(attached.Info())(t)
	index := check.Value(s.pod.Index(namespaces.PodInterface))(t)
	check.Equal(t, int(info.TCX().Ifindex), index, "the link names the interface")
	check.Is(t, asPod(s.pod, func() error { return check.Err(link.NewFromID(info.ID)) }), unix.EPERM, "a pod with NET_ADMIN opens the link:")
	check.OK(t, asPod(s.pod, func() error {
		must.OK(netlink.QdiscAdd(clsact(index)))
		must.OK(netlink.QdiscDel(clsact(index)))
		l := must.Value(netlink.LinkByIndex(index))
		must.OK(netlink.LinkSetDown(l))
		return netlink.LinkSetUp(l)
	}))
	vf.AwaitCarrier(t, s.pod, namespaces.PodInterface)
	check.Equal(t, heard(), "nobody", "after a clsact qdisc, and down and up, it is heard by")
	check.OK(t, attached.Close())
	check.Becomes(t, limit, "a VF without the link is heard", func() bool { return heard() == "its sibling, its PF, another host" })
}
