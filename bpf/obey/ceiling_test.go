// SPDX-License-Identifier: Apache-2.0

package obey

import (
	"math"
	"testing"

	"github.com/fenceline/fenceline/test/check"
)

func TestTheCeilingOfARevisionNearTheEndIsTheEnd(t *testing.T) {
	check.Equal(t, ceilingOf(math.MaxUint64-1), math.MaxUint64, "the ceiling is")
}
