// SPDX-License-Identifier: Apache-2.0

package network

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"testing"

	"github.com/fenceline/fenceline/test/check"
)

// Bridge is the name of the bridge of a LAN.
const Bridge = "br0"

// New makes a namespace that ends with the test. Its name begins with flt, the number of the process,
// and the first number with which the name is free: a process may have several of one role.
func New(t testing.TB, role string) *Namespace {
	t.Helper()
	for i := 0; ; i++ {
		ns, err := Create(fmt.Sprintf("flt-%d-%d-%s", os.Getpid(), i, role))
		if errors.Is(err, fs.ErrExist) {
			continue
		}
		check.OK(t, err)
		t.Cleanup(func() { check.OK(t, ns.Delete()) })
		return ns
	}
}

// LAN is a switch of a test, to which hosts are plugged.
type LAN struct {
	// Switch has the bridge.
	Switch *Namespace
}

// NewLAN makes a switch that ends with the test.
func NewLAN(t testing.TB) LAN {
	t.Helper()
	l := LAN{New(t, "sw")}
	check.OK(t, l.Switch.AddBridge(Bridge))
	return l
}

// Host makes a host that ends with the test. Its only interface is plugged in and has some addresses.
func (l LAN) Host(t testing.TB, role, iface string, addrs ...netip.Prefix) *Namespace {
	t.Helper()
	host := New(t, role)
	l.Plug(t, host, iface, nil, role, addrs...)
	return host
}

// Plug connects a new interface of a namespace, which gets some addresses, with the port of a role. A
// nil mac leaves the choice to the kernel.
func (l LAN) Plug(t testing.TB, ns *Namespace, iface string, mac net.HardwareAddr, role string, addrs ...netip.Prefix) {
	t.Helper()
	check.OK(t, ns.Plug(iface, mac, l.Switch, Port(role), Bridge))
	for _, addr := range addrs {
		check.OK(t, ns.AddAddr(iface, addr))
	}
}

// Port returns the name of a port of a LAN, as it appears in a capture. A role has at most 12 characters.
// A port goes some time after its host, so a role is not used again on the same LAN.
func Port(role string) string { return "ul-" + role }
