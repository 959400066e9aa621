// SPDX-License-Identifier: Apache-2.0

package lease

import (
	"fmt"
	"strconv"

	"github.com/fenceline/fenceline/apis/v1alpha1"
)

// Token returns the fencing token of a lease as returned by Create, TakeOver or,
// for a verifier, Get: the resourceVersion as a number, which grows with every
// write (KEP-5504). Later writes do not change the holder's token.
func Token(l *v1alpha1.IPLease) (uint64, error) {
	token, err := strconv.ParseUint(l.ResourceVersion, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("token of lease %s: resourceVersion %q: %w", l.Name, l.ResourceVersion, err)
	}
	return token, nil
}
