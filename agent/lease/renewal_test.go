// SPDX-License-Identifier: Apache-2.0

package lease

import "testing"

func TestAFenceEndsByTheStoreThatGaveItsToken(t *testing.T) {
	for rule, c := range map[string]struct {
		claimed, live, known uint64
		want                 Renewal
	}{
		"the store is past the token":                       {100, 200, 200, Outrank},
		"the store has just given the token":                {200, 200, 150, Outrank},
		"the store has never given the token":               {300, 200, 200, Disprove},
		"the store has never given it, and went back since": {500, 200, 400, Disprove},
		"the store gave the token, and went back since":     {300, 200, 400, GiveWay},
		"the store gave the token last, and went back":      {400, 200, 400, GiveWay},
		"nothing was claimed":                               {0, 200, 200, Outrank},
	} {
		if got := RenewalOf(c.claimed, c.live, c.known); got != c.want {
			t.Errorf("%s: got %d, want %d", rule, got, c.want)
		}
	}
}
