// SPDX-License-Identifier: Apache-2.0

package parent

import (
	"net"
	"net/netip"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/fenceline/fenceline/test/check"
)

func TestWhichParentsExist(t *testing.T) {
	lo, err := net.InterfaceByName("lo")
	check.OK(t, err)
	if !Exists(lo.Index) {
		t.Error("lo does not")
	}
	const beyond = 1<<31 - 1
	if Exists(beyond) {
		t.Errorf("interface %d does", beyond)
	}
}

// A node that is out of files must not release the leases that it keeps for a parent.
func TestAnInterfaceThatCannotBeLookedForIsNotGone(t *testing.T) {
	var files unix.Rlimit
	check.OK(t, unix.Getrlimit(unix.RLIMIT_NOFILE, &files))
	check.OK(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 0, Max: files.Max}))
	_, exists, err := Index("lo")
	check.OK(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &files))
	if err == nil {
		t.Errorf("exists: %v", exists)
	}
	if _, exists, err := Index("nowhere"); exists || err != nil {
		t.Errorf("of none: %v, %v", exists, err)
	}
}

func TestAnAddressOfTheNode(t *testing.T) {
	for addr, want := range map[string]bool{"127.0.0.1": true, "192.0.2.1": false, "2001:db8::1": false} {
		if own, err := OfNode(netip.MustParseAddr(addr)); own != want || err != nil {
			t.Errorf("%s: %v, %v", addr, own, err)
		}
	}
}

func TestTheSubnetOfAnAddressOfTheNode(t *testing.T) {
	subnets, err := SubnetsOf([]netip.Addr{netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("192.0.2.1")})
	if err != nil || !slices.Equal(subnets, []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}) {
		t.Errorf("got %v, %v", subnets, err)
	}
}
