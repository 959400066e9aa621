// SPDX-License-Identifier: Apache-2.0

//go:build bench

package scale

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/fenceline/fenceline/test/check"
)

// hintsPath is the resource of the hints: one small object for each node, with a start that its agent writes and the
// controller answers.
const hintsPath = "/apis/fenceline.io/v1alpha1/leasehints"

func (p *players) addHint(ctx context.Context, node string) error {
	body := fmt.Sprintf(`{"apiVersion":"fenceline.io/v1alpha1","kind":"LeaseHint","metadata":{"name":%q}}`, node)
	return p.call(ctx, http.MethodPost, hintsPath, nil, []byte(body), nil)
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
