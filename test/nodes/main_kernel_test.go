// SPDX-License-Identifier: Apache-2.0

//go:build kernel

package nodes_test

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/fenceline/fenceline/test/nodes"
	"github.com/fenceline/fenceline/test/programs"
)

// TestMain builds the programs once for all tests.
func TestMain(m *testing.M) {
	code, err := run(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

func run(m *testing.M) (int, error) {
	if programs.Dir() != "" { // a guest has those of its host
		return m.Run(), nil
	}
	dir, err := os.MkdirTemp("", "fenceline-programs-")
	if err != nil {
		return 0, fmt.Errorf("build the programs: %w", err)
	}
	defer os.RemoveAll(dir)
	if err := programs.Share(context.Background(), dir, "agent", "controller", "cni"); err != nil {
		return 0, err
	}
	return m.Run(), nil
}

// within returns a context that ends with the test, or after the limit.
func within(t *testing.T, limit time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	t.Cleanup(cancel)
	return ctx
}

// cluster starts a cluster of count nodes for a parallel test.
func cluster(t *testing.T, limit time.Duration, count int) (context.Context, *nodes.Cluster) {
	t.Helper()
	t.Parallel()
	return within(t, limit), nodes.New(t, count)
}
