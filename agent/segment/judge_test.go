// SPDX-License-Identifier: Apache-2.0

package segment

import (
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/fenceline/fenceline/bpf"
	"github.com/fenceline/fenceline/test/check"
)

func TestJudge(t *testing.T) {
	// quiet is a verification during which nobody answered, on a parent that
	// hears others; each row changes it.
	quiet := Evidence{Carrier: true, Observed: true, OthersShare: true,
		Unanswered: 3, Heard: true, HeardAgo: 59 * time.Second, Canary: canary4, Asked: 1}
	for _, tc := range []struct {
		name   string
		change func(*Evidence)
		want   Verdict
		says   string
	}{
		{"an ack fences", func(e *Evidence) { e.Acked, e.AckMAC = true, otherMAC },
			Fenced, "acknowledged the claim from 02:00:00:00:00:02"},
		{"an ack fences even where nobody else was ever heard", func(e *Evidence) { e.Acked, e.Heard, e.Unanswered = true, false, 0 },
			Fenced, "acknowledged"},
		{"a dead slot here fences without carrier", func(e *Evidence) { e.SlotDead, e.Carrier, e.Unanswered = true, false, 0 },
			Fenced, "slot on this node is dead"},
		{"R1: a stranger's answer stops", func(e *Evidence) { e.Answer = Answer{Conflict: true, MAC: hostMAC} },
			Answered, "02:00:00:00:00:63 answers"},
		{"R1: a stranger's answer stops although the holder is fenced", func(e *Evidence) { e.Acked, e.Answer = true, Answer{Conflict: true, MAC: hostMAC} },
			Answered, "02:00:00:00:00:63 answers"},
		{"R1: the previous holder's answer stops without ack", func(e *Evidence) {
			e.Answer, e.ByPrevious = Answer{Conflict: true, MAC: holderMAC}, true
		}, Answered, "previous holder 02:00:00:00:00:0b still answers"},
		{"the previous holder's late answer does not stop an ack", func(e *Evidence) {
			e.Acked, e.Answer, e.ByPrevious = true, Answer{Conflict: true, MAC: holderMAC}, true
		}, Fenced, "acknowledged"},
		{"R1: an answer stops although the holder's node is said to be gone", func(e *Evidence) {
			e.Asserted, e.Answer = true, Answer{Conflict: true, MAC: hostMAC}
		}, Answered, "answers"},
		{"three unanswered rounds on a hearing parent are silence", func(*Evidence) {},
			Silent, "3 probe rounds were not answered, and another node was heard on the parent 59s ago, and 192.0.2.1 answered"},
		{"R1: silence of a holder without a guard is none", func(e *Evidence) { e.Unguarded = true }, Unknown, "has not acknowledged that its VF is off"},
		{"but its ack fences", func(e *Evidence) { e.Unguarded, e.Acked = true, true }, Fenced, "acknowledged"},
		{"and so does an operator's word", func(e *Evidence) { e.Unguarded, e.Asserted = true, true }, Silent, "gone or out of service"},
		{"two unanswered rounds are not", func(e *Evidence) { e.Unanswered = 2 }, Unknown, "only 2 of 3"},
		{"hearing holds for two minutes", func(e *Evidence) { e.HeardAgo = 2 * time.Minute }, Silent, "2m0s ago"},
		{"R2: and not longer", func(e *Evidence) { e.HeardAgo = 2*time.Minute + 1 },
			Unknown, "no other node was heard on the parent for 2m0s"},
		{"R2: who never heard anybody is deaf", func(e *Evidence) { e.Heard, e.HeardAgo = false, 0 }, Unknown, "ever been heard"},
		{"R2: no canary answered, so nobody may have heard the probes", func(e *Evidence) { e.Canary = netip.Addr{} },
			Unknown, "they may not hear it"},
		{"R2: no canary is known", func(e *Evidence) { e.Canary, e.Asked = netip.Addr{}, 0 }, Unknown, "Set spec.gateway of the pool"},
		{"R2: no canary is vouched for", func(e *Evidence) { e.Canary, e.Asked, e.Shared = netip.Addr{}, 0, true }, Unknown, "no other node has claimed"},
		{"an asserted end needs no canary", func(e *Evidence) { e.Canary, e.Asserted = netip.Addr{}, true },
			Silent, "gone or out of service"},
		{"nor does a node that is alone", func(e *Evidence) { e.Canary, e.OthersShare = netip.Addr{}, false },
			Silent, "no other node shares"},
		{"nobody to hear is no deafness", func(e *Evidence) { e.Heard, e.OthersShare = false, false }, Silent, "no other node shares"},
		{"R2: silence on a guessed parent may be that of another segment", func(e *Evidence) { e.Guessed = true },
			Unknown, "name it in the pool's spec.parents"},
		{"and a machine that is off needs no parent that is known", func(e *Evidence) { e.Guessed, e.Asserted = true, true },
			Silent, "gone or out of service"},
		{"an ack comes from the right one", func(e *Evidence) { e.Guessed, e.Acked = true, true }, Fenced, "acknowledged"},
		{"an asserted end needs no hearing", func(e *Evidence) { e.Heard, e.Asserted = false, true }, Silent, "gone or out of service"},
		{"R2: no carrier, nothing heard", func(e *Evidence) { e.Carrier = false }, Unknown, "no carrier"},
		{"R2: no observer, nothing heard", func(e *Evidence) { e.Observed = false }, Unknown, "observer is not attached"},
		{"R2: not even an asserted end makes silence without carrier", func(e *Evidence) { e.Carrier, e.Asserted = false, true },
			Unknown, "no carrier"},
		{"an older lease here hides who speaks", func(e *Evidence) { e.HeldHere = true }, Unknown, "still installed on this node"},
		{"but no ack", func(e *Evidence) { e.HeldHere, e.Acked = true, true }, Fenced, "acknowledged"},
		{"nothing at all is known of nothing", func(e *Evidence) { *e = Evidence{} }, Unknown, "no carrier"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			e := quiet
			tc.change(&e)
			got := Judge(e)
			check.Equal(t, got, tc.want, "verdict")
			check.That(t, strings.Contains(e.String(), tc.says), "it says %q, want %q in it", e, tc.says)
			check.Equal(t, got.Safe(), got == Fenced || got == Silent, "%s.Safe() =", got)
		})
	}
}

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
		{name: "the previous holder's frames are late while they settle", p: settling, in: []frame{{holderMAC, bpf.KindARP, 99 * ms}}},
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
				got = a.take(newHit(f.mac, f.kind, start+f.at, bpf.WhereObserverIngress))
			}
			equal(t, "conflict", got, tc.want)
		})
	}
}
