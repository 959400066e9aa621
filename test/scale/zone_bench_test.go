// SPDX-License-Identifier: Apache-2.0

//go:build bench

package scale

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fenceline/fenceline/agent/lease"
	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/test/check"
	"github.com/fenceline/fenceline/test/figure"
)

const (
	// parallelVerifications is the limit of an agent (agent/watch).
	parallelVerifications = 32
	// verification is how long the claims and probes of an address take, whose node was powered off.
	verification = 200 * time.Millisecond
	// claims and probes of a verification, by default: frames on the segment.
	claims, probes = 3, v1alpha1.DefaultProbes
)

// fate is what became of a lease of the zone.
type fate struct {
	pool               string
	verifier           string
	verifiers          int // that were asked
	quarantined, freed time.Time
}

// loss is the loss of a zone, as the watch of leases shows it.
type loss struct {
	*cluster
	mu    sync.Mutex
	fates map[string]*fate
	freed int
	// turns hold a token for each verification that an agent may do beside others.
	turns  map[string]chan struct{}
	failed atomic.Int64 // calls of verifiers
}

// loseZone takes the power from the nodes of the zone, and reports how their addresses become free: the controller
// deletes the pods and quarantines the leases, and the agents of the other nodes verify them. Meanwhile one agent goes on
// to create leases.
func (c *cluster) loseZone() {
	c.Helper()
	if c.nodes == c.zone {
		return
	}
	l := &loss{cluster: c, fates: map[string]*fate{}, turns: map[string]chan struct{}{}}
	for i := range c.zone {
		for pool := range pools {
			l.fates[v1alpha1.LeaseName("", addressIn(pool, i))] = &fate{pool: poolOf(pool)}
		}
	}
	for i := c.zone; i < c.nodes; i++ {
		l.turns[nodeOf(i)] = make(chan struct{}, parallelVerifications)
	}
	ctx, cancel := context.WithCancel(c.Context())
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	from := url.Values{"resourceVersion": {check.Value(c.players.revision(ctx, leasesPath))(c)}}
	check.OK(c, c.players.watch(ctx, &running, leasesPath, from, decoded(c.T, l.see)))
	l.followHints(ctx, &running)

	before := c.pace(func(since time.Duration) bool { return since < time.Duration(figure.Size(10, 1))*time.Second })
	check.OK(c, os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", c.controller.PID), []byte("5"), 0)) // forgets the peak
	resident, _, err := c.controller.Memory()
	check.OK(c, err)
	requests := c.requests()
	apiCPU, cpu, began := c.cpu(), check.Value(c.controller.CPU())(c), time.Now()
	running.Go(func() { l.cut() })
	during := c.pace(func(since time.Duration) bool {
		check.Must(c, since < 20*time.Minute, "%d of %d addresses are free after %s", l.count(), len(l.fates), since)
		return l.count() < len(l.fates) && !c.Failed()
	})
	took := time.Since(began)
	_, peak, err := c.controller.Memory()
	check.OK(c, err)
	apiCPU, cpu = c.cpu()-apiCPU, check.Value(c.controller.CPU())(c)-cpu
	l.report(began, took)
	all := float64(len(l.fates))
	for what, n := range c.requests() {
		if n -= requests[what]; n > all/50 {
			c.Logf("%.2f requests for each address: %s", n/all, what)
		}
	}
	figure.Report(c, "zone: a create of the rest meanwhile, p50", figure.Median(during).Seconds()/figure.Median(before).Seconds(), "× before")
	figure.Report(c, "zone: a create of the rest meanwhile, p99", figure.Percentile(during, 99).Seconds()/figure.Percentile(before, 99).Seconds(), "× before")
	figure.Report(c, "zone: CPU of the API server for each address", figure.Milliseconds(apiCPU)/all, "ms")
	figure.Report(c, "zone: CPU of the controller for each address", figure.Milliseconds(cpu)/all, "ms")
	figure.Report(c, "zone: controller at its peak", float64(peak)/1e6, "MB")
	c.Logf("creates: before p50 %s, p99 %s of %d; during p50 %s, p99 %s, max %s of %d; controller before %d MB; %d calls of verifiers failed",
		figure.Median(before), figure.Percentile(before, 99), len(before), figure.Median(during), figure.Percentile(during, 99),
		slices.Max(during), len(during), resident/1e6, l.failed.Load())
}

// cut takes the power from the zone: its nodes are not Ready, an operator asserts that they are off, and Kubernetes
// deletes the pods of the agents.
func (l *loss) cut() {
	l.parallel(l.zone, func(i int) error {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: nodeOf(i)}}
		status := fmt.Sprintf(`{"status":{"conditions":[{"type":"Ready","status":"Unknown","lastTransitionTime":%q}]}}`, time.Now().UTC().Format(time.RFC3339))
		if err := l.client.Status().Patch(l.Context(), node, client.RawPatch("application/merge-patch+json", []byte(status))); err != nil {
			return err
		}
		taint := `{"spec":{"taints":[{"key":"node.kubernetes.io/out-of-service","value":"nodeshutdown","effect":"NoExecute"}]}}`
		return l.client.Patch(l.Context(), node, client.RawPatch("application/merge-patch+json", []byte(taint)))
	})
	l.parallel(l.zone, func(i int) error {
		return l.client.Delete(l.Context(), podOn(nodeOf(i), system, "agent-"+nodeOf(i)), client.GracePeriodSeconds(0))
	})
}

