// SPDX-License-Identifier: Apache-2.0

package hostlink

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/containernetworking/plugins/pkg/utils/sysctl"
	"golang.org/x/sys/unix"
)

// setting is a value below /proc/sys, in the network namespace of the calling thread.
type setting struct {
	name, value string
	// optional: not every kernel has it, and the host link works without it.
	optional bool
}

// noAddress makes the kernel give an interface no link-local address (IN6_ADDR_GEN_MODE_NONE). A host
// link needs none: its neighbours are permanent.
const noAddress = "1"

// ofNodeEnd returns the settings of the node's end. No other interface of the node is changed.
func ofNodeEnd(name string, withIPv6 bool) []setting {
	v4, v6 := "net/ipv4/conf/"+name+"/", "net/ipv6/conf/"+name+"/"
	return append(ofIPv6(name, withIPv6), []setting{
		{v4 + "forwarding", "1", false},
		// Loose, also if "all" is strict: the kernel uses the greater one. The pod answers from a virtual
		// address here, to which the node has a route by another interface. The guard knows the pod's
		// addresses. With accept_local, the kernel would not drop an address of the node.
		{v4 + "rp_filter", "2", false},
		{v4 + "accept_local", "0", false},
		{v4 + "proxy_arp", "0", false},
		{v4 + "send_redirects", "0", false},
		{v6 + "accept_ra", "0", true},
		{v6 + "accept_redirects", "0", true},
	}...)
}

// ofIPv6 returns the IPv6 settings of an end. They come first: while IPv6 is off, the interface can
// have no IPv6 route or neighbour.
func ofIPv6(name string, withIPv6 bool) []setting {
	v6 := "net/ipv6/conf/" + name + "/"
	settings := []setting{{v6 + "addr_gen_mode", noAddress, true}}
	if withIPv6 {
		// Some administrators switch IPv6 off for all new interfaces, although the pod uses it.
		settings = append(settings, setting{v6 + "disable_ipv6", "0", true})
	}
	return settings
}

// ofPodEnd returns the settings of the pod's end, and of the pod's own interface.
func ofPodEnd(name, own string, withIPv6 bool) []setting {
	v4, v6 := "net/ipv4/conf/"+name+"/", "net/ipv6/conf/"+name+"/"
	return append(ofIPv6(name, withIPv6), []setting{
		// The check of a source follows the mark, as the reply does. A sidecar with TPROXY has marked
		// the packet for itself, which looks like a source of the pod.
		{v4 + "src_valid_mark", "1", false},
		{v4 + "accept_local", "1", false},
		{v4 + "rp_filter", "2", false},
		{v4 + "proxy_arp", "0", false},
		{v4 + "accept_redirects", "0", false},
		{v6 + "accept_ra", "0", true},
		{v6 + "accept_redirects", "0", true},
		// A host of a listed destination may reach the pod by the underlay.
		{"net/ipv4/conf/" + own + "/rp_filter", "2", false},
		// Replies without a socket of their own, and accepted connections, keep the mark.
		{"net/ipv4/fwmark_reflect", "1", false},
		{"net/ipv4/tcp_fwmark_accept", "1", false},
		{"net/ipv6/fwmark_reflect", "1", true},
	}...)
}

// putSettings writes the settings that differ.
func putSettings(settings []setting, m mode) error {
	for _, s := range settings {
		is, err := sysctl.Sysctl(s.name)
		if err == nil && is == s.value {
			continue
		}
		if m == mend {
			_, err = sysctl.Sysctl(s.name, s.value)
		}
		switch {
		case s.optional && errors.Is(err, fs.ErrNotExist):
		case m == mend && err != nil:
			return fmt.Errorf("set %s to %s: %w", s.name, s.value, err)
		case err != nil:
			return broken("read %s: %w", s.name, err)
		case m == look:
			return broken("%s is not %s", s.name, s.value)
		}
	}
	return nil
}

// UnlockSysctls makes /proc/sys writable for this process. Runtimes mount it read-only in containers
// that are not privileged. The change stays in the mount namespace of the caller. It needs
// CAP_SYS_ADMIN.
func UnlockSysctls() error {
	const dir = "/proc/sys"
	if unix.Access(dir+"/net/ipv4/conf/default/forwarding", unix.W_OK) == nil {
		return nil
	}
	if err := unix.Mount("", dir, "", unix.MS_REMOUNT|unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("make %s writable for host links: %w", dir, &os.PathError{Op: "remount", Path: dir, Err: err})
	}
	return nil
}
