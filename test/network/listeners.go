// SPDX-License-Identifier: Apache-2.0

package network

import (
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/fenceline/fenceline/test/must"
)

// Listener is a netlink socket that is told of changes of interfaces.
type Listener struct {
	// Lost: changes came for which it had no room.
	Lost bool
}

// Listeners returns the sockets of a namespace that are told of changes of interfaces.
func (n *Namespace) Listeners() (all []Listener, err error) {
	defer must.CatchIn(&err, "read the netlink sockets of %s", n.Name)
	var table []byte
	must.OK(n.Do(func() (err error) {
		table, err = os.ReadFile("/proc/thread-self/net/netlink")
		return err
	}))
	const protocol, groups, drops = 1, 3, 8 // columns
	for _, line := range strings.Split(strings.TrimSpace(string(table)), "\n")[1:] {
		columns := strings.Fields(line)
		must.That(len(columns) > drops, "line %q is short", line)
		mask := must.Value(strconv.ParseUint(columns[groups], 16, 32))
		if columns[protocol] == strconv.Itoa(unix.NETLINK_ROUTE) && mask&(1<<(unix.RTNLGRP_LINK-1)) != 0 {
			all = append(all, Listener{Lost: columns[drops] != "0"})
		}
	}
	return all, nil
}

// Overflow changes an interface until the one listener of the namespace has lost changes. Nobody may read
// them meanwhile.
func (n *Namespace) Overflow(iface string) (err error) {
	defer must.CatchIn(&err, "overflow the listener in %s", n.Name)
	link := must.Value(n.link(iface))
	const most = 100_000
	for i := range most {
		must.Done(n.links.LinkSetAlias(link, strconv.Itoa(i)), "change interface %s", iface)
		if i%100 != 0 {
			continue
		}
		if all := must.Value(n.Listeners()); len(all) == 1 && all[0].Lost {
			return nil
		}
	}
	return fmt.Errorf("it has lost nothing after %d changes", most)
}
