// SPDX-License-Identifier: Apache-2.0

package wholelist

import (
	"slices"

	"github.com/vishvananda/netlink"
)

// Uplinks returns the ports of a bridge that lead to no pod or virtual machine. links are all those of the node.
func Uplinks(links []netlink.Link, bridge int) (ports []netlink.Link) {
	for _, l := range links {
		if l.Attrs().MasterIndex == bridge && !slices.Contains([]string{"veth", "tuntap", "tun", "dummy", "ifb"}, l.Type()) {
			ports = append(ports, l)
		}
	}
	return ports
}
