// SPDX-License-Identifier: Apache-2.0

package hostlink

import (
	"fmt"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/fenceline/fenceline/test/check"
)

// A kernel that was started with ipv6.disable=1 knows no routes and rules of IPv6.
func TestOnlyIPv6MayBeMissing(t *testing.T) {
	for _, c := range []struct {
		family int
		err    error
		want   bool
	}{
		{unix.AF_INET6, unix.EAFNOSUPPORT, true},
		{unix.AF_INET6, fmt.Errorf("list: %w", unix.EOPNOTSUPP), true},
		{unix.AF_INET6, unix.EPERM, false},
		{unix.AF_INET, unix.EAFNOSUPPORT, false},
		{unix.AF_INET6, nil, false},
	} {
		check.Equal(t, lacks(c.family, c.err), c.want, "family %d, %v:", c.family, c.err)
	}
}
