// SPDX-License-Identifier: Apache-2.0

//go:build kernel

package segment

import (
	"bytes"
	"net"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/fenceline/fenceline/test/capture"
	"github.com/fenceline/fenceline/test/check"
	"github.com/fenceline/fenceline/test/network"
)

// outgoing is what comes out of a port of the switch from the node behind it.
type outgoing struct {
	*capture.Capture
	port string
	// first and since are those of the last reset.
	first int
	since time.Time
}

// startCapture captures what the machine behind a port sends, until the test ends.
func startCapture(t *testing.T, ns *network.Namespace, port string) *outgoing {
	t.Helper()
	c := check.Value(capture.Start(ns, network.Bridge))(t)
	t.Cleanup(func() { check.Value(c.Stop())(t) })
	return &outgoing{Capture: c, port: port}
}

// list returns the frames that match, of those that came since the last reset.
func (o *outgoing) list(match func(capture.Frame) bool) (found []capture.Frame) {
	for _, f := range o.Frames()[o.first:] {
		if f.Port == o.port && !f.Time.Before(o.since) && match(f) {
			found = append(found, f)
		}
	}
	return found
}

// reset forgets what has come up to now, also what nobody has read yet.
func (o *outgoing) reset() { o.first, o.since = len(o.Frames()), time.Now() }

// from matches the frames of mac that speak for addr.
func from(mac net.HardwareAddr, addr netip.Addr) func(capture.Frame) bool {
	return func(f capture.Frame) bool { return bytes.Equal(f.Source, mac) && slices.Contains(f.Speaks, addr) }
}
