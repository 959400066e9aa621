// SPDX-License-Identifier: Apache-2.0

package vf

import (
	"net"
	"net/netip"
	"time"

	"github.com/fenceline/fenceline/test/must"
	"github.com/fenceline/fenceline/test/network"
)

// dialLimit is for one try of Reach.
const dialLimit = 2 * time.Second

// Reach connects by TCP to an address of another namespace, which listens meanwhile.
func Reach(from, to *network.Namespace, addr netip.Addr) (err error) {
	defer must.CatchIn(&err, "reach %s in %s from %s", addr, to.Name, from.Name)
	var listener net.Listener
	must.OK(to.Do(func() (err error) {
		listener, err = net.Listen("tcp", net.JoinHostPort(addr.String(), "0"))
		return err
	}))
	defer listener.Close()
	return must.Value(from.Connect(netip.Addr{}, "tcp", netip.MustParseAddrPort(listener.Addr().String()), dialLimit)).Close()
}
