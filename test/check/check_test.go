// SPDX-License-Identifier: Apache-2.0

package check

import (
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// told is a test that keeps what was reported to it.
type told struct {
	testing.TB
	errors, ends []string
}

func (*told) Helper() {}

func (r *told) Errorf(format string, args ...any) {
	r.errors = append(r.errors, fmt.Sprintf(format, args...))
}

func (r *told) Fatalf(format string, args ...any) {
	r.ends = append(r.ends, fmt.Sprintf(format, args...))
}

// TestEachComparisonReportsADifference and nothing else.
func TestEachComparisonReportsADifference(t *testing.T) {
	anyCase := cmp.Options{cmp.Comparer(strings.EqualFold)}
	for name, row := range map[string]struct {
		good, bad func(testing.TB)
		says      string
		ends      bool
	}{
		"That":  {func(t testing.TB) { That(t, true, "x") }, func(t testing.TB) { That(t, false, "row %d", 7) }, "row 7", false},
		"Must":  {func(t testing.TB) { Must(t, true, "x") }, func(t testing.TB) { Must(t, false, "row %d", 7) }, "row 7", true},
		"Equal": {func(t testing.TB) { Equal(t, 3, 3, "x") }, func(t testing.TB) { Equal(t, "a", "b", "row %d:", 7) }, `row 7: "a", want "b"`, false},
		"List":  {func(t testing.TB) { List(t, []int{}, nil, "x") }, func(t testing.TB) { List(t, []int{1}, nil, "row %d:", 7) }, "row 7: [1], want []", false},
		"Is":    {func(t testing.TB) { Is(t, fmt.Errorf("%w", io.EOF), io.EOF, "x") }, func(t testing.TB) { Is(t, nil, io.EOF, "got") }, "got <nil>, want EOF", false},
		"None":  {func(t testing.TB) { None(t, []int{}, "x") }, func(t testing.TB) { None(t, []int{1}, "row %d:", 7) }, "row 7: [1], want none", false},
		"Says":  {func(t testing.TB) { Says(t, io.EOF, "E", "OF") }, func(t testing.TB) { Says(t, Err(0, error(nil)), "EOF") }, `"<nil>" does not say "EOF"`, false},
		"Same": {func(t testing.TB) { Same(t, []string{"a"}, []string{"a"}, "x") },
			func(t testing.TB) { Same(t, []string{"got1"}, []string{"b"}, "row %d", 7) }, `row 7 (-want +got):`, false},
		"SameBy": {func(t testing.TB) { SameBy(t, anyCase, "a", "A", "x") },
			func(t testing.TB) { SameBy(t, anyCase, "a", "b", "row %d", 7) }, `row 7 (-want +got):`, false},
	} {
		quiet, loud := &told{TB: t}, &told{TB: t}
		row.good(quiet)
		row.bad(loud)
		reported, other := loud.errors, loud.ends
		if row.ends {
			reported, other = other, reported
		}
		if len(quiet.errors)+len(quiet.ends)+len(other) > 0 || len(reported) != 1 || !strings.HasPrefix(reported[0], row.says) {
			t.Errorf("%s: %+v for good values, %+v for bad ones", name, quiet, loud)
		}
	}
}
