// SPDX-License-Identifier: Apache-2.0

package owner_test

import (
	"fmt"
	"math"
	"testing"

	"github.com/fenceline/fenceline/internal/owner"
	"github.com/fenceline/fenceline/test/check"
)

// FuzzReservedOrdinals: a range of ordinals that is read again from its own text, or an error.
func FuzzReservedOrdinals(f *testing.F) {
	for _, text := range []string{"", "3", "3-5", "5-3", " 3 - 5 ", "-1", "3-", "+3", "2147483648", "1-2-3"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		r, err := owner.ParseRange(text)
		if err != nil {
			return
		}
		check.That(t, r.First >= 0 && r.Last >= r.First && r.Last <= math.MaxInt32, "%q: %+v", text, r)
		if again, err := owner.ParseRange(fmt.Sprintf("%d-%d", r.First, r.Last)); err != nil || again != r {
			t.Errorf("%q: %+v is read as %+v, %v", text, r, again, err)
		}
	})
}
