// SPDX-License-Identifier: Apache-2.0

package warm

import "testing"

func TestWhatWasProvenOnAnInterfaceIsNotOnAnotherOneOfItsName(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		r.warmed()
		// The old one lives on under another name, with all that was proven there.
		r.set(func() { r.parents["eth1"] = 8 })
		anew := wishV4()
		anew.ParentIndex = 8
		if l, ok := r.keeper.Take(anew); ok {
			t.Errorf("took %s", l.Name)
		}
		r.wake()
		r.pass(2 * proofTakes)
		for range 2 {
			if _, ok := r.keeper.Take(anew); !ok {
				t.Error("nothing is proven on the new one")
			}
		}
		if r.proofs("10.0.0.2") != 2 || r.proofs("10.0.0.3") != 2 {
			t.Errorf("%d and %d proofs", r.proofs("10.0.0.2"), r.proofs("10.0.0.3"))
		}
	})
}
