// SPDX-License-Identifier: Apache-2.0

//go:build bench

package scale

import (
	"context"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/fenceline/fenceline/agent/lease"
	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/test/check"
	"github.com/fenceline/fenceline/test/figure"
	"github.com/fenceline/fenceline/test/scrape"
)

const (
	// slope is how much more CPU of the API server a write of a lease may take with agents than without.
	slope = 1.3
	// listers is how many agents list all leases at once. The cost of more is computed.
	listers = 200
	// fewNodes are the nodes of the short form. As many watches of leases would cost too little to be told from noise.
	fewNodes = 200
	// known is how many leases an agent reads by name when it starts.
	known = 10
)

// TestManyNodes measures what agents cost the API server, before and after they watched hints: the write of a lease
// with N agents that watch, a start of all of them, and the loss of a zone. The environment sets the numbers of agents
// (FENCELINE_SCALE_AGENTS), the nodes of the zone, with 20 leases each (FENCELINE_SCALE_ZONE), further leases for the
// figure of memory with the most agents (FENCELINE_SCALE_LEASES), and how often each kind of write is measured
// (FENCELINE_SCALE_ROUNDS).
//
// Agents before the change watch the leases with their nodeName; after it, each watches one object by its name. Other
// watches of agents are left out, and no agent with a kernel takes part: test/nodes measures that.
func TestManyNodes(t *testing.T) {
	zone := number(t, "FENCELINE_SCALE_ZONE", figure.Size(100, 5))
	check.Must(t, zone > 0, "FENCELINE_SCALE_ZONE is %d: the leases of the zone are those that agents read when they start", zone)
	c := newCluster(t, zone)
	counts := strings.Fields(os.Getenv("FENCELINE_SCALE_AGENTS"))
	if len(counts) == 0 {
		counts = []string{"0", "1500"}
	}
	for _, text := range counts {
		n := check.Value(strconv.Atoi(text))(t)
		nodes := min(n, figure.Size(n, fewNodes))
		c.step("nodes", func() { c.grow(nodes) })
		c.step("writes", func() { c.writesWith(n) })
		if n > 0 {
			c.step("restart", func() { c.restart(n, nodes) })
		}
	}
	if more := number(t, "FENCELINE_SCALE_LEASES", 0); more > 0 {
		c.step("more leases", func() {
			c.parallel(more, func(i int) error {
				addr := netip.AddrFrom4([4]byte{10, byte(32 + i/62500), byte(i / 250 % 250), byte(i%250 + 1)})
				return c.addBound(lease.Request{Pool: "many", Addr: addr, Parent: "eth0"}, nodeOf(c.zone+i%max(1, c.nodes-c.zone)))
			})
		})
		c.memory(fmt.Sprintf("%d leases more", more))
	}
	c.step("zone", c.loseZone)
}

// number reads a number from the environment.
func number(t *testing.T, variable string, otherwise int) int {
	t.Helper()
	text := os.Getenv(variable)
	if text == "" {
		return otherwise
	}
	return check.Value(strconv.Atoi(text))(t)
}

// step prints how long a step took, because a run takes long.
func (c *cluster) step(name string, do func()) {
	c.Helper()
	began, used := time.Now(), c.cpu()
	do()
	fmt.Printf("%s: %s, %s of CPU of the API server, %d nodes\n", name, time.Since(began).Round(100*time.Millisecond), c.cpu()-used, c.nodes)
}

// cost is what one operation took.
type cost struct{ wall, cpu time.Duration }

// costs are those of several rounds.
type costs []cost

// low returns the costs that a quarter of the rounds do not exceed: collections of the API server and other processes
// only add to the costs of a round.
func (s costs) low() cost {
	var walls, cpus []time.Duration
	for _, x := range s {
		walls, cpus = append(walls, x.wall), append(cpus, x.cpu)
	}
	return cost{figure.Percentile(walls, 25), figure.Percentile(cpus, 25)}
}

