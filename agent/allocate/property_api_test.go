// SPDX-License-Identifier: Apache-2.0

//go:build api

package allocate

import (
	"context"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fenceline/fenceline/agent/ipam"
	"github.com/fenceline/fenceline/agent/lease"
	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/test/check"
	"github.com/fenceline/fenceline/test/controlplane"
)

// TestPropertyOnAnAPIServer is TestProperty with real leases.
func TestPropertyOnAnAPIServer(t *testing.T) {
	server := controlplane.New(t)
	var all tally
	for seed := range uint64(16) {
		w := newWorld(seed)
		all.add(w.run(t, 3, 4, 6, func(index int) (Leases, func(*v1alpha1.IPLease) error) {
			n := newNode(t, server.Admin(), ipam.Share{Index: index})
			leases := recorded{n.store, w.history}
			return leases, leases.end
		}))
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
		// Those of strangers are left.
		check.OK(t, connect(t, server.Admin()).DeleteAllOf(t.Context(), &v1alpha1.IPLease{}, client.GracePeriodSeconds(0)))
	}
	all.check(t)
}

// recorded tells the history what is done, before it is done if it makes a
// lease, and after it if it ends one.
type recorded struct {
	*lease.Store
	history *history
}

func (r recorded) Create(ctx context.Context, q lease.Request) (*v1alpha1.IPLease, error) {
	name := v1alpha1.LeaseName(q.Network, q.Addr)
	r.history.add(name, +1)
	l, err := r.Store.Create(ctx, q)
	if err != nil {
		r.history.add(name, -1)
	}
	return l, err
}

func (r recorded) end(l *v1alpha1.IPLease) error {
	if err := r.Delete(context.Background(), l); err != nil {
		return err
	}
	r.history.add(l.Name, -1)
	return nil
}
