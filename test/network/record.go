// SPDX-License-Identifier: Apache-2.0

package network

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"

	"github.com/fenceline/fenceline/test/must"
	"github.com/fenceline/fenceline/test/wireshark"
)

// RecordVariable names a directory. If it is set, every bridge that AddBridge makes records the frames
// that enter it into a file of the format pcap there: ARP, neighbour discovery, claims and acks.
const RecordVariable = "FENCELINE_TEST_FRAMES"

// recordBuffer is enough for some ten thousand frames that a busy machine has not read yet.
const recordBuffer = 16 << 20

// record writes the frames of all interfaces of a namespace into a file.
type record struct {
	socket, file *os.File
	done         chan error
}

// startRecord begins a record until Close, if somebody wants the frames and there is none yet.
func (n *Namespace) startRecord() (err error) {
	defer must.CatchIn(&err, "record the frames in %s", n.Name)
	dir := os.Getenv(RecordVariable)
	if dir == "" || n.record != nil {
		return nil
	}
	r := &record{done: make(chan error, 1)}
	must.OK(n.Do(r.open))
	// The name says which test binary made the network.
	if r.file, err = os.CreateTemp(dir, filepath.Base(os.Args[0])+"-*.pcap"); err == nil {
		_, err = r.file.Write(wireshark.Header())
	}
	if err != nil {
		return errors.Join(err, r.socket.Close())
	}
	go func() { r.done <- r.run() }()
	n.record = r
	return nil
}

// EndRecord ends the record of the namespace, if there is one, and returns what kept it from being whole.
func (n *Namespace) EndRecord() error {
	r := n.record
	n.record = nil
	return r.stop()
}

// stop ends a record after the frames that have arrived.
func (r *record) stop() error {
	if r == nil {
		return nil
	}
	err := r.socket.SetReadDeadline(time.Now())
	return errors.Join(err, <-r.done, r.socket.Close(), r.file.Close())
}

func (r *record) open() error {
	filter := recordFilter()
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	must.Done(err, "open a packet socket")
	r.socket = os.NewFile(uintptr(fd), "packet")
	all := &unix.SockaddrLinklayer{Protocol: unix.ETH_P_ALL>>8 | unix.ETH_P_ALL<<8&0xff00} // network byte order
	if err := errors.Join(
		unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, recordBuffer),
		unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}),
		unix.Bind(fd, all),
	); err != nil {
		return errors.Join(fmt.Errorf("set up a packet socket: %w", err), r.socket.Close())
	}
	return nil
}

// run writes frames until stop sets the deadline.
func (r *record) run() error {
	conn, err := r.socket.SyscallConn()
	if err != nil {
		return fmt.Errorf("record frames: %w", err)
	}
	var failed error
	err = conn.Read(func(fd uintptr) bool {
		failed = r.writeAll(int(fd))
		return failed != nil
	})
	if errors.Is(err, os.ErrDeadlineExceeded) {
		err = conn.Control(func(fd uintptr) { failed = r.writeAll(int(fd)) }) // what arrived before stop
	}
	if err := errors.Join(err, failed); err != nil {
		return fmt.Errorf("record frames: %w", err)
	}
	return nil
}

// writeAll writes the frames that the socket has. A process that ends without stop loses none of those
// that are written.
func (r *record) writeAll(fd int) error {
	data := make([]byte, 1<<16)
	for {
		n, _, err := unix.Recvfrom(fd, data, 0)
		switch {
		case errors.Is(err, unix.EAGAIN):
			return nil
		case errors.Is(err, unix.EINTR), errors.Is(err, unix.ENETDOWN): // a test has pulled a cable
			continue
		case err != nil:
			return fmt.Errorf("receive a frame: %w", err)
		}
		if _, err := r.file.Write(wireshark.Frame{At: time.Now(), Data: data[:n]}.Record()); err != nil {
			return err
		}
	}
}

// recordFilter keeps what enters a port: ARP, claims and acks, neighbour discovery directly after the
// IPv6 header, and IPv6 that ends before its type.
func recordFilter() []unix.SockFilter {
	const (
		typeAt, nextHeaderAt, icmpTypeAt = 12, 14 + 6, 14 + 40
		claim                            = 0x88b5
		routerSolicitation, redirect     = 133, 137 // RFC 4861, section 4
		keep, drop                       = 13, 14   // the last two instructions
	)
	program := []bpf.Instruction{
		bpf.LoadExtension{Num: bpf.ExtType},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.PACKET_OUTGOING, SkipTrue: drop - 2},
		bpf.LoadAbsolute{Off: typeAt, Size: 2},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.ETH_P_ARP, SkipTrue: keep - 4},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: claim, SkipTrue: keep - 5},
		bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: unix.ETH_P_IPV6, SkipTrue: drop - 6},
		bpf.LoadExtension{Num: bpf.ExtLen},
		bpf.JumpIf{Cond: bpf.JumpLessOrEqual, Val: icmpTypeAt, SkipTrue: keep - 8},
		bpf.LoadAbsolute{Off: nextHeaderAt, Size: 1},
		bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: unix.IPPROTO_ICMPV6, SkipTrue: drop - 10},
		bpf.LoadAbsolute{Off: icmpTypeAt, Size: 1},
		bpf.JumpIf{Cond: bpf.JumpLessThan, Val: routerSolicitation, SkipTrue: drop - 12},
		bpf.JumpIf{Cond: bpf.JumpGreaterThan, Val: redirect, SkipTrue: drop - 13},
		bpf.RetConstant{Val: 1 << 16},
		bpf.RetConstant{Val: 0},
	}
	raw := must.Value(bpf.Assemble(program))
	filter := make([]unix.SockFilter, len(raw))
	for i, r := range raw {
		filter[i] = unix.SockFilter{Code: r.Op, Jt: r.Jt, Jf: r.Jf, K: r.K}
	}
	return filter
}
