// SPDX-License-Identifier: Apache-2.0

//go:build linux

package faults

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/fenceline/fenceline/test/check"
	"github.com/fenceline/fenceline/test/interrupted"
)

// ErrFault is that of the call that fails.
const ErrFault = unix.ENOMEM

// Faults decides about the calls. Its methods may be called concurrently.
type Faults struct {
	mu sync.Mutex
	// left is the number of calls until the one that fails, 0 for none. failed: it has failed.
	left   int
	failed bool
}

// Offsets in struct seccomp_data (include/uapi/linux/seccomp.h). openFlags is the low half of the third
// argument, on a little-endian machine.
const (
	callNumber = 0
	openFlags  = 16 + 2*8
)

// Install hands the calls over, for all threads of this process, until it ends.
func Install() (*Faults, error) {
	filter := []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: callNumber},
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: unix.SYS_SENDTO, Jt: 6},
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: unix.SYS_BPF, Jt: 5},
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: unix.SYS_SETNS, Jt: 4},
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: unix.SYS_OPENAT, Jf: 2},
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: openFlags},
		{Code: unix.BPF_JMP | unix.BPF_JSET | unix.BPF_K, K: unix.O_WRONLY | unix.O_RDWR, Jt: 1},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_USER_NOTIF},
	}
	program := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	const flags = unix.SECCOMP_FILTER_FLAG_NEW_LISTENER | unix.SECCOMP_FILTER_FLAG_TSYNC | unix.SECCOMP_FILTER_FLAG_TSYNC_ESRCH
	listener, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, flags, uintptr(unsafe.Pointer(&program)))
	runtime.KeepAlive(filter)
	if errno != 0 {
		return nil, fmt.Errorf("install the seccomp filter: %w", errno)
	}
	f := &Faults{}
	go f.serve(listener)
	return f, nil
}

// Fail makes the nth call from now on fail, counted from 1.
func (f *Faults) Fail(n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.left, f.failed = n, false
}

// Stop lets all calls pass. It reports whether one has failed since Fail.
func (f *Faults) Stop() (failed bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.left = 0
	return f.failed
}

// notification and response are struct seccomp_notif and struct seccomp_notif_resp.
type notification struct {
	id         uint64
	pid, flags uint32
	data       [64]byte
}

type response struct {
	id    uint64
	value int64
	error int32
	flags uint32
}

func (f *Faults) serve(listener uintptr) {
	for {
		var n notification
		err := ioctl(listener, unix.SECCOMP_IOCTL_NOTIF_RECV, unsafe.Pointer(&n))
		if errors.Is(err, unix.ENOENT) {
			continue // the thread of the call is gone
		}
		if err != nil {
			panic(fmt.Sprintf("faults: wait for a call: %v", err))
		}
		r := response{id: n.id, flags: unix.SECCOMP_USER_NOTIF_FLAG_CONTINUE}
		if f.fails() {
			r.flags, r.error = 0, -int32(ErrFault)
		}
		err = ioctl(listener, unix.SECCOMP_IOCTL_NOTIF_SEND, unsafe.Pointer(&r))
		if err != nil && !errors.Is(err, unix.ENOENT) {
			panic(fmt.Sprintf("faults: answer a call: %v", err))
		}
	}
}

func ioctl(listener, request uintptr, argument unsafe.Pointer) error {
	return interrupted.Repeat(func() error {
		if _, _, errno := unix.Syscall(unix.SYS_IOCTL, listener, request, uintptr(argument)); errno != 0 {
			return errno
		}
		return nil
	})
}

func (f *Faults) fails() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.left == 0 {
		return false
	}
	f.left--
	f.failed = f.left == 0
	return f.failed
}

// inside is set in the process of one test.
const inside = "FENCELINE_FAULTS"

// Alone runs the calling test in a process of its own. It returns nil in the first process, whose
// test has the outcome of the second one, and the faults in the second process.
func Alone(t *testing.T) *Faults {
	t.Helper()
	if os.Getenv(inside) != t.Name() {
		cmd := exec.CommandContext(t.Context(), "/proc/self/exe", "-test.run=^"+t.Name()+"$", "-test.v", "-test.count=1")
		cmd.Env = append(os.Environ(), inside+"="+t.Name())
		out, err := cmd.CombinedOutput()
		t.Logf("%s", out)
		check.That(t, err == nil, "in a process of its own: %v", err)
		return nil
	}
	f := check.Value(Install())(t)
	return f
}
