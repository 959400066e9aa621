// SPDX-License-Identifier: Apache-2.0

//go:build kernel

package soak

import (
	"context"
	"errors"
	"math/rand/v2"
	"net/netip"
	"os"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/fenceline/fenceline/test/namespaces"
	"github.com/fenceline/fenceline/test/nodes"
)

const (
	// countVariable and seedVariable are environment variables that say how many
	// lifecycles there are, and which faults come when.
	countVariable, seedVariable = "FENCELINE_SOAK_LIFECYCLES", "FENCELINE_SOAK_SEED"
	defaultCount                = 200

	machines = 3
	// kubelets is how many lifecycles run at a time.
	kubelets = 6
	// patience is how long a pod may wait for its address, and the end for the last lease.
	patience = 2 * time.Minute
	// poolFirst, poolLast and poolSize are what pods share: so few addresses that
	// each is wanted again at once.
	poolFirst, poolLast, poolSize = "10.66.0.32", "10.66.0.43", 12
)

// soak is one run.
type soak struct {
	*nodes.Cluster
	t    *testing.T
	ctx  context.Context
	host *namespaces.Host

	begun atomic.Int64
	// lives are all sandboxes that ever had an address.
	lives lives
}

// TestSoak ends with a line that tells the seed, the faults and the figures.
func TestSoak(t *testing.T) {
	count, seed := number(t, countVariable, defaultCount), number(t, seedVariable, time.Now().UnixNano())
	t.Logf("%s=%d %s=%d", countVariable, count, seedVariable, seed)
	c := nodes.New(t, machines)
	c.Pool("v4", "10.66.0.0/24", poolFirst+"-"+poolLast)
	c.StartController()
	s := &soak{Cluster: c, t: t, ctx: t.Context(), host: c.Host(netip.MustParsePrefix("10.66.0.1/24"))}
	began := time.Now()

	faults := s.startFaults(rand.New(rand.NewPCG(uint64(seed), 0)))
	var g errgroup.Group
	for k := range kubelets {
		random := rand.New(rand.NewPCG(uint64(seed), uint64(k)+1))
		g.Go(func() error {
			var errs []error
			for n := s.begun.Add(1); n <= count; n = s.begun.Add(1) {
				errs = append(errs, s.lifecycle(int(n), random))
			}
			return errors.Join(errs...)
		})
	}
	err := g.Wait()
	struck := faults.stop()
	if err != nil {
		t.Error(err)
	}
	took := time.Since(began)

	leaks := s.leaks()
	duplicates := s.duplicates()
	t.Logf("seed %d: %d lifecycles in %s, faults %v: %d duplicates, %d leaks", seed, count, took.Round(time.Second), struck, len(duplicates), len(leaks))
	for _, d := range duplicates {
		t.Error(d)
	}
	for _, l := range leaks {
		t.Error(l)
	}
}

// number reads an environment variable.
func number(t *testing.T, variable string, otherwise int64) int64 {
	text := os.Getenv(variable)
	if text == "" {
		return otherwise
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		t.Fatalf("%s: %v", variable, err)
	}
	return n
}