// pace creates leases as one agent, one after the other, while it may, and returns how long each took.
func (c *cluster) pace(may func(since time.Duration) bool) (creates []time.Duration) {
	c.Helper()
	store := c.storeOf(nodeOf(c.nodes - 1))
	began := time.Now()
	for i := 0; may(time.Since(began)); i++ {
		asked := time.Now()
		l := check.Value(c.createOne(store, i))(c)
		creates = append(creates, time.Since(asked))
		check.OK(c, store.Delete(c.Context(), l))
	}
	return creates
}

func (l *loss) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.freed
}

// see notes what became of a lease.
func (l *loss) see(e event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	f := l.fates[e.Object.Metadata.Name]
	switch {
	case f == nil:
	case e.Type == "DELETED":
		f.freed = time.Now()
		l.freed++
	case e.Object.Spec.State == string(v1alpha1.StateQuarantined):
		if f.quarantined.IsZero() {
			f.quarantined = time.Now()
		}
		if node := e.Object.Spec.NodeName; node != f.verifier {
			f.verifier = node
			f.verifiers++
		}
	}
}

// verify is the verification by the agent of a node. It ends when the lease is free or not its own, and does not begin
// on a node without power.
func (l *loss) verify(ctx context.Context, name, node string) {
	turn := l.turns[node]
	if turn == nil {
		return
	}
	turn <- struct{}{}
	defer func() { <-turn }()
	store := l.storeOf(node)
	for ctx.Err() == nil {
		err := l.settle(ctx, store, name, node)
		if err == nil {
			return
		}
		l.failed.Add(1)
		select {
		case <-time.After(2 * time.Second): // as agent/proof does
		case <-ctx.Done():
		}
	}
}

func (l *loss) settle(ctx context.Context, store *lease.Store, name, node string) error {
	isMine := func(found *v1alpha1.IPLease) bool {
		return found.Spec.State == v1alpha1.StateQuarantined && found.Spec.NodeName == node
	}
	found, err := store.Get(ctx, name)
	if errors.Is(err, lease.ErrGone) || err == nil && !isMine(found) {
		return nil
	}
	if err != nil {
		return err
	}
	select {
	case <-time.After(verification): // the claims and probes
	case <-ctx.Done():
		return nil
	}
	settlement, _, err := lease.Settle(found.Spec, lease.FindingSafe, lease.Evidence{}, time.Now())
	check.That(l, err == nil && settlement == lease.Free, "lease %s: settlement %d: %v", name, settlement, err)
	if err := store.Delete(ctx, found); !errors.Is(err, lease.ErrNotMine) {
		return err
	}
	return nil
}

// report prints the rates, and how fair they were.
func (l *loss) report(began time.Time, took time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	var quarantined, freed, waited []time.Duration
	last, middle := map[string]time.Duration{}, map[string][]time.Duration{}
	asked := 0
	for _, f := range l.fates {
		quarantined, freed = append(quarantined, f.quarantined.Sub(began)), append(freed, f.freed.Sub(began))
		waited = append(waited, f.freed.Sub(f.quarantined))
		last[f.pool] = max(last[f.pool], f.freed.Sub(began))
		middle[f.pool] = append(middle[f.pool], f.freed.Sub(began))
		asked += f.verifiers
	}
	var lasts, middles []time.Duration
	for _, pool := range slices.Sorted(maps.Keys(last)) {
		lasts, middles = append(lasts, last[pool]), append(middles, figure.Median(middle[pool]))
		l.Logf("%s: half free after %s, all after %s", pool, figure.Median(middle[pool]), last[pool])
	}
	slices.Sort(quarantined)
	slices.Sort(freed)
	n := len(freed)
	fmt.Printf("lost: %d nodes with %d addresses; %d agents live\n", l.zone, n, l.nodes-l.zone)
	figure.Report(l, "zone: all addresses are free after", took.Seconds(), "s")
	figure.Report(l, "zone: addresses quarantined", rate(quarantined), "a second")
	figure.Report(l, "zone: addresses verified", rate(freed), "a second")
	figure.Report(l, "zone: quarantine to free, p50", figure.Milliseconds(figure.Median(waited)), "ms")
	figure.Report(l, "zone: quarantine to free, p99", figure.Milliseconds(figure.Percentile(waited, 99)), "ms")
	figure.Report(l, "zone: verifiers asked for each address", float64(asked)/float64(n), "agents")
	figure.Report(l, "zone: last pool that is half free beside the first", slices.Max(middles).Seconds()/slices.Min(middles).Seconds(), "× the first")
	figure.Report(l, "zone: last pool that is free beside the first", slices.Max(lasts).Seconds()/slices.Min(lasts).Seconds(), "× the first")
	most := busiest(freed)
	figure.Report(l, "zone: claims in the busiest second, all segments", float64(claims*most), "frames")
	figure.Report(l, "zone: claims and probes in the busiest second, all segments", float64((claims+probes)*most), "frames")
	l.Logf("quarantined from %s to %s, free from %s to %s", quarantined[0], quarantined[n-1], freed[0], freed[n-1])
}

// rate is how many of sorted times are in a second, between the first and the last.
func rate(at []time.Duration) float64 {
	return float64(len(at)) / (at[len(at)-1] - at[0]).Seconds()
}

// busiest returns how many of sorted times are in the second with the most.
func busiest(at []time.Duration) (most int) {
	for first, last := 0, 0; last < len(at); last++ {
		for at[last]-at[first] >= time.Second {
			first++
		}
		most = max(most, last-first+1)
	}
	return most
}
