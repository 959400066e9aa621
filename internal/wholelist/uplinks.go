// SPDX-License-Identifier: Apache-2.0

package wholelist

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/vishvananda/netlink"
)

// Uplinks returns the ports of a bridge that lead to no pod or virtual machine, of Open vSwitch also those of the bridge
// of an internal port. links are all those of the node.
func Uplinks(links []netlink.Link, bridge netlink.Link) (ports []netlink.Link, err error) {
	if bridge.Type() != OVSKind {
		return uplinks(links, func(l *netlink.LinkAttrs) bool { return l.MasterIndex == bridge.Attrs().Index }), nil
	}
	if _, err := os.Stat(filepath.Dir(OVSSocket)); errors.Is(err, fs.ErrNotExist) {
		return nil, nil // agent.openvswitch is not set, so no pod is a port: its own carrier has to do
	}
	bridges, err := OVS()
	if err != nil {
		return nil, err
	}
	at := slices.IndexFunc(bridges, func(b OVSBridge) bool { return b.has(bridge.Attrs().Name) })
	if at < 0 {
		return nil, fmt.Errorf("no bridge of Open vSwitch has the port %s", bridge.Attrs().Name)
	}
	return bridges[at].Uplinks(links), nil
}

// has reports whether an interface is the bridge itself, or one of its ports.
func (b OVSBridge) has(name string) bool {
	return slices.ContainsFunc(b.Ports, func(p OVSPort) bool {
		return slices.ContainsFunc(p.Interfaces, func(i OVSInterface) bool { return i.Name == name })
	})
}

// Uplinks returns the ports of a bridge of Open vSwitch that lead to no pod or virtual machine.
func (b OVSBridge) Uplinks(links []netlink.Link) []netlink.Link {
	return uplinks(links, func(l *netlink.LinkAttrs) bool {
		return slices.ContainsFunc(b.Ports, func(p OVSPort) bool {
			return slices.ContainsFunc(p.Interfaces, func(i OVSInterface) bool { return i.IsLink() && i.Name == l.Name })
		})
	})
}

func uplinks(links []netlink.Link, isPort func(*netlink.LinkAttrs) bool) (ports []netlink.Link) {
	for _, l := range links {
		if isPort(l.Attrs()) && !slices.Contains([]string{"veth", "tuntap", "tun", "dummy", "ifb"}, l.Type()) {
			ports = append(ports, l)
		}
	}
	return ports
}
