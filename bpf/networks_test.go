// SPDX-License-Identifier: Apache-2.0

package bpf

import "testing"

func TestTheIndexOfNetworksHasOneOfEachRemainder(t *testing.T) {
	index := networkIndexOf(map[uint64]bool{5: true, 5 + 1024: true, 1023: true})
	want := networkIndex{5: 5 + 1024, 1023: 1023}
	if *index != want {
		t.Errorf("the index has %v, want %v", *index, want)
	}
}
