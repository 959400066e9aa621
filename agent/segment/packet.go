// SPDX-License-Identifier: Apache-2.0

package segment

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"syscall"
	"time"

	"github.com/mdlayher/packet"
	"golang.org/x/sys/unix"

	"github.com/fenceline/fenceline/internal/frames"
)

// openPacket opens a packet socket that only sends: with protocol 0 it receives nothing.
func openPacket(ifindex int) (*packet.Conn, error) {
	c, err := packet.Listen(&net.Interface{Index: ifindex}, packet.Raw, 0, nil)
	if err != nil {
		return nil, fmt.Errorf("open packet socket on interface %d: %w", ifindex, err)
	}
	return c, nil
}

// setOption sets an option of a socket by set.
func setOption(c syscall.Conn, name string, set func(fd int) error) error {
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	var failure error
	err = raw.Control(func(fd uintptr) { failure = os.NewSyscallError("setsockopt "+name, set(int(fd))) })
	return errors.Join(err, failure)
}

func setMark(c syscall.Conn, mark uint32) error {
	return setOption(c, "SO_MARK", func(fd int) error {
		return unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_MARK, int(mark))
	})
}

// joinAllNodes makes the adapter receive frames to all nodes while the socket is open. The owner of
// a probed IPv6 address answers to all nodes. A parent without IPv6 has not joined it.
func joinAllNodes(c syscall.Conn, parent int) error {
	group := unix.PacketMreq{Ifindex: int32(parent), Type: unix.PACKET_MR_MULTICAST, Alen: 6}
	copy(group.Address[:], frames.MulticastMAC(netip.IPv6LinkLocalAllNodes()))
	return setOption(c, "PACKET_ADD_MEMBERSHIP", func(fd int) error {
		return unix.SetsockoptPacketMreq(fd, unix.SOL_PACKET, unix.PACKET_ADD_MEMBERSHIP, &group)
	})
}

// sendPatience is how long a frame waits for room in its socket. A socket has room for hundreds of
// frames, and a working link empties its queue within milliseconds.
const sendPatience = 200 * time.Millisecond

// errStuck is returned when sendPatience has passed twice.
var errStuck = errors.New("the link takes no frames")

// transmit sends a frame to the destination MAC that it contains. Its error never wraps
// *net.OpError, because callers treat a *net.OpError as an unavailable API server.
func transmit(c *packet.Conn, frame []byte) error {
	err := os.ErrDeadlineExceeded
	// On an overloaded machine, the deadline may pass before the kernel has seen the frame.
	for tries := 0; tries < 2 && errors.Is(err, os.ErrDeadlineExceeded); tries++ {
		if err = c.SetWriteDeadline(time.Now().Add(sendPatience)); err == nil {
			_, err = c.WriteTo(frame, &packet.Addr{HardwareAddr: net.HardwareAddr(frame[:6])})
		}
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return errStuck
	}
	if op, ok := errors.AsType[*net.OpError](err); ok {
		return op.Err
	}
	return err
}
