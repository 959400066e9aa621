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
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/fenceline/fenceline/bpf"
)

// wire sends whole Ethernet frames on a parent. Its methods are called concurrently.
type wire interface {
	// link reads the parent's present state.
	link() (link, error)
	// carrierLosses counts how often the parent has lost its carrier.
	carrierLosses() (uint32, error)
	// sendProbe sends a frame that the observer reflects to the parent's own children.
	sendProbe(frame []byte) error
	// send sends a frame as it is.
	send(frame []byte) error
	close() error
}

// link is what a parent looks like at one moment.
type link struct {
	name    string
	mac     net.HardwareAddr
	carrier bool
}

// parentWire is the wire of a real parent. Its sockets stay in the network
// namespace in which it was opened. They go through the queueing discipline and
// so through the observer: PACKET_QDISC_BYPASS would get past it.
type parentWire struct {
	index  int
	nl     *netlink.Handle
	probes *packet.Conn // marked bpf.ProbeMark
	claims *packet.Conn
	counts *nl.SocketHandle
}

func openWire(parent int) (_ wire, err error) {
	w := &parentWire{index: parent}
	defer func() {
		if err != nil {
			err = errors.Join(err, w.close())
		}
	}()
	if w.nl, err = netlink.NewHandle(unix.NETLINK_ROUTE); err != nil {
		return nil, fmt.Errorf("open rtnetlink socket: %w", err)
	}
	if w.counts, err = openCounts(); err != nil {
		return nil, err
	}
	if w.probes, err = openPacket(parent); err != nil {
		return nil, err
	}
	if err = setMark(w.probes, bpf.ProbeMark); err != nil {
		return nil, fmt.Errorf("mark probe socket: %w", err)
	}
	if err = joinAllNodes(w.probes, parent); err != nil {
		return nil, fmt.Errorf("join the group of all nodes: %w", err)
	}
	if w.claims, err = openPacket(parent); err != nil {
		return nil, err
	}
	return w, nil
}

// openPacket opens a packet socket that only sends: protocol 0 receives nothing.
func openPacket(ifindex int) (*packet.Conn, error) {
	c, err := packet.Listen(&net.Interface{Index: ifindex}, packet.Raw, 0, nil)
	if err != nil {
		return nil, fmt.Errorf("open packet socket on interface %d: %w", ifindex, err)
	}
	return c, nil
}

func setMark(c syscall.Conn, mark uint32) error {
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	var serr error
	err = raw.Control(func(fd uintptr) {
		serr = os.NewSyscallError("setsockopt SO_MARK", unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_MARK, int(mark)))
	})
	return errors.Join(err, serr)
}

// joinAllNodes has the adapter hand up what is sent to all nodes, for as long as the socket is open: so those answer
// who are probed for an IPv6 address, and a parent whose own IPv6 is disabled is in no group.
func joinAllNodes(c syscall.Conn, parent int) error {
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	group := unix.PacketMreq{Ifindex: int32(parent), Type: unix.PACKET_MR_MULTICAST, Alen: 6}
	copy(group.Address[:], multicastMAC(netip.IPv6LinkLocalAllNodes()))
	var serr error
	err = raw.Control(func(fd uintptr) {
		serr = os.NewSyscallError("setsockopt PACKET_ADD_MEMBERSHIP", unix.SetsockoptPacketMreq(int(fd), unix.SOL_PACKET, unix.PACKET_ADD_MEMBERSHIP, &group))
	})
	return errors.Join(err, serr)
}

func (w *parentWire) link() (link, error) {
	l, err := w.nl.LinkByIndex(w.index)
	if _, missing := errors.AsType[netlink.LinkNotFoundError](err); missing {
		return link{}, fmt.Errorf("read parent %d: %w", w.index, bpf.ErrNoDevice)
	}
	if err != nil {
		return link{}, fmt.Errorf("read parent %d: %w", w.index, err)
	}
	a := l.Attrs()
	return link{name: a.Name, mac: a.HardwareAddr, carrier: a.RawFlags&unix.IFF_LOWER_UP != 0}, nil
}

func (w *parentWire) sendProbe(frame []byte) error { return transmit(w.probes, frame) }
func (w *parentWire) send(frame []byte) error      { return transmit(w.claims, frame) }

// sendPatience is how long a frame waits for room in its socket, which has some
// for hundreds: a link that empties its queue does so within milliseconds.
const sendPatience = 200 * time.Millisecond

// errStuck: see sendPatience.
var errStuck = errors.New("the link takes no frames")

// transmit sends a frame to its own destination address. Its error is none of a
// connection: who asks the API server takes one for its absence.
func transmit(c *packet.Conn, frame []byte) error {
	err := c.SetWriteDeadline(time.Now().Add(sendPatience))
	if err == nil {
		_, err = c.WriteTo(frame, &packet.Addr{HardwareAddr: net.HardwareAddr(frame[:6])})
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return errStuck
	}
	if op, ok := errors.AsType[*net.OpError](err); ok {
		return op.Err
	}
	return err
}

func (w *parentWire) close() error {
	var errs []error
	for _, c := range []*packet.Conn{w.probes, w.claims} {
		if c != nil {
			errs = append(errs, c.Close())
		}
	}
	if w.nl != nil {
		w.nl.Close()
	}
	if w.counts != nil {
		w.counts.Close()
	}
	return errors.Join(errs...)
}
