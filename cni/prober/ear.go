// SPDX-License-Identifier: Apache-2.0

package prober

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"syscall"

	"github.com/mdlayher/arp"
	"github.com/mdlayher/ethernet"
	"github.com/mdlayher/ndp"
	"github.com/mdlayher/packet"
	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// ear is a packet socket on an interface, for one protocol.
type ear struct {
	conn     *packet.Conn
	protocol ethernet.EtherType
	index    int
}

// protocolsOf returns the protocols that ask for addresses.
func protocolsOf(addrs []netip.Addr) (found []ethernet.EtherType) {
	for _, addr := range addrs {
		if p := protocolOf(addr); !slices.Contains(found, p) {
			found = append(found, p)
		}
	}
	return found
}

func protocolOf(addr netip.Addr) ethernet.EtherType {
	if addr.Is4() {
		return ethernet.EtherTypeARP
	}
	return ethernet.EtherTypeIPv6
}

const (
	ethernetHeader = 14
	ipv6Header     = 40
	// wholeFrame is a length that keeps the whole frame.
	wholeFrame = 1 << 16
)

// filter keeps the frames of a protocol that speech reads. Frames with a VLAN tag belong to another
// segment.
func filter(protocol ethernet.EtherType) ([]bpf.RawInstruction, error) {
	program := []bpf.Instruction{
		bpf.LoadExtension{Num: bpf.ExtVLANTagPresent},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: 0, SkipTrue: 1},
		bpf.RetConstant{Val: 0},
	}
	if protocol == ethernet.EtherTypeIPv6 {
		program = append(program,
			bpf.LoadAbsolute{Off: ethernetHeader + 6, Size: 1},
			bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.IPPROTO_ICMPV6, SkipTrue: 1},
			bpf.RetConstant{Val: 0},
			bpf.LoadAbsolute{Off: ethernetHeader + ipv6Header, Size: 1},
			bpf.JumpIf{Cond: bpf.JumpEqual, Val: 135, SkipTrue: 2}, // neighbour solicitation
			bpf.JumpIf{Cond: bpf.JumpEqual, Val: 136, SkipTrue: 1}, // neighbour advertisement
			bpf.RetConstant{Val: 0},
		)
	}
	return bpf.Assemble(append(program, bpf.RetConstant{Val: wholeFrame}))
}

// openEar opens a socket in the network namespace of the thread.
func openEar(i *net.Interface, protocol ethernet.EtherType) (*ear, error) {
	program, err := filter(protocol)
	if err != nil {
		return nil, fmt.Errorf("assemble the filter: %w", err)
	}
	c, err := packet.Listen(i, packet.Raw, int(protocol), &packet.Config{Filter: program})
	if err != nil {
		return nil, fmt.Errorf("open a packet socket: %w", err)
	}
	if protocol == ethernet.EtherTypeIPv6 {
		if err := joinMulticast(c, i.Index); err != nil {
			return nil, errors.Join(fmt.Errorf("receive multicast: %w", err), c.Close())
		}
	}
	return &ear{c, protocol, i.Index}, nil
}

// joinMulticast makes the interface receive all multicast while the socket is open. A host answers
// a probe to all nodes, and a host that probes too asks the group of the address. The interface has
// joined neither group while it has no address.
func joinMulticast(c syscall.Conn, index int) error {
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	err = raw.Control(func(fd uintptr) {
		all := unix.PacketMreq{Ifindex: int32(index), Type: unix.PACKET_MR_ALLMULTI}
		failed = os.NewSyscallError("setsockopt PACKET_ADD_MEMBERSHIP",
			unix.SetsockoptPacketMreq(int(fd), unix.SOL_PACKET, unix.PACKET_ADD_MEMBERSHIP, &all))
	})
	return errors.Join(err, failed)
}

// hear calls said for all that hosts say, until the socket is closed.
func (e *ear) hear(said func(speech)) {
	buffer := make([]byte, 2048)
	for {
		n, _, err := e.conn.ReadFrom(buffer)
		switch {
		case errors.Is(err, net.ErrClosed) || errors.Is(err, os.ErrClosed):
			return
		case err != nil: // the interface is down: the check of the carrier reports it
			if errors.Is(err, unix.ENETDOWN) {
				continue
			}
			return
		}
		if s, ok := parse(buffer[:n]); ok {
			said(s)
		}
	}
}

func (e *ear) say(frame []byte) error {
	_, err := e.conn.WriteTo(frame, &packet.Addr{HardwareAddr: net.HardwareAddr(frame[:6])})
	return err
}

// speech is the statement of a host about an address.
type speech struct {
	addr netip.Addr
	mac  net.HardwareAddr
	// asks: the host probes the address as well. Otherwise it uses the address.
	asks bool
}

// parse reads a statement about an address out of a frame.
func parse(data []byte) (speech, bool) {
	var f ethernet.Frame
	if f.UnmarshalBinary(data) != nil {
		return speech{}, false
	}
	switch f.EtherType {
	case ethernet.EtherTypeARP:
		return parseARP(f)
	case ethernet.EtherTypeIPv6:
		return parseND(f)
	}
	return speech{}, false
}

func parseARP(f ethernet.Frame) (speech, bool) {
	var p arp.Packet
	if p.UnmarshalBinary(f.Payload) != nil {
		return speech{}, false
	}
	if p.SenderIP.IsUnspecified() {
		return speech{p.TargetIP, p.SenderHardwareAddr, true}, p.Operation == arp.OperationRequest
	}
	return speech{p.SenderIP, p.SenderHardwareAddr, false}, true
}

func parseND(f ethernet.Frame) (speech, bool) {
	if len(f.Payload) < ipv6Header {
		return speech{}, false
	}
	from := netip.AddrFrom16([16]byte(f.Payload[8:24]))
	m, err := ndp.ParseMessage(f.Payload[ipv6Header:])
	if err != nil {
		return speech{}, false
	}
	switch m := m.(type) {
	case *ndp.NeighborAdvertisement:
		mac := f.Source
		for _, o := range m.Options {
			if l, ok := o.(*ndp.LinkLayerAddress); ok && l.Direction == ndp.Target {
				mac = l.Addr
			}
		}
		return speech{m.TargetAddress, mac, false}, true
	case *ndp.NeighborSolicitation:
		return speech{m.TargetAddress, f.Source, true}, from.IsUnspecified()
	}
	return speech{}, false
}
