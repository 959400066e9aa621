// SPDX-License-Identifier: Apache-2.0

//go:build kernel && guest && !notcx

package vf_test

import (
	"fmt"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"

	"github.com/fenceline/fenceline/test/check"
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
	s.saw("after a move with a tcx link a broadcast is heard by", heard(), "nobody")
	info := check.Value(attached.Info())(t)
	index := check.Value(s.pod.Index(namespaces.PodInterface))(t)
	s.saw("the link names the interface in the pod", same(fmt.Sprint(info.TCX().Ifindex), fmt.Sprint(index)), "yes")
	s.did("a pod with NET_ADMIN can open the link", asPod(s.pod, func() error {
		l, err := link.NewFromID(info.ID)
		if err == nil {
			err = l.Close()
		}
		return err
	}), "EPERM")
	s.did("it can delete a clsact qdisc", asPod(s.pod, func() error {
		if err := netlink.QdiscAdd(clsact(index)); err != nil {
			return err
		}
		return netlink.QdiscDel(clsact(index))
	}), "")
	s.did("it can set the VF down and up", asPod(s.pod, func() error {
		l, err := netlink.LinkByIndex(index)
		if err != nil {
			return err
		}
		if err := netlink.LinkSetDown(l); err != nil {
			return err
		}
		return netlink.LinkSetUp(l)
	}), "")
	vf.AwaitCarrier(t, s.pod, namespaces.PodInterface)
	s.saw("then a broadcast is heard by", heard(), "nobody")
	check.OK(t, attached.Close())
	check.Becomes(t, limit, "a VF without the link is heard", func() bool { return heard() == "its sibling, its PF, another host" })
}
