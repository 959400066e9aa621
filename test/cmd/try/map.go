// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"net/netip"
	"path/filepath"
	"time"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/cli/grid"
	"github.com/fenceline/fenceline/cni/conflicts"
	"github.com/fenceline/fenceline/internal/inventory"
	"github.com/fenceline/fenceline/test/must"
)

// draw draws the range as `kubectl fenceline map` draws a pool: the addresses of the containers, and those
// that a host remembers as used by others.
func (l *lan) draw(w io.Writer, containers []*container) {
	pool := &v1alpha1.IPPool{Spec: v1alpha1.IPPoolSpec{Subnet: subnet, IPs: []string{taken.String() + "-" + last.String()}}}
	var leases []v1alpha1.IPLease
	add := func(a netip.Addr, state v1alpha1.LeaseState, reason v1alpha1.LeaseReason) {
		leases = append(leases, v1alpha1.IPLease{Spec: v1alpha1.IPLeaseSpec{Address: a.String(), State: state, Reason: reason}})
	}
	memory := must.Value(conflicts.Read(filepath.Dir(l.a.memory()), time.Now()))
	for a := taken; a.Compare(last) <= 0; a = a.Next() {
		if _, ok := memory.Find(a); ok {
			add(a, v1alpha1.StateQuarantined, v1alpha1.ReasonConflict)
		}
	}
	// A host remembers a container of the other host like any host, so the containers come last.
	for _, c := range containers {
		add(c.addr, v1alpha1.StateBound, "")
	}
	p, err := inventory.Of(pool, leases, nil)
	must.Done(err, "draw the range")
	fmt.Fprintf(w, "\nThe range from %s to %s, a letter for each address:\n\n", taken, last)
	grid.Grid{Pool: p, Paint: grid.Plain}.Write(w)
}
