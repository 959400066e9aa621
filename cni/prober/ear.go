// SPDX-License-Identifier: Apache-2.0

package prober

import (
	"errors"
	"fmt"
	"net"
	"os"
	"unsafe"

	"github.com/mdlayher/packet"
	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// ear is a packet socket on an interface. It hears all protocols and keeps two of them: the end of
// each socket takes time (Prober.Close).
type ear struct {
	conn *packet.Conn
	// fd is the file descriptor of conn, which does not block.
	fd     int
	buffer []byte
}

const (
	etherType      = 12
	ethernetHeader = 14
	ipv6Header     = 40
	// wholeFrame is a length that keeps the whole frame.
	wholeFrame = 1 << 16
)

// filter keeps the frames that parse reads. Frames with a VLAN tag belong to another segment.
func filter() ([]bpf.RawInstruction, error) {
	return bpf.Assemble([]bpf.Instruction{
		bpf.LoadExtension{Num: bpf.ExtVLANTagPresent},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: 0, SkipTrue: 1},
		bpf.RetConstant{Val: 0},
		bpf.LoadAbsolute{Off: etherType, Size: 2},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.ETH_P_ARP, SkipTrue: 7},
		bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: unix.ETH_P_IPV6, SkipTrue: 5},
		bpf.LoadAbsolute{Off: ethernetHeader + 6, Size: 1},
		bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: unix.IPPROTO_ICMPV6, SkipTrue: 3},
		bpf.LoadAbsolute{Off: ethernetHeader + ipv6Header, Size: 1},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: 135, SkipTrue: 2}, // neighbour solicitation
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: 136, SkipTrue: 1}, // neighbour advertisement
		bpf.RetConstant{Val: 0},
		bpf.RetConstant{Val: wholeFrame},
	})
}

// openEar opens a socket in the network namespace of the thread.
func openEar(i *net.Interface, multicast bool) (_ *ear, err error) {
	program, err := filter()
	if err != nil {
		return nil, fmt.Errorf("assemble the filter: %w", err)
	}
	c, err := packet.Listen(i, packet.Raw, unix.ETH_P_ALL, &packet.Config{Filter: program})
	if err != nil {
		return nil, fmt.Errorf("open a packet socket: %w", err)
	}
	e := &ear{conn: c, buffer: make([]byte, 2048)}
	if err := e.setUp(i.Index, multicast); err != nil {
		return nil, errors.Join(fmt.Errorf("set up a packet socket: %w", err), c.Close())
	}
	return e, nil
}

// setUp makes the socket ignore the frames of this host. With multicast, the interface receives all
// multicast while the socket is open. A host answers a probe to all nodes, and a host that probes too
// asks the group of the address. The interface has joined neither group while it has no address.
func (e *ear) setUp(index int, multicast bool) error {
	raw, err := e.conn.SyscallConn()
	if err != nil {
		return err
	}
	if err := raw.Control(func(fd uintptr) { e.fd = int(fd) }); err != nil {
		return err
	}
	if err := unix.SetsockoptInt(e.fd, unix.SOL_PACKET, unix.PACKET_IGNORE_OUTGOING, 1); err != nil {
		return os.NewSyscallError("setsockopt PACKET_IGNORE_OUTGOING", err)
	}
	if !multicast {
		return nil
	}
	all := unix.PacketMreq{Ifindex: int32(index), Type: unix.PACKET_MR_ALLMULTI}
	return os.NewSyscallError("setsockopt PACKET_ADD_MEMBERSHIP", unix.SetsockoptPacketMreq(e.fd, unix.SOL_PACKET, unix.PACKET_ADD_MEMBERSHIP, &all))
}

// hear passes on all that hosts have said and nobody has read. It does not wait.
func (e *ear) hear(heard func(speech) error) error {
	for {
		n, _, err := unix.Recvfrom(e.fd, e.buffer, 0)
		switch {
		case errors.Is(err, unix.EAGAIN):
			return nil
		case errors.Is(err, unix.EINTR), errors.Is(err, unix.ENETDOWN): // the check of the carrier reports it
			continue
		case err != nil:
			return os.NewSyscallError("recvfrom of a packet socket", err)
		}
		if s, ok := parse(e.buffer[:n]); ok {
			if err := heard(s); err != nil {
				return err
			}
		}
	}
}

func (e *ear) say(frame []byte) error {
	_, err := e.conn.WriteTo(frame, &packet.Addr{HardwareAddr: net.HardwareAddr(frame[:6])})
	return err
}

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
