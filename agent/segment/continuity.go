package segment

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/vishvananda/netlink/nl"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// continuity tells whether a segment was listened to without a gap: between
// two that are equal and whole, nothing that was said can have been missed.
type continuity struct {
	carrier bool
	// carrierLosses counts how often the parent has lost its carrier.
	carrierLosses uint32
	// observer numbers the attachments of the observer, see bpf.Kernel.ObserverLinks.
	observer [2]uint32
}

// observed tells whether both programs of the observer are attached.
func (c continuity) observed() bool { return c.observer[0] != 0 && c.observer[1] != 0 }

// continuity reads the present state.
func (s *Segment) continuity() (continuity, error) {
	l, err := s.wire.link()
	if err != nil {
		return continuity{}, err
	}
	losses, err := s.wire.carrierLosses()
	if err != nil {
		return continuity{}, fmt.Errorf("count the losses of carrier of %s: %w", s.name, err)
	}
	observer, err := s.set.kernel.ObserverLinks(s.parent)
	if err != nil {
		return continuity{}, err
	}
	return continuity{carrier: l.carrier, carrierLosses: losses, observer: observer}, nil
}

// carrierLosses reads how often the parent has lost its carrier since it was
// made. A loss between two looks at the carrier itself would be missed.
func (w *parentWire) carrierLosses() (uint32, error) {
	request := nl.NewNetlinkRequest(unix.RTM_GETLINK, 0)
	request.Sockets = map[int]*nl.SocketHandle{unix.NETLINK_ROUTE: w.counts}
	message := nl.NewIfInfomsg(unix.AF_UNSPEC)
	message.Index = int32(w.index)
	request.AddData(message)
	answers, err := request.Execute(unix.NETLINK_ROUTE, unix.RTM_NEWLINK)
	if err != nil {
		return 0, err
	}
	for _, answer := range answers {
		attributes, err := nl.ParseRouteAttr(answer[unix.SizeofIfInfomsg:])
		if err != nil {
			return 0, err
		}
		for _, a := range attributes {
			if a.Attr.Type == unix.IFLA_CARRIER_DOWN_COUNT && len(a.Value) == 4 {
				return binary.NativeEndian.Uint32(a.Value), nil
			}
		}
	}
	return 0, errors.New("the kernel does not count them")
}

// openCounts opens the socket for carrierLosses, in the calling thread's
// network namespace.
func openCounts() (*nl.SocketHandle, error) {
	s, err := nl.GetNetlinkSocketAt(netns.None(), netns.None(), unix.NETLINK_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("open rtnetlink socket: %w", err)
	}
	return &nl.SocketHandle{Socket: s}, nil
}
