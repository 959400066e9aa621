// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/vishvananda/netlink/nl"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// CarrierLosses returns how often the parent has lost its carrier since the device was created. Two
// reads of the carrier itself would miss a loss in between.
func (p *Parent) CarrierLosses() (uint32, error) {
	request := nl.NewNetlinkRequest(unix.RTM_GETLINK, 0)
	request.Sockets = map[int]*nl.SocketHandle{unix.NETLINK_ROUTE: p.counts}
	message := nl.NewIfInfomsg(unix.AF_UNSPEC)
	message.Index = int32(p.index)
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
	return 0, errors.New("the kernel does not report IFLA_CARRIER_DOWN_COUNT")
}

// openCounts opens the socket for CarrierLosses, in the calling thread's network namespace.
func openCounts() (*nl.SocketHandle, error) {
	s, err := nl.GetNetlinkSocketAt(netns.None(), netns.None(), unix.NETLINK_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("open rtnetlink socket: %w", err)
	}
	return &nl.SocketHandle{Socket: s}, nil
}
