// SPDX-License-Identifier: Apache-2.0

//go:build kernel

package masquerade

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/fenceline/fenceline/test/check"
)

// firewalld has the rules of firewalld 2 with its default zone, as far as they concern pods. Zones are filled
// in by the test: of trusted sources, and of everything else.
const firewalld = `table inet firewalld {
	chain trusted {
		TRUSTED
	}
	chain filter_INPUT {
		type filter hook input priority filter + 10; policy accept
		ct state { established, related } accept
		ct status dnat accept
		iifname "lo" accept
		ct state invalid drop
		jump trusted
		meta l4proto { icmp, ipv6-icmp } accept
		tcp dport 22 accept
		reject with icmpx admin-prohibited
	}
	chain filter_FORWARD {
		type filter hook forward priority filter + 10; policy accept
		ct state { established, related } accept
		ct status dnat accept
		iifname "lo" accept
		ct state invalid drop
		jump trusted
		meta l4proto { icmp, ipv6-icmp } accept
		reject with icmpx admin-prohibited
	}
}`

// What docs/operations.md says about firewalld.
func TestFirewalldLetsServicesAndProbesPass(t *testing.T) {
	r := newRig(t)
	pod := r.pod(podHost)
	r.ensure()
	for _, f := range families() {
		pod.Echo(r, "tcp", netip.AddrPortFrom(addr(f.Name, podHost), backendPort))
		r.node.Echo(r, "tcp", netip.AddrPortFrom(addr(f.Name, nodeHost), backendPort))
		r.other.Echo(r, "tcp", netip.AddrPortFrom(addr(f.Name, otherHost), backendPort))
		r.translate("tcp", clusterIP(f.Name, serviceOfOther), addr(f.Name, otherHost))
	}
	for name, trusted := range map[string]string{"by default": "", "with the pods' subnets trusted": "ip saddr 10.0.0.0/24 accept; ip6 saddr fd00::/64 accept"} {
		nft := r.node.Command(t.Context(), "nft", "-f", "-")
		nft.Stdin = strings.NewReader("table inet firewalld\ndelete table inet firewalld\n" + strings.Replace(firewalld, "TRUSTED", trusted, 1))
		out, err := nft.CombinedOutput()
		check.Must(t, err == nil, "%v: %s", err, out)
		for _, f := range families() {
			r.wantSource(name+": a probe of the node", r.node, "tcp", netip.AddrPortFrom(addr(f.Name, podHost), backendPort), addr(f.Name, nodeHost))
			r.wantSource(name+": a Service", pod, "tcp", netip.AddrPortFrom(clusterIP(f.Name, serviceOfOther), servicePort), addr(f.Name, nodeHost))
			got, err := sourceOf(pod, "tcp", netip.AddrPortFrom(addr(f.Name, nodeHost), backendPort), time.Second)
			check.That(t, (err == nil) == (trusted != ""), "%s: a pod to a port of its node over %s: %s, %v", name, f.Name, got, err)
		}
	}
}
