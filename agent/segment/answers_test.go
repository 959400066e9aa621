// SPDX-License-Identifier: Apache-2.0

package segment

import (
	"net"
	"testing"
	"time"

	"github.com/fenceline/fenceline/bpf"
)

func TestAnswers(t *testing.T) {
	const ms = time.Millisecond
	type frame struct {
		mac  net.HardwareAddr
		kind bpf.Kind
		at   time.Duration // after the start
	}
	const start = time.Hour
	settling := ProbeParams{PreviousMAC: holderMAC, Settle: 100 * ms}
	for _, tc := range []struct {
		name string
		p    ProbeParams
		prep func(*answers)
		in   []frame
		want bool
	}{
		{name: "any speaker is a conflict", in: []frame{{hostMAC, bpf.KindARP, 0}}, want: true},
		{name: "what was seen before the start is history", in: []frame{{hostMAC, bpf.KindARP, -1}}},
		{name: "a proxy's answer is ignored", p: ProbeParams{Ignore: []net.HardwareAddr{hostMAC}},
			in: []frame{{hostMAC, bpf.KindARP, ms}, {hostMAC, bpf.KindNA, 2 * ms}}},
		{name: "a proxy does not hide another speaker", p: ProbeParams{Ignore: []net.HardwareAddr{hostMAC}},
			in: []frame{{hostMAC, bpf.KindARP, ms}, {otherMAC, bpf.KindARP, 2 * ms}}, want: true},
		{name: "one foreign probe is device tracking", in: []frame{{hostMAC, bpf.KindARPProbe, ms}}},
		{name: "one foreign probe seen as event and as state is still one",
			in: []frame{{hostMAC, bpf.KindARPProbe, ms}, {hostMAC, bpf.KindARPProbe, ms}}},
		{name: "a foreign probe seen twice is simultaneous probing",
			in: []frame{{hostMAC, bpf.KindARPProbe, ms}, {hostMAC, bpf.KindARPProbe, 51 * ms}}, want: true},
		{name: "so it is in IPv6", in: []frame{{hostMAC, bpf.KindDAD, ms}, {hostMAC, bpf.KindDAD, 51 * ms}}, want: true},
		{name: "one foreign probe of each of two switches is not",
			in: []frame{{hostMAC, bpf.KindARPProbe, ms}, {otherMAC, bpf.KindARPProbe, 51 * ms}}},
		{name: "the previous holder's frames are late while they settle", p: settling,
			in: []frame{{holderMAC, bpf.KindARP, 99 * ms}}},
		{name: "a stranger's are not", p: settling, in: []frame{{hostMAC, bpf.KindARP, ms}}, want: true},
		{name: "with the previous MAC unknown anybody's may be late", p: ProbeParams{Settle: 100 * ms},
			in: []frame{{hostMAC, bpf.KindARP, 99 * ms}}},
		{name: "but not for ever", p: ProbeParams{Settle: 100 * ms}, in: []frame{{hostMAC, bpf.KindARP, 100 * ms}}, want: true},
		{name: "the previous holder in the last two rounds is only suspect", p: settling,
			prep: func(a *answers) { a.lastTwo = start + 100*ms },
			in:   []frame{{holderMAC, bpf.KindARP, 101 * ms}}},
		{name: "and a conflict when it answers the unicast probe", p: settling,
			prep: func(a *answers) { a.lastTwo, a.confirming = start+100*ms, start+200*ms },
			in:   []frame{{holderMAC, bpf.KindARP, 101 * ms}, {holderMAC, bpf.KindARP, 201 * ms}}, want: true},
		{name: "once fenced the previous holder's frames are late at any time", p: settling,
			prep: func(a *answers) { a.lastTwo, a.confirming = start, start; a.fence() },
			in:   []frame{{holderMAC, bpf.KindARP, 500 * ms}}},
		{name: "but who then answers the unicast probe is another host with that MAC", p: settling,
			prep: func(a *answers) { a.fence(); a.confirming = start + 400*ms },
			in:   []frame{{holderMAC, bpf.KindARP, 300 * ms}, {holderMAC, bpf.KindARP, 500 * ms}}, want: true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			a := newAnswers(tc.p, start)
			if tc.prep != nil {
				tc.prep(a)
			}
			got := false
			for _, f := range tc.in {
				got = a.take(newHit(f.mac, f.kind, start+f.at))
			}
			equal(t, "conflict", got, tc.want)
		})
	}
}
