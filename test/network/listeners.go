// SPDX-License-Identifier: Apache-2.0

package network

import (
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Listener is a netlink socket that is told of changes of interfaces.
type Listener struct {
	// Lost: changes came for which it had no room.
	Lost bool
}

// Listeners returns the sockets of a namespace that are told of changes of interfaces.
func (n *Namespace) Listeners() (all []Listener, err error) {
	var table []byte
	err = n.Do(func() (err error) {
		table, err = os.ReadFile("/proc/thread-self/net/netlink")
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read the netlink sockets of %s: %w", n.Name, err)
	}
	const protocol, groups, drops = 1, 3, 8 // columns
	for _, line := range strings.Split(strings.TrimSpace(string(table)), "\n")[1:] {
		columns := strings.Fields(line)
		if len(columns) <= drops {
			return nil, fmt.Errorf("read the netlink sockets of %s: line %q is short", n.Name, line)
		}
		mask, err := strconv.ParseUint(columns[groups], 16, 32)
		if err != nil {
			return nil, fmt.Errorf("read the groups of a netlink socket of %s: %w", n.Name, err)
		}
		if columns[protocol] == strconv.Itoa(unix.NETLINK_ROUTE) && mask&(1<<(unix.RTNLGRP_LINK-1)) != 0 {
			all = append(all, Listener{Lost: columns[drops] != "0"})
		}
	}
	return all, nil
}

// Overflow changes an interface until the one listener of the namespace has lost changes. Nobody may read
// them meanwhile.
func (n *Namespace) Overflow(iface string) error {
	link, err := n.link(iface)
	if err != nil {
		return err
	}
	const most = 100_000
	for i := range most {
		if err := n.links.LinkSetAlias(link, strconv.Itoa(i)); err != nil {
			return fmt.Errorf("change interface %s in %s: %w", iface, n.Name, err)
		}
		if i%100 != 0 {
			continue
		}
		all, err := n.Listeners()
		if err != nil {
			return err
		}
		if len(all) == 1 && all[0].Lost {
			return nil
		}
	}
	return fmt.Errorf("overflow the listener in %s: it has lost nothing after %d changes", n.Name, most)
}
