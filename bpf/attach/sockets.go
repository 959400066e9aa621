// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"bytes"
	"fmt"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// Cookie returns the kernel's number of the calling thread's network namespace, which it never uses
// again (SO_NETNS_COOKIE, Linux 5.14).
func Cookie() (uint64, error) {
	s, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_ROUTE)
	if err != nil {
		return 0, os.NewSyscallError("socket", err)
	}
	defer unix.Close(s)
	cookie, err := unix.GetsockoptUint64(s, unix.SOL_SOCKET, unix.SO_NETNS_COOKIE)
	return cookie, os.NewSyscallError("SO_NETNS_COOKIE", err)
}

// NetNSInode returns the inode of the calling thread's network namespace. A later namespace may have it.
func NetNSInode() (uint64, error) {
	var st unix.Stat_t
	err := unix.Stat("/proc/thread-self/ns/net", &st)
	return st.Ino, os.NewSyscallError("stat", err)
}

// HasRawSockets reports whether a socket of AF_PACKET or AF_XDP is in the calling thread's network
// namespace.
func HasRawSockets() (bool, error) {
	protocols, err := os.ReadFile("/proc/thread-self/net/protocols")
	if err != nil {
		return false, err
	}
	for line := range bytes.Lines(protocols) {
		// The name, the size of a socket, and the number of sockets in the namespace.
		f := bytes.Fields(line)
		if len(f) < 3 || string(f[0]) != "PACKET" && string(f[0]) != "XDP" {
			continue
		}
		n, err := strconv.Atoi(string(f[2]))
		if err != nil {
			return false, fmt.Errorf("number of %s sockets: %w", f[0], err)
		}
		if n > 0 {
			return true, nil
		}
	}
	return false, nil
}
