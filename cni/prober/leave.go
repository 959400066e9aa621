// SPDX-License-Identifier: Apache-2.0

package prober

import (
	"errors"
	"fmt"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

const (
	// registerFiles is IORING_REGISTER_FILES (include/uapi/linux/io_uring.h).
	registerFiles = 2
	// ringParamsSize is the size of struct io_uring_params.
	ringParamsSize = 120
)

// leave closes a packet socket without the wait of the kernel for a grace period of RCU at its end
// (net/packet/af_packet.c packet_release), which takes 5 to 25 ms. An io_uring holds the socket a
// moment longer than this process does, and a worker of the kernel ends both (io_uring/io_uring.c
// io_ring_exit_work). Where the kernel allows no io_uring, leave waits.
func (e *ear) leave() error {
	ring, err := ringOf(e.fd)
	if err != nil { // without a ring only the wait is longer
		return e.conn.Close()
	}
	return errors.Join(e.conn.Close(), os.NewSyscallError("close", unix.Close(ring)))
}

// ringOf returns the descriptor of a new io_uring that holds the file fd.
func ringOf(fd int) (ring int, err error) {
	var params [ringParamsSize / 8]uint64
	r, _, errno := unix.Syscall(unix.SYS_IO_URING_SETUP, 1, uintptr(unsafe.Pointer(&params)), 0)
	if errno != 0 {
		return -1, os.NewSyscallError("io_uring_setup", errno)
	}
	files := [1]int32{int32(fd)}
	_, _, errno = unix.Syscall6(unix.SYS_IO_URING_REGISTER, r, registerFiles, uintptr(unsafe.Pointer(&files)), 1, 0, 0)
	if errno != 0 {
		return -1, errors.Join(fmt.Errorf("hold file %d: %w", fd, os.NewSyscallError("io_uring_register", errno)), unix.Close(int(r)))
	}
	return int(r), nil
}
