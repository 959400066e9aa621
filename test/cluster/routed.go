// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"encoding/json"
	"fmt"
	"net/netip"

	"github.com/fenceline/fenceline/test/network"
)

// podRanges returns the ranges of a node's pods in the routed network.
func podRanges(n int) []netip.Prefix {
	return []netip.Prefix{
		netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 244, byte(n), 0}), 24),
		netip.MustParsePrefix(fmt.Sprintf("fd44:0:0:%x::/64", n)),
	}
}

// RoutedPods returns the networks that hold the addresses of all pods in the routed network.
func RoutedPods() []netip.Prefix {
	return []netip.Prefix{netip.MustParsePrefix("10.244.0.0/16"), netip.MustParsePrefix("fd44::/48")}
}

// routedConfig returns the configuration of the routed network on a node. It has nothing to do with
// Fenceline: a veth pair for each pod, ranges of host-local for each node, and routes between the nodes,
// as kind has it. A bridge would need br_netfilter for Services of the same node. It is no list, because
// Multus loses the ranges of a list before DEL (k8snetworkplumbingwg/multus-cni issue 1449).
func routedConfig(n int) ([]byte, error) {
	var ranges [][]map[string]string
	var routes []map[string]string
	for _, r := range podRanges(n) {
		ranges = append(ranges, []map[string]string{{"subnet": r.String()}})
		routes = append(routes, map[string]string{"dst": netip.PrefixFrom(r.Addr(), 0).Masked().String()})
	}
	return json.MarshalIndent(map[string]any{
		"cniVersion": "1.0.0", "name": "routed", "type": "ptp",
		"ipam": map[string]any{"type": "host-local", "ranges": ranges, "routes": routes},
	}, "", "  ")
}

// routeToPods gives a host of the management network the routes to the pods of all nodes in the routed
// network, except those of the node self.
func routeToPods(o Options, ns *network.Namespace, self int) error {
	if o.SingleNIC {
		return nil
	}
	for n := 1; n <= o.Nodes; n++ {
		if n == self {
			continue
		}
		for family, node := range o.nodeAddresses(n) {
			if err := ns.AddRoute(podRanges(n)[family], node.Addr()); err != nil {
				return err
			}
		}
	}
	return nil
}
