// SPDX-License-Identifier: Apache-2.0

//go:build kernel && !notcx && !guest

// Guests have no programs of iproute2 and nftables.

package bpf

import (
	"net"
	"net/netip"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/fenceline/fenceline/test/check"
)

// What a process with NET_ADMIN does to its interface changes nothing: the guard judges what nftables has rewritten. The
// addresses are those of a remote host, the sibling and nobody.
func TestNET_ADMINForgesNoMoreThanNET_RAW(t *testing.T) {
	run := func(t *testing.T, r *wireRig, command string) {
		t.Helper()
		words := strings.Fields(command)
		if out, err := r.pod.Command(t.Context(), words[0], words[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%s: %v: %s", command, err, out)
		}
	}
	rewrite := map[string]func(t *testing.T, r *wireRig, as netip.Addr){
		"nothing": func(*testing.T, *wireRig, netip.Addr) {},
		"promiscuous mode, and no qdisc": func(t *testing.T, r *wireRig, _ netip.Addr) {
			run(t, r, "ip link set eth0 promisc on")
			run(t, r, "tc qdisc del dev eth0 clsact")
		},
		"a rewrite by nftables": func(t *testing.T, r *wireRig, as netip.Addr) {
			run(t, r, "nft add table netdev forger")
			run(t, r, "nft add chain netdev forger out { type filter hook egress device eth0 priority 0 ; }")
			run(t, r, "nft add rule netdev forger out arp operation reply arp saddr ip set "+as.String())
		},
		"the address on its interface": func(_ *testing.T, r *wireRig, as netip.Addr) { r.pod.addAddr("eth0", as) },
	}
	for name, do := range rewrite {
		for _, as := range []netip.Addr{far4, other4, nobody4} {
			t.Run(name+" as "+as.String(), func(t *testing.T) {
				r := newWireRig(t)
				own, beside := r.pod.mac("eth0"), r.sibling.socket("eth0", unix.ETH_P_ARP)
				do(t, r, as)
				reply := func(of netip.Addr) []byte {
					frame := arpFrame(own, of, addr4)
					frame[21] = 2
					return frame
				}
				through := r.pod.socket("eth0", unix.ETH_P_ARP) // nftables asks for the protocol of the socket
				for _, from := range []*socket{through, r.bypass(r.pod, "eth0")} {
					for where, at := range map[string]*socket{"the wire": r.heard, "the sibling": beside} {
						from.send(reply(addr4)) // which the rewrites forge
						equal(t, "escapes to "+where, r.escapes(from, at, reply(as), marker(reply(as), own, broadcast)), false)
					}
				}
				if name == "a rewrite by nftables" && as == far4 { // the rules of leases protect the others
					check.OK(t, r.SetSources(1, Sources{}))
					check.OK(t, r.SetTrusted(r.parent, []net.HardwareAddr{own}, true))
					through.send(reply(addr4))
					r.heard.expect("the rewritten frame without the guard", like(reply(as)))
				}
			})
		}
	}
}
