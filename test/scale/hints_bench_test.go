// SPDX-License-Identifier: Apache-2.0

//go:build bench

package scale

import (
	"context"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fenceline/fenceline/agent/lease"
	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/test/check"
)

// hintsPath is the resource of the hints: one small object for each node, with a start that its agent writes and the
// controller answers.
const hintsPath = "/apis/fenceline.io/v1alpha1/leasehints"

func (p *players) addHint(ctx context.Context, node string) error {
	body := fmt.Sprintf(`{"apiVersion":"fenceline.io/v1alpha1","kind":"LeaseHint","metadata":{"name":%q}}`, node)
	return p.call(ctx, http.MethodPost, hintsPath, nil, []byte(body), nil)
}

// writesWhileAllWait measures the writes of one agent while n agents watch hints, and ADDs of each node wait for
// another, full pool.
func (c *cluster) writesWhileAllWait(n int) cost {
	c.Helper()
	only := lease.Request{Pool: "full", Addr: netip.MustParseAddr("10.98.0.1"), Parent: "eth0"}
	check.OK(c, client.IgnoreAlreadyExists(c.addBound(only, nodeOf(c.zone))))
	s := c.open(n, hintsPath, hintOf)
	defer s.close()
	c.wait("begin", `[{"pool":"full","since":"2030-01-01T00:00:00.000000Z"}]`)
	defer c.wait("end", "[]")
	c.quiet()
	return c.writes()
}

// wait has the agent of each node say for which pools its ADDs wait, and awaits the controller's answer, if any do.
func (c *cluster) wait(round, waits string) {
	c.Helper()
	round += fmt.Sprint(time.Now().UnixNano())
	body := fmt.Appendf(nil, `{"spec":{"round":%q,"waits":%s}}`, round, waits)
	c.parallel(c.nodes, func(i int) error {
		return c.players.call(c.Context(), http.MethodPatch, hintsPath+"/"+nodeOf(i), nil, body, nil)
	})
	for i := 0; i < c.nodes && waits != "[]"; i++ {
		check.Eventually(c, patience, "the answer to "+nodeOf(i), func() error {
			h := &v1alpha1.LeaseHint{}
			if err := c.client.Get(c.Context(), client.ObjectKey{Name: nodeOf(i)}, h); err != nil || h.Status.Round == round {
				return err
			}
			return fmt.Errorf("the answer is to %q", h.Status.Round)
		})
	}
}

// followHints has each agent that lives watch its hint, and verify the leases that the hint names.
func (l *loss) followHints(ctx context.Context, running *sync.WaitGroup) {
	l.Helper()
	now := check.Value(l.players.revision(ctx, hintsPath))(l)
	var all errgroup.Group
	all.SetLimit(workers)
	for i := l.zone; i < l.nodes; i++ {
		node := nodeOf(i)
		query := url.Values{"fieldSelector": {hintOf(node)}, "resourceVersion": {now}}
		all.Go(func() error {
			told := map[string]bool{}
			return l.players.watch(ctx, running, hintsPath, query, decoded(l.T, func(e event) {
				for _, changed := range e.Object.Status.Changed {
					if key := changed.Name + " " + changed.Version; !told[key] {
						told[key] = true
						running.Go(func() { l.verify(ctx, changed.Name, node) })
					}
				}
			}))
		})
	}
	check.OK(l, all.Wait())
}
