// SPDX-License-Identifier: Apache-2.0

//go:build kernel

package nodes_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/cni/agentapi"
	"github.com/fenceline/fenceline/test/await"
	"github.com/fenceline/fenceline/test/check"
	"github.com/fenceline/fenceline/test/namespaces"
	"github.com/fenceline/fenceline/test/nodes"
)

const (
	// slowADDs run beside slowDELs.
	slowADDs, slowDELs = 20, 5
	// busy is the time for which a machine that runs other tests may hold these calls up.
	busy = 15 * time.Second
	// agreed is how long a node may take after the API server's recovery.
	agreed = 2 * time.Minute
)

// The API server takes the same time for each write. Each call of the plugin takes as long as its own
// writes, which are as many as usual. One kubelet gives up an ADD whose write comes true after that. When
// the API server has recovered, journal, leases and kernel agree.
func TestWithASlowAPIServerEachCallTakesAsLongAsItsOwnWrites(t *testing.T) {
	t.Parallel()
	delays := []time.Duration{0, 300 * time.Millisecond, 3 * time.Second}
	c := nodes.New(t, len(delays))
	ctx := within(t, 3*nodes.Limit)
	usual := 0
	for i, by := range delays {
		r := &slowRow{Cluster: c, n: c.Nodes[i], by: by}
		r.pool = c.Pool("slow-"+r.n.Name, "10.66.0.0/24", fmt.Sprintf("10.66.0.%d-10.66.0.%d", 50*i+2, 50*i+41)).DeepCopy()
		r.pool.Spec.Warm, r.pool.Spec.Parents, r.pool.Spec.NodeName = ptr.To[int64](0), []string{namespaces.Parent}, []string{r.n.Name}
		change(ctx, t, c, r.pool)
		before := r.pool.DeepCopy()
		r.pool.Status.Agents, r.pool.Status.Served = 1, 1
		check.OK(t, c.Status().Patch(ctx, r.pool, client.MergeFrom(before)))
		t.Run(by.String(), func(t *testing.T) {
			r.play(ctx, t)
			r.agrees(ctx, t)
		})
		if by == 0 {
			usual = total(r.wrote)
		}
		// The lease of the ADD that was given up is written and deleted, or taken over and confirmed.
		check.That(t, total(r.wrote) <= usual+2, "%s a write: %v of leases, want at most %d", r.by, r.wrote, usual+2)
	}
	check.OK(t, c.SpeakersAreHolders())
}

// slowRow is a node whose agent has a slow API server.
type slowRow struct {
	*nodes.Cluster
	n    *nodes.Node
	pool *v1alpha1.IPPool
	by   time.Duration
	// before has the writes of leases before the delay, wrote those since by method.
	before, wrote map[string]int
}

func (r *slowRow) play(ctx context.Context, t *testing.T) {
	pods := func(name string, count int) (pods []*corev1.Pod) {
		for i := range count {
			pods = append(pods, check.Value(r.n.NewPod(ctx, fmt.Sprintf("%s-%s-%d", name, r.n.Name, i), nil))(t))
		}
		return pods
	}
	old := begin(ctx, t, r.Cluster, pods("old", slowDELs))
	fresh := pods("fresh", slowADDs)
	r.before = r.n.Writes().Leases
	r.n.SlowAPI(r.by)
	var calls sync.WaitGroup
	var mu sync.Mutex
	var adds, dels []time.Duration
	timed := func(of *[]time.Duration, call func(context.Context) error) {
		began := time.Now()
		err := call(ctx)
		mu.Lock()
		defer mu.Unlock()
		*of = append(*of, time.Since(began))
		check.That(t, err == nil, "after %s: %v", time.Since(began), err)
	}
	for i, pod := range fresh {
		calls.Go(func() {
			s, err := r.n.NewSandbox(pod)
			if err == nil && i == 0 {
				err = r.giveUp(ctx, s)
				if err == nil {
					s, err = r.n.NewSandbox(pod)
				}
			}
			if err != nil {
				t.Error(err)
				return
			}
			timed(&adds, s.Add)
		})
	}
	for _, s := range old {
		calls.Go(func() { timed(&dels, s.Del) })
	}
	calls.Wait()
	w := r.n.Writes()
	r.n.SlowAPI(0)
	t.Logf("%s a write: an ADD took up to %s, a DEL up to %s, %d writes at the same time, others %v",
		r.by, slices.Max(adds).Round(time.Millisecond), slices.Max(dels).Round(time.Millisecond), w.Most, w.Others)
	for _, took := range slices.Concat(adds, dels) {
		check.That(t, took < r.by+busy && took < agentapi.CallTimeout, "a call with one write took %s", took)
	}
}

// giveUp is a kubelet whose time for an ADD ends while the lease is being written.
func (r *slowRow) giveUp(ctx context.Context, s *nodes.Sandbox) error {
	adding, stop := context.WithCancel(ctx)
	defer stop()
	added := make(chan error, 1)
	go func() { added <- s.Add(adding) }()
	err := await.Until(ctx, nodes.Limit, "the intent is journalled", func(context.Context) error {
		entries, err := r.n.Entries()
		if _, ok := entries[s.Attachment()]; !ok && err == nil {
			err = errors.New("no entry")
		}
		return err
	})
	stop()
	<-added //nolint:errcheck // without a delay, it may have succeeded
	return errors.Join(err, s.End(ctx))
}

// agrees waits until journal, leases and kernel agree, and no write is under way. Two audits find the lease
// of the ADD that was given up.
func (r *slowRow) agrees(ctx context.Context, t *testing.T) {
	recovered := time.Now()
	check.Eventually(t, agreed, "journal, leases and kernel agree", func() error {
		if err := r.n.LeasesAreLiving(ctx, r.pool.Name); err != nil {
			return err
		}
		if w := r.n.Writes(); w.Underway > 0 {
			return fmt.Errorf("%d writes are under way", w.Underway)
		}
		guards, err := r.n.Guards()
		if err == nil && len(guards) != slowADDs {
			err = fmt.Errorf("%d guards for %d pods", len(guards), slowADDs)
		}
		return err
	})
	r.wrote = r.n.Writes().Leases
	for method, count := range r.before {
		r.wrote[method] -= count
	}
	t.Logf("%s a write: %d writes of leases %v; journal, leases and kernel agreed %s after the API server's recovery",
		r.by, total(r.wrote), r.wrote, time.Since(recovered).Round(time.Millisecond))
}

func total(writes map[string]int) (sum int) {
	for n := range maps.Values(writes) {
		sum += n
	}
	return sum
}
