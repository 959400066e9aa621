// SPDX-License-Identifier: Apache-2.0

package segment

import (
	"context"
	"net/netip"

	"github.com/fenceline/fenceline/agent/segment/wire"
)

// parentWire sends frames on a parent: *wire.Parent, or a network of a test in memory. Safe for
// concurrent use.
type parentWire interface {
	Link() (wire.Link, error)
	CarrierLosses() (uint32, error)
	SendProbe(frame []byte) error
	Send(frame []byte) error
	Join(netip.Addr) (leave func(), err error)
	Close() error
}

// podPort sends frames from a pod's interface: *wire.Port, or one of a test. It belongs to one
// goroutine.
type podPort interface {
	WaitUp(context.Context) error
	Send(frame []byte) error
	Close() error
}
