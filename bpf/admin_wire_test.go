// SPDX-License-Identifier: Apache-2.0

//go:build kernel && !notcx && !guest

// Guests have no programs of iproute2 and nftables.

package bpf

import (
	"strings"
	"testing"

	"github.com/fenceline/fenceline/test/check"
)

// What a process with NET_ADMIN does to its interface changes nothing: the guard judges what nftables has rewritten.
func TestNET_ADMINForgesNoMoreThanNET_RAW(t *testing.T) {
	run := func(t *testing.T, r *wireRig, command string) {
		t.Helper()
		words := strings.Fields(command)
		out, err := r.pod.Command(t.Context(), words[0], words[1:]...).CombinedOutput()
		check.Must(t, err == nil, "%s: %v: %s", command, err, out)
	}
	const nftables = "a rewrite by nftables"
	rewrite := map[string]func(t *testing.T, r *wireRig, as party){
		"nothing": func(*testing.T, *wireRig, party) {},
		"promiscuous mode, and no qdisc": func(t *testing.T, r *wireRig, _ party) {
			run(t, r, "ip link set eth0 promisc on")
			run(t, r, "tc qdisc del dev eth0 clsact")
		},
		nftables: func(t *testing.T, r *wireRig, as party) {
			run(t, r, "nft add table netdev forger")
			run(t, r, "nft add chain netdev forger out { type filter hook egress device eth0 priority 0 ; }")
			run(t, r, "nft add rule netdev forger out arp operation reply arp saddr ip set "+as.four.String())
			run(t, r, "nft add rule netdev forger out ip daddr "+addr4.String()+" ip saddr set "+as.four.String())
			run(t, r, "nft add rule netdev forger out ip6 daddr "+addr6.String()+" ip6 saddr set "+as.six.String())
		},
		"the address on its interface": func(_ *testing.T, r *wireRig, as party) { r.pod.addAddr("eth0", as.four) },
	}
	for name, do := range rewrite {
		for _, as := range victims() {
			t.Run(name+" as "+as.name, func(t *testing.T) {
				r := newWireRig(t)
				r.ext.addAddr("p0", victims()[2].four)
				r.node.addAddr("p0", victims()[3].four)
				own := r.pod.mac("eth0")
				do(t, r, as)
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
				r.answers(r.heard)                                 // the test ends if the sibling has lost something
				if name != nftables || as.name != "a remote pod" { // the rules of leases protect the others
					return
				}
				check.OK(t, r.Sources.Set(1, Sources{MAC: own}))
				for kind, frame := range forgeries(own) {
					if kind == "NA" {
						continue // which nftables does not rewrite
					}
					r.pod.socket("eth0", protocolOf(frame(as))).send(frame(party{four: addr4, six: addr6}))
					r.heard.expect("the rewritten "+kind+" without the guard", like(frame(as)))
				}
			})
		}
	}
}
