// SPDX-License-Identifier: Apache-2.0

package bpf

import (
	"math"
	"testing"

	"github.com/fenceline/fenceline/test/check"
)

func TestTheCeilingOfARevisionNearTheEndIsTheEnd(t *testing.T) {
	check.Equal(t, ceilingOf(math.MaxUint64-1), math.MaxUint64, "the ceiling is")
}

func TestTheIndexOfNetworksHasOneOfEachRemainder(t *testing.T) {
	want := make([]uint64, 1024)
	want[5], want[1023] = 5+1024, 1023
	check.List(t, networkIndexOf(map[uint64]bool{5: true, 5 + 1024: true, 1023: true}, 1024), want, "the index has")
}
