// SPDX-License-Identifier: Apache-2.0

//go:build kernel && !guest

package segment

import (
	"net/netip"
	"testing"
	"time"

	"github.com/mdlayher/ethernet"
	"github.com/vishvananda/netlink"

	"github.com/fenceline/fenceline/agent/lease"
	"github.com/fenceline/fenceline/agent/segment/claim"
	"github.com/fenceline/fenceline/test/check"
)

// A queue that the link does not empty (guests have none) holds frames, and a socket only so many of them: who waits
// for room keeps all parents from repeating their claims (R3).
func TestALinkThatTakesNoFramesKeepsNobodyWaiting(t *testing.T) {
	n := newRig(t).addNode("a")
	p0 := check.Value(n.ns.Links().LinkByName("p0"))(t)
	check.OK(t, n.ns.Links().QdiscAdd(&netlink.Tbf{
		QdiscAttrs: netlink.QdiscAttrs{LinkIndex: p0.Attrs().Index, Handle: netlink.MakeHandle(1, 0), Parent: netlink.HANDLE_ROOT},
		Rate:       100, Limit: 1 << 20, Buffer: 250_000_000, // bytes a second, bytes, and 64 ns: a burst of 1600 bytes
	}))
	frame := check.Value(claim.Frame{Network: rigNetwork, Addr: netip.MustParseAddr("10.99.0.51")}.Ethernet(ethernet.Broadcast, n.mac, testKey))(t)
	for range 2000 {
		sent := make(chan error, 1)
		go func() { sent <- n.seg.wire.Send(frame) }()
		select {
		case err := <-sent:
			if err == nil {
				continue
			}
			check.That(t, !lease.IsUnavailable(err), "%v looks as if the API server were away", err)
			return
		case <-time.After(patience):
			t.Fatal("it is waited for")
		}
	}
	t.Fatal("the link takes all frames")
}
