// SPDX-License-Identifier: Apache-2.0

package selftest

import (
	"errors"
	"fmt"
	"net"
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/fenceline/fenceline/internal/frames"
)

// foreign are networks of documentation (RFC 5737). No pool should have them.
var foreign = [...]netip.Prefix{netip.MustParsePrefix("203.0.113.0/24"), netip.MustParsePrefix("198.51.100.0/24")}

// isGuarded announces an address that the pod does not have. It returns an error unless the kernel drops the frame. It
// needs CAP_NET_RAW.
func isGuarded(i *net.Interface, own netip.Addr) error {
	network := foreign[0]
	if network.Contains(own) {
		network = foreign[1]
	}
	sender := network.Addr().Next()
	announcements, err := frames.Announce(i.HardwareAddr, sender)
	if err != nil {
		return err
	}
	socket, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open a packet socket, which needs CAP_NET_RAW: %w", err)
	}
	defer unix.Close(socket)
	err = unix.Sendto(socket, announcements[0], 0, &unix.SockaddrLinklayer{Ifindex: i.Index})
	switch {
	case errors.Is(err, unix.ENOBUFS):
		return nil
	case err != nil:
		return fmt.Errorf("send a frame by %s: %w", i.Name, err)
	}
	return fmt.Errorf("interface %s has no guard: a frame with the source %s has left it", i.Name, sender)
}
