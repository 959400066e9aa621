// SPDX-License-Identifier: Apache-2.0

//go:build kernel

package nodes_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/fenceline/fenceline/test/check"
	"github.com/fenceline/fenceline/test/nodes"
)

// The API server's clock is an hour ahead of a node's, and then an hour behind. Leases have its time.
func TestLeasesHaveTheTimeOfTheAPIServer(t *testing.T) {
	ctx, c := cluster(t, nodes.Limit, 1)
	n := c.Nodes[0]
	c.Pool("v4", "10.66.0.0/24", "10.66.0.2-10.66.0.9")
	for i, ahead := range []time.Duration{time.Hour, -time.Hour} {
		n.ShiftAPI(ahead)
		check.OK(t, n.KillAgent())
		check.OK(t, n.AwaitAgent(ctx))
		s := started(ctx, t, n, fmt.Sprintf("pod-%d", i), nil)
		since := time.Until(check.Value(c.Lease(ctx, s.Addr))(t).Spec.Since.Time)
		check.That(t, (since-ahead).Abs() < time.Minute, "the lease is from %s ahead, not %s", since, ahead)
		check.OK(t, s.Finish(ctx))
	}
	c.Settles(ctx, t)
}
