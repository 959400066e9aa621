// SPDX-License-Identifier: Apache-2.0

package network

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// refusal is the priority of the rules of Refuse. They stand before the table main.
const refusal = 100

// Forward makes the namespace a router of both families.
func (n *Namespace) Forward() error {
	err := n.Do(func() error {
		for _, file := range []string{"/proc/sys/net/ipv4/ip_forward", "/proc/sys/net/ipv6/conf/all/forwarding"} {
			if err := os.WriteFile(file, []byte("1"), 0); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("forward packets in %s: %w", n.Name, err)
	}
	return nil
}

// Refuse makes a router drop what it receives from src for dst, without an answer.
func (n *Namespace) Refuse(src, dst netip.Prefix) error {
	if err := n.links.RuleAdd(refuse(src, dst)); err != nil && !errors.Is(err, unix.EEXIST) {
		return fmt.Errorf("refuse packets from %s to %s in %s: %w", src, dst, n.Name, err)
	}
	return nil
}

// Admit ends what Refuse began. It is no error if nothing was refused.
func (n *Namespace) Admit(src, dst netip.Prefix) error {
	if err := n.links.RuleDel(refuse(src, dst)); err != nil && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("admit packets from %s to %s in %s: %w", src, dst, n.Name, err)
	}
	return nil
}

func refuse(src, dst netip.Prefix) *netlink.Rule {
	r := netlink.NewRule()
	r.Priority, r.Type, r.Family = refusal, unix.FR_ACT_BLACKHOLE, unix.AF_INET
	if src.Addr().Is6() {
		r.Family = unix.AF_INET6
	}
	r.Src, r.Dst = ipNet(src), ipNet(dst)
	return r
}

func ipNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}
