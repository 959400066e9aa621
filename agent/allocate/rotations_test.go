// SPDX-License-Identifier: Apache-2.0

package allocate

import (
	"context"
	"net/netip"
	"testing"

	"github.com/go-logr/logr"
	"k8s.io/utils/clock"

	"github.com/fenceline/fenceline/test/check"
)

// rotations remembers where the rotations stand, and counts the writes.
type rotations struct {
	last   map[string]netip.Addr
	writes int
}

func (r *rotations) Rotations() map[string]netip.Addr { return r.last }

func (r *rotations) PutRotations(last map[string]netip.Addr) error {
	r.last = last
	r.writes++
	return nil
}

func TestTheOrderOfAddressesOutlivesTheAgent(t *testing.T) {
	m := newMemory("a")
	a := agent(m, nil)
	l, _, err := onDemand(t.Context(), a, wishFor(candidate(t, "a", nil, "10.0.0.1-10.0.0.9")))
	check.OK(t, err)
	ended, end := context.WithCancel(t.Context())
	end()
	book := &rotations{}
	for range 2 {
		check.OK(t, a.SaveRotations(ended, book, clock.RealClock{}, logr.Discard()))
	}
	if book.last["a"] != l.Spec.Addr() || book.writes != 1 {
		t.Errorf("goes on after %v, not after %s, %d writes", book.last, l.Spec.Address, book.writes)
	}
}
