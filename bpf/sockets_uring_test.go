// SPDX-License-Identifier: Apache-2.0

//go:build kernel

package bpf

import (
	"encoding/binary"
	"os"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/fenceline/fenceline/test/check"
)

// uring is a ring of io_uring for one request (linux/io_uring.h).
type uring struct {
	fd                     int
	queues, requests       []byte
	tail, array, completed uint32 // offsets in queues
}

func newURing() (r uring, err error) {
	const (
		parameters = 120
		sqTail     = 40 + 4
		sqArray    = 40 + 24
		cqEntries  = 80 + 20
		requestsAt = 0x10000000
	)
	p := make([]byte, parameters)
	fd, _, no := unix.Syscall(unix.SYS_IO_URING_SETUP, 1, uintptr(unsafe.Pointer(&p[0])), 0)
	if no != 0 {
		return r, os.NewSyscallError("io_uring_setup", no)
	}
	at := func(offset int) uint32 { return binary.NativeEndian.Uint32(p[offset:]) }
	r = uring{fd: int(fd), tail: at(sqTail), array: at(sqArray), completed: at(cqEntries)}
	const access = unix.PROT_READ | unix.PROT_WRITE
	if r.queues, err = unix.Mmap(r.fd, 0, os.Getpagesize(), access, unix.MAP_SHARED); err != nil {
		return r, err
	}
	r.requests, err = unix.Mmap(r.fd, requestsAt, os.Getpagesize(), access, unix.MAP_SHARED)
	return r, err
}

// set returns the error of an option that io_uring sets.
func (r uring) set(socket int, o sockopt) error {
	const (
		command    = 46 // IORING_OP_URING_CMD
		setsockopt = 3  // SOCKET_URING_OP_SETSOCKOPT, Linux 6.7
		events     = 1  // IORING_ENTER_GETEVENTS
	)
	put := func(at int, n int) { binary.NativeEndian.PutUint32(r.requests[at:], uint32(n)) }
	r.requests[0] = command
	put(4, socket)
	put(8, setsockopt)
	put(16, o.level)
	put(20, o.name)
	put(44, len(o.value))
	binary.NativeEndian.PutUint64(r.requests[48:], uint64(uintptr(unsafe.Pointer(&o.value[0]))))
	binary.NativeEndian.PutUint32(r.queues[r.array:], 0)
	binary.NativeEndian.PutUint32(r.queues[r.tail:], 1)
	if _, _, no := unix.Syscall6(unix.SYS_IO_URING_ENTER, uintptr(r.fd), 1, 1, events, 0, 0); no != 0 {
		return os.NewSyscallError("io_uring_enter", no)
	}
	if result := int32(binary.NativeEndian.Uint32(r.queues[r.completed+8:])); result < 0 {
		return unix.Errno(-result)
	}
	return nil
}

// viaURing returns the error of an option of a new socket that io_uring sets.
func (ns *netns) viaURing(o sockopt) (err error) {
	ns.t.Helper()
	ns.onSocket(o.family, func(s int) error {
		r, e := newURing()
		if e != nil {
			return e
		}
		defer unix.Close(r.fd)
		err = r.set(s, o)
		_ = unix.Munmap(r.queues)
		return unix.Munmap(r.requests)
	})
	return err
}

func TestIOURingSetsNoOptionThatAPodMayNotHave(t *testing.T) {
	r := newSocketRig(t)
	elsewhere := r.node.viaURing(skips)
	if elsewhere != nil {
		check.Is(t, elsewhere, unix.EOPNOTSUPP, "before Linux 6.7, io_uring sets no option:")
		return
	}
	check.Is(t, r.pod.viaURing(skips), unix.EPERM, "of the pod:")
	check.OK(t, r.pod.viaURing(version))
}
