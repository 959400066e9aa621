// SPDX-License-Identifier: Apache-2.0

package subnet

import (
	"errors"
	"fmt"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fenceline/fenceline/test/check"
)

// TestAStaleObjectHidesNoOtherFailure: a stale pass comes again at once, and says nothing.
func TestAStaleObjectHidesNoOtherFailure(t *testing.T) {
	stale := fmt.Errorf("resize pool a: %w", apierrors.NewConflict(schema.GroupResource{}, "a", errors.New("changed")))
	refused := errors.New("make pool b: admission webhook denied the request")
	for name, row := range map[string]struct {
		errs  []error
		want  error
		stale bool
	}{
		"nothing failed":                      {[]error{nil, nil}, nil, false},
		"an object is stale":                  {[]error{nil, stale, nil}, stale, true},
		"a stale object, and another failure": {[]error{stale, nil, refused}, refused, false},
	} {
		got := failureOf(row.errs)
		check.Is(t, got, row.want, "%s: got", name)
		check.Equal(t, isStale(got), row.stale, "%s: %v is stale:", name, got)
	}
}
