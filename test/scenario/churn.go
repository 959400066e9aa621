// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// rollLimit is how long a Deployment may take to replace its pods while something
// of the cluster starts again.
const rollLimit = 2 * time.Minute

// churn replaces all pods of the Deployment, again and again.
type churn struct {
	*act
	stop context.CancelFunc
	done chan struct{}
	// rolls counts how often all pods have been replaced.
	rolls atomic.Int64
}

// roll begins to replace the pods of the Deployment, until it is told to stop.
func (a *act) roll() *churn {
	ctx, stop := context.WithCancel(context.Background())
	c := &churn{act: a, stop: stop, done: make(chan struct{})}
	go c.run(ctx)
	a.after("stop the churn", func(context.Context) error { c.end(); return nil })
	return c
}

// end returns when the last roll has ended or was given up.
func (c *churn) end() { c.stop(); <-c.done }

// run goes on where it failed: the API server is away now and then.
func (c *churn) run(ctx context.Context) {
	defer close(c.done)
	for n := 1; ctx.Err() == nil; n++ {
		err := eventually(ctx, rollLimit, "a roll to begin", func(ctx context.Context) error { return c.begin(ctx, n) })
		if err == nil {
			err = eventually(ctx, rollLimit, "a roll to end", func(ctx context.Context) error {
				return c.rolledOut(ctx, client.ObjectKey{Namespace: c.namespace, Name: workload})
			})
		}
		if err == nil {
			c.rolls.Add(1)
		}
	}
}

// begin changes the template.
func (c *churn) begin(ctx context.Context, n int) error {
	deployment := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: c.namespace, Name: workload}}
	return c.api.Patch(ctx, deployment, client.RawPatch("application/merge-patch+json",
		fmt.Appendf(nil, `{"spec":{"template":{"metadata":{"annotations":{"roll":"%d"}}}}}`, n)))
}

// goesOn waits until all pods have been replaced from the beginning to the end
// since now.
func (c *churn) goesOn(ctx context.Context) error {
	before := c.rolls.Load()
	return eventually(ctx, rollLimit, "all pods to be replaced", func(ctx context.Context) error {
		const whole = 2 // the first to end had begun earlier
		if done := c.rolls.Load() - before; done < whole {
			pods, err := c.pods(ctx)
			if err != nil {
				return err
			}
			return fmt.Errorf("%d of %d rolls have ended, there are %s", done, whole, names(pods))
		}
		return nil
	})
}