// writesWith measures the writes of one agent while n agents watch: by turns nothing, leases, hints, and hints while
// the ADDs of all nodes wait.
func (c *cluster) writesWith(n int) {
	c.Helper()
	var none, before, after, waiting costs
	c.writes() // the first ones are slow
	for range max(1, number(c.T, "FENCELINE_SCALE_ROUNDS", figure.Size(5, 3))) {
		c.quiet()
		none = append(none, c.writes())
		if n == 0 {
			continue
		}
		before = append(before, c.writesBeside(n, "leases", leasesPath, leasesOf))
		after = append(after, c.writesBeside(n, "hints", hintsPath, hintOf))
		waiting = append(waiting, c.writesWhileAllWait(n))
	}
	if n == 0 {
		low := none.low()
		figure.Report(c, "write of a lease without agents", figure.Milliseconds(low.wall), "ms")
		figure.Report(c, "write of a lease without agents, CPU of the API server", figure.Milliseconds(low.cpu), "ms")
		c.memory("0 agents")
		return
	}
	base, with := none.low(), map[string]cost{"leases": before.low(), "hints": after.low(), "hints while ADDs wait": waiting.low()}
	times := map[string]float64{}
	for _, kind := range []string{"leases", "hints", "hints while ADDs wait"} {
		times[kind] = with[kind].cpu.Seconds() / base.cpu.Seconds()
		figure.Report(c, fmt.Sprintf("write of a lease, %d agents watch %s", n, kind), with[kind].wall.Seconds()/base.wall.Seconds(), "× no agents")
	}
	figure.Report(c, fmt.Sprintf("the same, %d agents watch leases, CPU of the API server", n), times["leases"], "× no agents")
	figure.Report(c, fmt.Sprintf("the same, %d agents watch hints, CPU of the API server", n), times["hints"], "× no agents", figure.AtMost(slope))
	figure.Report(c, fmt.Sprintf("the same, %d agents watch hints while ADDs wait, CPU of the API server", n), times["hints while ADDs wait"],
		"× no agents", figure.AtMost(slope))
	c.Logf("%d agents: none %v, leases %v, hints %v, while ADDs wait %v", n, none, before, after, waiting)
	limit := (1 + times["leases"]) / 2
	if !testing.Short() { // in which the suites beside it disturb the measurement
		limit = min(slope, limit)
	}
	check.Must(c, n < 1000 || times["leases"] > slope, "%d watches of leases cost nothing, %.2f ×: the measurement is blind", n, times["leases"])
	for _, kind := range []string{"hints", "hints while ADDs wait"} {
		check.Must(c, times[kind] <= limit, "a write takes %.2f × the CPU while %d agents watch %s, want at most %.2f: with watches of leases it is %.2f ×",
			times[kind], n, kind, limit, times["leases"])
	}
}

// writesBeside measures the writes of one agent while n agents watch objects of a path.
func (c *cluster) writesBeside(n int, name, path string, of func(node string) string) cost {
	c.Helper()
	s := c.open(n, path, of)
	defer s.close()
	c.quiet()
	took := c.writes()
	c.memory(fmt.Sprintf("%d agents watch %s", n, name))
	return took
}

// writes creates and deletes leases as one agent, one after the other, and returns the cost of one write.
func (c *cluster) writes() cost {
	c.Helper()
	pairs := figure.Size(250, 100)
	store := c.storeOf(nodeOf(c.nodes - 1))
	used, began := c.cpu(), time.Now()
	for i := range pairs {
		check.OK(c, c.writeOne(store, i))
	}
	writes := time.Duration(2 * pairs)
	return cost{time.Since(began) / writes, (c.cpu() - used) / writes}
}

// writeOne creates and deletes a lease.
func (c *cluster) writeOne(store *lease.Store, i int) error {
	l, err := c.createOne(store, i)
	if err != nil {
		return err
	}
	return store.Delete(c.Context(), l)
}

func (c *cluster) createOne(store *lease.Store, i int) (*v1alpha1.IPLease, error) {
	return store.Create(c.Context(), lease.Request{
		Pool: "writer", Addr: netip.AddrFrom4([4]byte{10, 99, byte(i / 250 % 250), byte(i%250 + 1)}), Parent: "eth0",
		Holder: v1alpha1.Holder{
			Namespace: "default", Pod: "writer", PodUID: "7a3f1c2e-0000-4000-8000-000000000001", ContainerID: strings.Repeat("d", 64),
			Interface: "eth0", MAC: "02:00:00:00:00:0b", Guarded: true,
		},
	})
}

// memory prints the memory of the API server, right after a collection, and of the controller, once for each name. A
// run without chosen sizes has too few leases for it.
func (c *cluster) memory(name string) {
	c.Helper()
	if os.Getenv("FENCELINE_SCALE_AGENTS") == "" || c.measured[name] {
		return
	}
	c.measured[name] = true
	heap, stacks := c.live()
	resident := check.Value(c.server.Memory())(c)
	controller, _, err := c.controller.Memory()
	check.OK(c, err)
	figure.Report(c, "API server, live heap, "+name, heap/1e6, "MB")
	figure.Report(c, "API server, stacks, "+name, stacks/1e6, "MB")
	figure.Report(c, "API server, resident, "+name, float64(resident)/1e6, "MB")
	figure.Report(c, "controller, resident, "+name, float64(controller)/1e6, "MB")
}

// live returns the heap of the API server that survived a collection, and its stacks, in bytes. Lists of all leases make it collect; without, it does so every two minutes.
func (c *cluster) live() (heap, stacks float64) {
	c.Helper()
	first, last := -1.0, 0.0
	check.Eventually(c, 5*time.Minute, "two collections of the API server", func() error {
		metrics := c.metrics()
		value := func(name string) float64 {
			v, n := metrics.Sum(name, nil)
			check.That(c, n == 1, "the API server has %d metrics %s", n, name)
			return v
		}
		last = value("go_gc_cycles_total_gc_cycles_total")
		heap, stacks = value("go_gc_heap_live_bytes"), value("go_memory_classes_heap_stacks_bytes")
		if first < 0 {
			first = last
		}
		if last >= first+2 {
			return nil
		}
		if err := c.players.call(c.Context(), http.MethodGet, leasesPath, nil, nil, nil); err != nil {
			return err
		}
		return fmt.Errorf("%v collections", last-first)
	})
	return heap, stacks
}

