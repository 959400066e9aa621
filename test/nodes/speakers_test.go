// SPDX-License-Identifier: Apache-2.0

package nodes

import (
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/fenceline/fenceline/test/capture"
	"github.com/fenceline/fenceline/test/check"
)

func TestAnAddressIsSpokenForByItsHolder(t *testing.T) {
	at := func(s int) time.Time { return time.Unix(int64(s), 0) }
	mac := func(n byte) net.HardwareAddr { return net.HardwareAddr{2, 0, 0, 0, 0, n} }
	addr := netip.MustParseAddr("10.0.0.2")
	sandbox := func(n byte, since, until int) *Sandbox {
		s := &Sandbox{Addr: addr, MAC: mac(n), Since: at(since)}
		if until > 0 {
			s.Until = at(until)
		}
		return s
	}
	one, two := sandbox(1, 10, 20), sandbox(2, 30, 0)
	for _, row := range []struct {
		name  string
		by    byte
		at    int
		wrong bool
	}{
		{"by the first holder, in its time", 1, 15, false},
		{"by the next holder, in its time", 2, 40, false},
		{"by the next holder, before its answer is known here", 2, 25, false},
		{"by the next holder, while it is the first one's", 2, 15, true},
		{"by the first holder, while it is the next one's", 1, 40, true},
		{"by a stranger", 3, 15, true},
	} {
		t.Run(row.name, func(t *testing.T) {
			frames := []capture.Frame{{Time: at(row.at), Source: mac(row.by), Speaks: []netip.Addr{addr}}}
			err := speakersAreHolders(frames, []*Sandbox{one, two})
			check.That(t, (err != nil) == row.wrong, "got %v", err)
		})
	}
}
