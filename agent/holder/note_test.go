// SPDX-License-Identifier: Apache-2.0

package holder

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/fenceline/fenceline/agent/ipam"
	"github.com/fenceline/fenceline/agent/refusal"
	"github.com/fenceline/fenceline/internal/event"
)

// ruledOut is an error of some candidates, each with a reason of some bytes.
func ruledOut(ipv6 bool, candidates, size int) *ipam.NoPoolError {
	e := &ipam.NoPoolError{IPv6: ipv6, Interface: "pod shop/web interface eth0", Source: "the CNI configuration"}
	for i := range candidates {
		reason := fmt.Sprintf("%d is its reason", i)
		e.Rejected = append(e.Rejected, ipam.Rejection{
			Pool: fmt.Sprintf("p%d", i), Reason: ipam.Disabled, Detail: reason + strings.Repeat("x", max(0, size-len(reason)-1)) + "!",
		})
	}
	return e
}

func TestAnEventTellsWholeCandidates(t *testing.T) {
	short, long := ruledOut(false, 2, 50), ruledOut(true, 100, 60)
	uneven := ruledOut(false, 3, 60)
	uneven.Rejected[1].Detail = strings.Repeat("y", 2000)
	for _, c := range []struct {
		rule string
		err  error
		told []string // what the note holds, in this order
		more string   // how it counts the others
	}{
		{"all that fit", short, []string{"no IPv4 address", "pool p0: 0 is", "pool p1: 1 is"}, ""},
		{"as many as fit", long, []string{"no IPv6 address", "pool p0: 0 is", "pool p11: 11 is"}, "; … and 88 more"},
		{"one that is too long is counted, not cut", uneven, []string{"pool p0: 0 is", "pool p2: 2 is"}, "; … and 1 more"},
		{"both families, the short one wholly", errors.Join(short, long),
			[]string{"no IPv4 address", "pool p1: 1 is", "no IPv6 address", "pool p0: 0 is", "pool p8: 8 is"}, "; … and 91 more"},
		{"what to do stays", refusal.Answer(long),
			[]string{"no IPv6 address", "pool p0: 0 is"}, "more; see kubectl get flpool"},
	} {
		t.Run(c.rule, func(t *testing.T) {
			got := note(c.err)
			if len(got) > event.MaxNote {
				t.Errorf("%d bytes", len(got))
			}
			rest := got
			for _, part := range c.told {
				_, after, ok := strings.Cut(rest, part)
				if !ok {
					t.Fatalf("no %q follows in %q", part, got)
				}
				rest = after
			}
			if strings.Contains(got, "more") != (c.more != "") || !strings.HasSuffix(got, c.more) {
				t.Errorf("it ends with %q, want %q", got[len(got)-40:], c.more)
			}
			for _, clause := range strings.Split(got, "; ") {
				if _, reason, ok := strings.Cut(clause, ": pool p"); ok {
					clause = "pool p" + reason
				}
				if strings.HasPrefix(clause, "pool p") && !strings.Contains(clause, "!") {
					t.Errorf("a reason is cut: %q", clause)
				}
			}
		})
	}
}

func TestAnErrorOfAnotherKindIsCutAtALetter(t *testing.T) {
	got := note(errors.New(strings.Repeat("ä", event.MaxNote)))
	if len(got) > event.MaxNote || strings.Trim(got, "ä") != "..." {
		t.Errorf("%d bytes, %q", len(got), got[len(got)-10:])
	}
}
