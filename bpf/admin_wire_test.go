// SPDX-License-Identifier: Apache-2.0

//go:build kernel && (!guest || nftables)

package bpf

import (
	"encoding/binary"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"github.com/fenceline/fenceline/bpf/attach"
	"github.com/fenceline/fenceline/test/check"
)

// What a process with NET_ADMIN does to its interface changes nothing: the guard judges what nftables has rewritten.
// On a bridge it is at the node's end of the veth, so the pod does not find it, with or without tcx.
func TestNET_ADMINForgesNoMoreThanNET_RAW(t *testing.T) {
	t.Run("bridge", func(t *testing.T) { adminForgesNothing(t, (*netns).bridged, "br0") })
	if attach.HasTCX() { // without it, the pod can remove the guard of a macvlan
		t.Run("macvlan", func(t *testing.T) { adminForgesNothing(t, (*netns).pod, "p0") })
	}
}

// adminForgesNothing needs to know which interface of the node has its address.
func adminForgesNothing(t *testing.T, pod func(node *netns, parent, name string) *netns, node string) {
	t.Helper()
	const rewritten = "a rewrite by nftables"
	doings := map[string]func(r *wireRig, as party){
		"nothing": func(*wireRig, party) {},
		"promiscuous mode, and no qdisc": func(r *wireRig, _ party) {
			eth0, links := r.pod.device("eth0"), r.pod.Links()
			check.OK(r.t, links.SetPromiscOn(eth0))
			for _, q := range check.Value(links.QdiscList(eth0))(r.t) {
				if q.Type() == "clsact" {
					check.OK(r.t, links.QdiscDel(q))
				}
			}
		},
		"the address on its interface": func(r *wireRig, as party) { r.pod.addAddr("eth0", as.four) },
		rewritten:                      func(r *wireRig, as party) { r.pod.do(func() error { return rewrite(as) }) },
	}
	if before516() {
		delete(doings, rewritten)
	}
	for name, do := range doings {
		r := guardedWire(t, newRigOf(t, Options{}, pod))
		r.ext.addAddr("p0", victims()[2].four)
		r.node.addAddr(node, victims()[3].four)
		own := r.pod.mac("eth0")
		for _, as := range victims() {
			t.Run(name+" as "+as.name, func(t *testing.T) {
				r.t = t
				do(r, as)
				for kind, frame := range forgeries(own) {
					proto := protocolOf(frame(as))
					beside, through := r.sibling.socket("eth0", proto), r.pod.socket("eth0", proto) // nftables asks for it
					for _, from := range []*socket{through, r.bypass(r.pod, "eth0")} {
						for where, at := range map[string]*socket{"the wire": r.heard, "the sibling": beside} {
							from.send(frame(party{four: addr4, six: addr6})) // which the rewrites forge
							equal(t, kind+" escapes to "+where, r.escapes(from, at, frame(as), marker(frame(as), own, broadcast)), false)
						}
					}
				}
				r.answers(r.heard) // the test ends if the sibling has lost something
			})
		}
		if name != rewritten {
			continue
		}
		t.Run("without the guard's check, "+name+" escapes", func(t *testing.T) {
			r.t = t
			as := victims()[0] // the rules of leases protect the others
			do(r, as)
			check.OK(t, r.Sources.Set(1, Sources{MAC: own}))
			for kind, frame := range forgeries(own) {
				if kind == "NA" {
					continue // which nftables does not rewrite
				}
				r.pod.socket("eth0", protocolOf(frame(as))).send(frame(party{four: addr4, six: addr6}))
				r.heard.expect("the rewritten "+kind, like(frame(as)))
			}
		})
	}
}

// before516 says that nftables sees nothing that leaves an interface.
func before516() bool {
	var u unix.Utsname
	return unix.Uname(&u) == nil && strings.HasPrefix(unix.ByteSliceToString(u.Release[:]), "5.10.")
}

// rewrite makes nftables write the addresses of a party into what leaves eth0 of the calling thread's network namespace:
// into ARP replies, and packets to the pod's own addresses, as sender.
func rewrite(as party) error {
	c, err := nftables.New()
	if err != nil {
		return err
	}
	table := &nftables.Table{Family: nftables.TableFamilyNetdev, Name: "forger"}
	c.AddTable(table)
	c.DelTable(table) // with the rules for another party
	c.AddTable(table)
	out := c.AddChain(&nftables.Chain{
		Table: table, Name: "out", Type: nftables.ChainTypeFilter,
		Hooknum: nftables.ChainHookEgress, Priority: nftables.ChainPriorityFilter, Device: "eth0",
	})
	for _, w := range []struct {
		proto    uint16
		at       uint32 // where the rule looks
		is       []byte // what it must find
		sender   uint32
		new      netip.Addr
		checksum expr.PayloadCsumType
	}{
		{unix.ETH_P_ARP, 6, []byte{0, 2}, 14, as.four, expr.CsumTypeNone},
		{unix.ETH_P_IP, 16, addr4.AsSlice(), 12, as.four, expr.CsumTypeInet},
		{unix.ETH_P_IPV6, 24, addr6.AsSlice(), 8, as.six, expr.CsumTypeNone},
	} {
		value := w.new.AsSlice()
		c.AddRule(&nftables.Rule{Table: table, Chain: out, Exprs: []expr.Any{
			&expr.Meta{Key: expr.MetaKeyPROTOCOL, Register: 1},
			&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: binary.BigEndian.AppendUint16(nil, w.proto)},
			&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseNetworkHeader, Offset: w.at, Len: uint32(len(w.is))},
			&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: w.is},
			&expr.Immediate{Register: 1, Data: value},
			&expr.Payload{
				OperationType: expr.PayloadWrite, SourceRegister: 1, Base: expr.PayloadBaseNetworkHeader,
				Offset: w.sender, Len: uint32(len(value)), CsumType: w.checksum, CsumOffset: 10,
			},
		}})
	}
	return c.Flush()
}
