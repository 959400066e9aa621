// SPDX-License-Identifier: Apache-2.0

//go:build kernel

package pod

import (
	"net/netip"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/fenceline/fenceline/test/capture"
	"github.com/fenceline/fenceline/test/check"
	"github.com/fenceline/fenceline/test/network"
)

// Seen: each interface answers for the addresses of both, so neighbours reach an address by either MAC.
func TestAPodWithTwoInterfacesInASubnetAnswersOnTheRightOne(t *testing.T) {
	for name, parents := range map[string][2]string{"of one parent": {"p0", "p0"}, "of two parents on one segment": {"p0", "p1"}} {
		t.Run(name, func(t *testing.T) {
			lan, node, pod := network.NewLAN(t), network.New(t, "node"), network.New(t, "pod")
			lan.Plug(t, node, "p0", nil, "p0")
			lan.Plug(t, node, "p1", nil, "p1")
			addrs := map[string]netip.Addr{"eth0": netip.MustParseAddr("10.99.0.2"), "net1": netip.MustParseAddr("10.99.0.3")}
			for i, iface := range []string{"eth0", "net1"} {
				check.OK(t, node.AddMacvlan(parents[i], nil, pod, iface))
				check.OK(t, withFinder(node, func(f *Finder) error { return f.KeepARP(pod.Path(), iface) }))
				check.OK(t, pod.SetUp(iface, true))
				check.OK(t, pod.AddAddr(iface, netip.PrefixFrom(addrs[iface], 24)))
			}
			frames := check.Value(capture.Start(lan.Switch, network.Bridge))(t)
			host := lan.Host(t, "host", "eth0", netip.MustParsePrefix("10.99.0.50/24"))
			for _, addr := range addrs {
				// Two answers to one question are an error.
				_ = host.Command(t.Context(), "arping", "-q", "-b", "-c", "1", "-w", "60", "-I", "eth0", addr.String()).Run()
			}
			check.Value(frames.Stop())(t)
			for iface, addr := range addrs {
				mac, answers := check.Value(pod.MAC(iface))(t).String(), 0
				for _, f := range frames.Frames() {
					if f.Type == unix.ETH_P_ARP && slices.Contains(f.Speaks, addr) {
						answers++
						check.Equal(t, f.Source.String(), mac, "%s answers by", addr)
					}
				}
				check.That(t, answers > 0, "no answer for %s", addr)
			}
		})
	}
}
