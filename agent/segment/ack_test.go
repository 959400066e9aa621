// SPDX-License-Identifier: Apache-2.0

package segment

import (
	"testing"
	"testing/synctest"

	"github.com/fenceline/fenceline/bpf"
)

// Without --bump-revision a store that went back gives tokens a second time.
func TestVerifyAckFromBeforeTheStoreWentBackIsNone(t *testing.T) {
	for _, tc := range []struct {
		name    string
		prepare func(*air)
		want    Verdict
	}{
		{"nobody acknowledges now", func(*air) {}, Silent},
		{"the holder acknowledges now", guardedZombie, Fenced},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				_, verdict, e, _ := verifyAir(t, verification(), func(a *air) {
					later := ownClaim.Token + 100
					a.kernel.states[key(addr4)] = bpf.State{MaxToken: later, AckedToken: later, AckMAC: otherMAC}
					tc.prepare(a)
				})
				if verdict != tc.want {
					t.Errorf("verdict %s (%s), want %s", verdict, e, tc.want)
				}
			})
		})
	}
}