// metrics are those of the API server.
func (c *cluster) metrics() scrape.Metrics {
	c.Helper()
	response, err := c.players.ask(c.Context(), c.players.calls, http.MethodGet, "/metrics", nil, nil)
	check.OK(c, err)
	defer response.Body.Close()
	return check.Value(scrape.Parse(response.Body))(c)
}

// requests counts the requests that the API server has answered, by what they were.
func (c *cluster) requests() map[string]float64 {
	c.Helper()
	counts := map[string]float64{}
	for _, m := range c.metrics()["apiserver_request_total"].GetMetric() {
		label := map[string]string{}
		for _, l := range m.GetLabel() {
			label[l.GetName()] = l.GetValue()
		}
		counts[strings.Join([]string{label["verb"], label["resource"], label["subresource"], label["code"]}, " ")] += m.GetCounter().GetValue()
	}
	return counts
}

// restart measures how long n agents take to start at once, and what that takes of the API server. The name of the
// figures has another number in the short form.
func (c *cluster) restart(named, n int) {
	c.Helper()
	before := min(n, listers)
	factor := float64(n) / float64(before)
	old := c.startAll(before, c.startByList)
	now := c.startAll(n, c.startByHint)
	c.quiet()
	name := fmt.Sprintf("start of %d agents at once", named)
	figure.Report(c, name+" by lists, CPU of the API server", old.cpu.Seconds()*factor, "s")
	figure.Report(c, name+" by lists", old.wall.Seconds()*factor, "s")
	figure.Report(c, name+" by hints, CPU of the API server", now.cpu.Seconds(), "s")
	figure.Report(c, name+" by hints", now.wall.Seconds(), "s")
	figure.Report(c, name+" by hints, CPU beside lists", now.cpu.Seconds()/(old.cpu.Seconds()*factor), "× by lists")
	if before < n {
		c.Logf("%s by lists: computed from %d agents, %s and %s of CPU", name, before, old.wall, old.cpu)
	}
	c.Logf("so far, the API server put off %d requests and ended %d watches", c.players.refused.Load(), c.players.ended.Load())
}

// startAll starts n agents at once, and waits until each knows its leases.
func (c *cluster) startAll(n int, start func(context.Context, *sync.WaitGroup, string, int) error) cost {
	c.Helper()
	ctx, cancel := context.WithCancel(c.Context())
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	used, began := c.cpu(), time.Now()
	var all errgroup.Group
	for i := range n {
		all.Go(func() error { return start(ctx, &running, nodeOf(i), i) })
	}
	check.OK(c, all.Wait())
	return cost{time.Since(began), c.cpu() - used}
}

// startByList is the start of an agent before the change: the watch of its leases begins with all of them (the API
// server looks for them among all leases).
func (c *cluster) startByList(ctx context.Context, running *sync.WaitGroup, node string, _ int) error {
	query := url.Values{"fieldSelector": {leasesOf(node)}, "sendInitialEvents": {"true"}, "resourceVersionMatch": {"NotOlderThan"}}
	listed := make(chan struct{})
	err := c.players.watch(ctx, running, leasesPath, query, decoded(c.T, func(e event) {
		if e.Type == "BOOKMARK" && e.Object.Metadata.Annotations["k8s.io/initial-events-end"] == "true" {
			close(listed)
		}
	}))
	if err == nil {
		err = heard(ctx, listed)
	}
	return err
}

// startByHint is the start of an agent after the change: it watches its hint, writes its start into it, and awaits the
// controller's answer. It reads the leases that it knows by name.
func (c *cluster) startByHint(ctx context.Context, running *sync.WaitGroup, node string, i int) error {
	start := fmt.Sprint(time.Now().UnixNano())
	answered := make(chan struct{})
	var once sync.Once
	query := url.Values{"fieldSelector": {hintOf(node)}}
	err := c.players.watch(ctx, running, hintsPath, query, decoded(c.T, func(e event) {
		if e.Object.Status.Start == start {
			once.Do(func() { close(answered) })
		}
	}))
	if err != nil {
		return err
	}
	body := fmt.Sprintf(`{"spec":{"start":%q}}`, start)
	if err := c.players.call(ctx, http.MethodPatch, hintsPath+"/"+node, nil, []byte(body), nil); err != nil {
		return err
	}
	for k := range known {
		name := v1alpha1.LeaseName("", addressIn(k, i%c.zone))
		if err := c.players.call(ctx, http.MethodGet, leasesPath+"/"+name, nil, nil, nil); err != nil {
			return err
		}
	}
	return heard(ctx, answered)
}

// patience is how long the controller may take to answer all agents.
const patience = 5 * time.Minute

// heard waits for a news.
func heard(ctx context.Context, news <-chan struct{}) error {
	select {
	case <-news:
		return nil
	case <-time.After(patience):
		return fmt.Errorf("no answer came in %s", patience)
	case <-ctx.Done():
		return ctx.Err()
	}
}
