// SPDX-License-Identifier: Apache-2.0

package segment

import (
	"errors"
	"testing"

	"github.com/fenceline/fenceline/test/check"
)

// A database of Open vSwitch that gives no answer takes the segments of its pods from nobody.
func TestTheKernelIsToldTheUplinksOfAVLANOnOpenVSwitch(t *testing.T) {
	a, seg := newAir(t)
	check.None(t, a.kernel.uplinks, "uplinks of a parent that has none")
	var fault error
	a.uplinks = func() (uint16, []int, error) { return 100, []int{3}, fault }
	for _, fault = range []error{nil, errors.New("no answer")} {
		again, err := seg.set.Open(parent)
		check.That(t, err == nil && again == seg, "with the fault %v, opening again says %v", fault, err)
		check.List(t, a.kernel.uplinks, []string{"7 100 [3]"}, "the uplinks are")
	}
}
