// SPDX-License-Identifier: Apache-2.0

package network

import (
	"encoding/hex"
	"fmt"
	"net/netip"
	"os"
	"strings"
)

// awaitSolicited waits until the kernel hears solicitations for an address of an
// interface: it joins their group (RFC 4291, 2.7.1) some time after it took the address.
func (n *Namespace) awaitSolicited(name string, addr netip.Addr) error {
	group := netip.MustParseAddr("ff02::1:ff00:0").As16()
	low := addr.As16()
	copy(group[13:], low[13:])
	return settled(fmt.Sprintf("%s in %s to hear solicitations for %s", name, n.Name, addr), func() (bool, error) {
		return n.hasGroup(name, hex.EncodeToString(group[:]))
	})
}

// hasGroup reports whether an interface is in a multicast group, in hexadecimal.
func (n *Namespace) hasGroup(name, group string) (joined bool, err error) {
	err = n.Do(func() error {
		text, err := os.ReadFile("/proc/thread-self/net/igmp6")
		for line := range strings.Lines(string(text)) {
			if f := strings.Fields(line); len(f) > 2 && f[1] == name && f[2] == group {
				joined = true
			}
		}
		return err
	})
	return joined, err
}
