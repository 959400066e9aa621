// SPDX-License-Identifier: Apache-2.0

//go:build kernel && guest

package bpf

import (
	"os"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/fenceline/fenceline/test/check"
)

// With ipvlan, the pods have the MAC of the parent. The guards of their interfaces tell them apart, and an exclusive parent
// tells them apart by their sockets. A frame that passes the guard reaches a sibling without passing the parent.
func TestAnIPVLANPodForgesNothing(t *testing.T) {
	rig := newRigOf(t, Options{}, (*netns).ipvlanPod)
	r := guardedWire(t, rig)
	own, from, past := r.pod.mac("eth0"), r.pod.socket("eth0", allProtocols), r.bypass(r.pod, "eth0")
	r.exclude(own)
	forged := asNode(t, own)
	for name, frame := range forged {
		t.Run(name, func(t *testing.T) {
			r.t = t
			end := marker(frame, own, broadcast)
			beside := r.sibling.socket("eth0", protocolOf(end))
			equal(t, "escapes to the wire", r.escapes(from, r.heard, frame, end), false)
			equal(t, "escapes to the wire past the guard", r.escapes(past, r.heard, frame, end), false)
			equal(t, "escapes to one host", r.escapes(from, r.heard, to(r.ext.mac("p0"), frame), end), false)
			equal(t, "escapes to the sibling", r.escapes(from, beside, frame, end), false)
		})
	}
	equal(t, "the pod and its sibling answer", r.answers(r.heard), true)
	check.OK(t, r.Sources.Set(1, Sources{MAC: own}))
	for kind, frame := range forgeries(own) {
		r.goes(kind+" without the check", from, r.heard, frame(victims()[0]), nil, true)
	}
}

// ipvlanPod makes a namespace with an ipvlan eth0 on parent. The link is down.
func (ns *netns) ipvlanPod(parent, name string) *netns {
	ns.t.Helper()
	pod, index := newNetNS(ns.t, name), ns.index(parent)
	f := check.Value(os.Open(pod.path))(ns.t)
	defer f.Close()
	ns.do(func() error {
		attrs := netlink.LinkAttrs{Name: "eth0", ParentIndex: index, Namespace: netlink.NsFd(int(f.Fd()))}
		return netlink.LinkAdd(&netlink.IPVlan{LinkAttrs: attrs, Mode: netlink.IPVLAN_MODE_L2})
	})
	return pod
}
