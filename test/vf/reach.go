// SPDX-License-Identifier: Apache-2.0

package vf

import (
	"fmt"
	"net"
	"net/netip"
	"time"

	"github.com/fenceline/fenceline/test/network"
)

// dialLimit is for one try of Reach.
const dialLimit = 2 * time.Second

// Reach connects by TCP to an address of another namespace, which listens meanwhile.
func Reach(from, to *network.Namespace, addr netip.Addr) (err error) {
	var listener net.Listener
	err = to.Do(func() (err error) {
		listener, err = net.Listen("tcp", net.JoinHostPort(addr.String(), "0"))
		return err
	})
	if err != nil {
		return fmt.Errorf("listen on %s in %s: %w", addr, to.Name, err)
	}
	defer listener.Close()
	return from.Do(func() error {
		conn, err := net.DialTimeout("tcp", listener.Addr().String(), dialLimit)
		if err != nil {
			return fmt.Errorf("reach %s in %s from %s: %w", addr, to.Name, from.Name, err)
		}
		return conn.Close()
	})
}
