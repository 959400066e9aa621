// SPDX-License-Identifier: Apache-2.0

package segment

import (
	"fmt"
	"slices"

	"github.com/vishvananda/netlink"

	"github.com/fenceline/fenceline/internal/wholelist"
)

// Shared reports whether frames of other hosts of this node may come in by the parent, as from
// outside. It is true with an error.
func (p *Parent) Shared() (bool, error) {
	links, err := wholelist.Of(p.nl.LinkList)
	if err != nil {
		return true, fmt.Errorf("list the interfaces for what is behind parent %d: %w", p.index, err)
	}
	return shared(p.index, links), nil
}

// shared looks at an interface and those below it. A bridge passes on the frames of virtual machines,
// and the card of a PF those of its VFs. Only an adapter, a veth, and a VLAN or bond of these are known
// to have one way, which leads outside.
func shared(index int, links []netlink.Link) bool {
	at := slices.IndexFunc(links, func(l netlink.Link) bool { return l.Attrs().Index == index })
	if at < 0 {
		return true
	}
	switch attrs := links[at].Attrs(); links[at].Type() {
	case "device", "veth":
		return len(attrs.Vfs) > 0
	case "vlan": // in another namespace, the index has another meaning
		return attrs.NetNsID >= 0 || shared(attrs.ParentIndex, links)
	case "bond", "team":
		return slices.ContainsFunc(links, func(port netlink.Link) bool {
			return port.Attrs().MasterIndex == index && shared(port.Attrs().Index, links)
		})
	}
	return true
}
