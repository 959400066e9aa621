// SPDX-License-Identifier: Apache-2.0

package poolset

import (
	"slices"
	"testing"
)

func TestPartsOfASet(t *testing.T) {
	s := setOf(t, "10.0.0.2-10.0.0.4", "10.0.0.8", "fd00::1-fd00::ffff")
	for _, row := range []struct {
		rule string
		got  Set
		want []string
	}{
		{"the first of a span", s.First(2), []string{"10.0.0.2-10.0.0.3"}},
		{"the first over spans", s.First(5), []string{"10.0.0.2-10.0.0.4", "10.0.0.8", "fd00::1"}},
		{"none", s.First(0), []string{}},
		{"more than there are", setOf(t, "10.0.0.2").First(9), []string{"10.0.0.2"}},
		{"the last", setOf(t, "10.0.0.2-10.0.0.4", "10.0.0.8").Last(2), []string{"10.0.0.4", "10.0.0.8"}},
		{"the last of fewer", setOf(t, "10.0.0.2").Last(9), []string{"10.0.0.2"}},
		{"a union", Union(setOf(t, "10.0.0.2"), Set{}, setOf(t, "10.0.0.3", "10.0.0.9")), []string{"10.0.0.2-10.0.0.3", "10.0.0.9"}},
	} {
		if got := row.got.Entries(); !slices.Equal(got, row.want) || !row.got.Equal(setOf(t, row.want...)) {
			t.Errorf("%s: %v, want %v", row.rule, got, row.want)
		}
	}
}
