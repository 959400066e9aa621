// SPDX-License-Identifier: Apache-2.0

//go:build kernel

package main

import (
	"context"
	"net/netip"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/fenceline/fenceline/test/check"
	"github.com/fenceline/fenceline/test/network"
	"github.com/fenceline/fenceline/test/rivals"
)

// serveDHCP offers two addresses on p0 of a host, from the first on. It does not ask who has them.
func serveDHCP(t *testing.T, host *network.Namespace, first, last string) {
	t.Helper()
	cmd := host.Command(t.Context(), "dnsmasq", "--keep-in-foreground", "--conf-file=/dev/null", "--port=0", "--user=root",
		"--pid-file=", "--log-facility=-", "--no-ping", "--interface=p0", "--bind-interfaces", "--dhcp-authoritative",
		"--dhcp-sequential-ip", "--dhcp-range="+first+","+last, "--dhcp-leasefile="+filepath.Join(t.TempDir(), "leases"))
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	check.OK(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Wait() }) // the end of the test ended it
}

// A DHCP server and the plugin hand out the same two addresses, and know nothing of each other. The
// DHCP client has the first one, and the container the second one. A second client is offered that
// of the container and declines.
func TestDHCPClientsAndContainersShareARange(t *testing.T) {
	l := newLAN(t)
	serveDHCP(t, l.plug(t, "server", "192.0.2.1/24"), "192.0.2.10", "192.0.2.11")
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	client := func(role, want string, wins bool) {
		t.Helper()
		host := rivals.Host{Namespace: l.plug(t, role), Interface: "p0"}
		addr, has, release, err := rivals.DHCP(ctx, host)
		check.OK(t, err)
		t.Cleanup(func() {
			if err := release(); err != nil {
				t.Error(err)
			}
		})
		if addr != netip.MustParseAddr(want) || has != wins {
			t.Errorf("%s was offered %s and has it: %t; want %s, %t", role, addr, has, want, wins)
		}
	}
	client("client1", "192.0.2.10", true)
	h := l.host(t, "host")
	if got := h.mustAdd(t, h.macvlanConf(t, small), container("one", namespace(t, "one"))); !slices.Equal(got, []string{"192.0.2.11/24"}) {
		t.Errorf("the container got %v", got)
	}
	client("client2", "192.0.2.11", false)
}

// dhcpcd with a static address refuses that of a container.
func TestDhcpcdRefusesTheAddressOfAContainer(t *testing.T) {
	l := newLAN(t)
	h := l.host(t, "host")
	h.mustAdd(t, h.macvlanConf(t, small), container("one", namespace(t, "one"))) // 192.0.2.10
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for _, row := range []struct {
		addr string
		has  bool
	}{{"192.0.2.10/24", false}, {"192.0.2.11/24", true}} {
		host := rivals.Host{Namespace: l.plug(t, "rival"+row.addr[8:10]), Interface: "p0"}
		has, release, err := rivals.Static(ctx, host, netip.MustParsePrefix(row.addr))
		check.OK(t, err)
		if has != row.has {
			t.Errorf("dhcpcd has %s: %t", row.addr, has)
		}
		if err := release(); err != nil {
			t.Error(err)
		}
	}
}
