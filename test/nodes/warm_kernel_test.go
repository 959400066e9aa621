// SPDX-License-Identifier: Apache-2.0

//go:build kernel

package nodes_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fenceline/fenceline/agent/attachment"
	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/test/check"
	"github.com/fenceline/fenceline/test/namespaces"
	"github.com/fenceline/fenceline/test/nodes"
)

const (
	// beside is the number of nodes that walk at the same time: proof of a Warm address takes seconds.
	beside = 4
	// warmSize is so small that a lost address is soon missed. One is kept ready, one is a pod's, and
	// one may belong to the pod's earlier sandbox.
	warmSize = 3
	// podsEach is more than the pods of one node's walk, so that no two nodes use the same pod name.
	podsEach = 1000
)

// bindsWarm is an ADD that finds a Warm lease ready.
func bindsWarm() verb {
	return verb{name: "ADD of a Warm lease", warm: true, steps: []step{
		{"the intent is journalled", nodes.UpdateSent, 1, attachment.Intent, false},
		{"the guard enforces", nodes.UpdateSent, 1, attachment.Intent, true},
		{"the lease is bound and the agent does not know", nodes.UpdateDone, 1, attachment.Intent, false},
		{"the binding is journalled and the answer written", nodes.AddAnswered, 1, attachment.Bound, true},
		{"the address is claimed", nodes.Claimed, 1, attachment.Bound, true},
	}}
}

// stocking is a step of making a Warm lease, or of giving one up.
type stocking struct {
	name string
	at   nodes.Moment
	// scarce: the pool asks for its Warm leases back.
	scarce bool
}

func stockings() []stocking {
	return []stocking{
		{"a Warm lease is about to be made", nodes.CreateSent, false},
		{"a Warm lease is made and the agent does not know", nodes.CreateDone, false},
		{"a Warm lease is being proven", nodes.Probed, false},
		{"a Warm lease is about to be given up", nodes.DeleteSent, true},
		{"a Warm lease is given up and the agent does not know", nodes.DeleteDone, true},
	}
}

// row is one fault at one step.
type row struct {
	name string
	play func(*lane)
}

func warmRows() []row {
	var rows []row
	binds := bindsWarm()
	for _, s := range binds.steps {
		for _, f := range faults() {
			if f.at(binds, s) {
				rows = append(rows, row{fmt.Sprintf("%s, %s, %s", binds.name, s.name, f.name), func(l *lane) { l.bind(binds, s, neverSent(s, f)) }})
			}
		}
	}
	killed := fault{name: "the agent is killed", strike: (*nodes.Node).KillAgent}
	closed := fault{name: "the connection to the API server is closed", strike: func(*nodes.Node) error { return errCut }}
	for _, s := range stockings() {
		for _, f := range []fault{killed, closed} {
			at := step{at: s.at}
			if f.name == killed.name || ofAPI(at) {
				rows = append(rows, row{s.name + ", " + f.name, func(l *lane) { l.stock(s, neverSent(at, f)) }})
			}
		}
	}
	return rows
}

// neverSent drops a call that is about to be sent when the fault strikes.
func neverSent(s step, f fault) fault {
	if !isSent(s.at) {
		return f
	}
	strike := f.strike
	f.strike = func(n *nodes.Node) error { return errors.Join(strike(n), errCut) }
	return f
}

// As TestNothingIsLostWhereverADDAndDELBreakOff, with addresses that are kept ready.
func TestNothingIsLostWhereverAWarmLeaseBreaksOff(t *testing.T) {
	t.Parallel()
	c := nodes.New(t, beside)
	host := c.Host(netip.MustParsePrefix("10.66.0.1/24"))
	all := warmRows()
	next := make(chan row, len(all))
	for _, r := range all {
		next <- r
	}
	close(next)
	var walking sync.WaitGroup
	for i, n := range c.Nodes {
		l := &lane{walk: &walk{Cluster: c, n: n, host: host, pods: i * podsEach}, pool: warmPool(t, c, n, i)}
		l.accounted = func(ctx context.Context) error { return n.LeasesAreLiving(ctx, l.pool.Name, v1alpha1.StateWarm) }
		walking.Go(func() {
			for r := range next {
				if !t.Run(r.name, func(t *testing.T) { r.play(l.in(t)) }) {
					return // the rows share the node
				}
			}
		})
	}
	walking.Wait()
	check.That(t, len(next) == 0, "%d rows were not played", len(next))
}

// warmPool makes a pool for one node, which keeps one of its addresses ready.
func warmPool(t *testing.T, c *nodes.Cluster, n *nodes.Node, number int) *v1alpha1.IPPool {
	t.Helper()
	first := netip.AddrFrom4([4]byte{10, 66, 0, byte(16 + number*warmSize)})
	pool := c.Pool("warm-"+n.Name, "10.66.0.0/24", fmt.Sprintf("%s-%s", first, first.Next()))
	pool.Spec.Warm, pool.Spec.Parents, pool.Spec.NodeName = ptr.To[int64](1), []string{namespaces.Parent}, []string{n.Name}
	check.OK(t, c.Update(t.Context(), pool))
	pool.Status.Total, pool.Status.Free, pool.Status.Agents, pool.Status.Served = warmSize, warmSize, 1, 1
	check.OK(t, c.Status().Update(t.Context(), pool))
	return pool
}

// lane is the walk of one node.
type lane struct {
	*walk
	pool *v1alpha1.IPPool
}

func (l *lane) in(t *testing.T) *lane {
	l.walk.in(t)
	return l
}

// bind runs one fault while a pod gets the Warm lease.
func (l *lane) bind(v verb, s step, f fault) {
	t := l.t
	ctx := within(t, nodes.Limit)
	l.stocked(ctx)
	pod := l.pod(ctx, false)
	sandbox := l.broken(ctx, v, s, f, pod)
	if !sandbox.Lives() {
		check.OK(t, sandbox.End(ctx))
	}
	check.OK(t, l.n.AwaitAgent(ctx))
	if !sandbox.Lives() {
		sandbox = check.Value(l.n.Begin(ctx, pod))(t)
	}
	l.awaitLeases(ctx, "the leases are those of the living")
	l.speaksAlone(ctx, sandbox)
	check.OK(t, sandbox.Finish(ctx))
	l.awaitLeases(ctx, "all is given back")
}

// stock runs one fault while a Warm lease is made or given up.
func (l *lane) stock(s stocking, f fault) {
	t := l.t
	ctx := within(t, nodes.Limit)
	l.settle(ctx, !s.scarce)
	met := l.n.At(s.at, 1, func() error { return f.strike(l.n) })
	l.ask(ctx, s.scarce)
	select {
	case <-met:
	case <-ctx.Done():
		t.Fatal("the step has not come")
	}
	check.OK(t, l.n.AwaitAgent(ctx))
	l.settle(ctx, s.scarce)
	l.settle(ctx, false)
	sandbox := check.Value(l.n.Begin(ctx, l.pod(ctx, false)))(t)
	l.awaitLeases(ctx, "the leases are those of the living")
	l.speaksAlone(ctx, sandbox)
	check.OK(t, sandbox.Finish(ctx))
	l.awaitLeases(ctx, "all is given back")
}

// settle makes the pool scarce or not, and waits until the stock has followed.
func (l *lane) settle(ctx context.Context, scarce bool) {
	l.t.Helper()
	l.ask(ctx, scarce)
	if !scarce {
		l.stocked(ctx)
		return
	}
	l.Eventually(l.t, "every Warm lease is given up", func() error { return l.n.LeasesAreLiving(ctx, l.pool.Name) })
}

// ask sets whether the pool asks for its Warm leases back.
func (l *lane) ask(ctx context.Context, scarce bool) {
	l.t.Helper()
	check.OK(l.t, l.Get(ctx, client.ObjectKeyFromObject(l.pool), l.pool))
	l.pool.Status.Scarce = scarce
	check.OK(l.t, l.Status().Update(ctx, l.pool))
}

// stocked waits until there is one Warm lease, and it is ready.
func (l *lane) stocked(ctx context.Context) {
	l.t.Helper()
	stocked(ctx, l.t, l.Cluster, l.n, l.pool.Name, 1)
}

// The only free addresses of a pool are the Warm ones of three nodes. Pods come to one node at once
// and get them all. No pod is told that the pool is exhausted.
func TestPodsOfOneNodeGetTheWarmAddressesOfAllNodes(t *testing.T) {
	ctx, c := cluster(t, 2*nodes.Limit, 3)
	c.StartController()
	const each = 2
	// Each agent leaves as many addresses free as all nodes together keep ready.
	pool := c.Pool("v4", "10.66.0.0/24", "10.66.0.2-10.66.0.30")
	pool.Spec.Warm = ptr.To[int64](each)
	change(ctx, t, c, pool)
	inUse := begin(ctx, t, c, crowd(t, c, "first", len(c.Nodes)))
	pool.Spec.IPs = nil
	for _, s := range inUse {
		pool.Spec.IPs = append(pool.Spec.IPs, s.Addr.String())
	}
	c.Eventually(t, "each node has its stock, and all of it is proven", func() error {
		stock, err := c.Nodes[0].Stock(ctx, pool.Name)
		kept := map[string]int{}
		for _, l := range stock {
			kept[l.Spec.NodeName]++
		}
		for _, n := range c.Nodes {
			ready, failed := n.Ready(ctx, pool.Name)
			if kept[n.Name] != each || ready != each {
				err = errors.Join(err, failed, fmt.Errorf("%s has %d Warm leases, %d are ready", n.Name, kept[n.Name], ready))
			}
		}
		return err
	})
	stock := check.Value(c.Nodes[0].Stock(ctx, pool.Name))(t)
	for _, l := range stock {
		pool.Spec.IPs = append(pool.Spec.IPs, l.Spec.Address)
	}
	change(ctx, t, c, pool)

	var late []*corev1.Pod
	for i := range stock {
		pod := check.Value(c.Nodes[2].NewPod(ctx, fmt.Sprintf("late-%d", i), nil))(t)
		late = append(late, pod)
	}
	begin(ctx, t, c, late)
	c.Eventually(t, "the leases are those of the living", func() error { return c.LeasesAreLiving(ctx) })
	full := check.Value(c.Nodes[2].Sum(ctx, "fenceline_cni_duration_seconds", map[string]string{"verb": "ADD", "result": "exhausted"}))(t)
	check.That(t, full == 0, "%.0f ADDs found the pool exhausted while addresses were kept ready", full)
	all := &eventsv1.EventList{}
	check.OK(t, c.List(ctx, all, client.InNamespace(nodes.Shop)))
	for _, e := range all.Items {
		check.That(t, e.Reason != "AddressRefused", "pod %s was refused: %s", e.Regarding.Name, e.Note)
	}
	check.OK(t, c.SpeakersAreHolders())
}

// change writes the spec of a pool, whose status the controller may have written meanwhile.
func change(ctx context.Context, t *testing.T, c *nodes.Cluster, pool *v1alpha1.IPPool) {
	t.Helper()
	spec := pool.Spec
	check.OK(t, c.Get(ctx, client.ObjectKeyFromObject(pool), pool))
	before := pool.DeepCopy()
	pool.Spec = spec
	check.OK(t, c.Patch(ctx, pool, client.MergeFrom(before)))
}

// stocked waits until a node has a number of Warm leases of a pool, all ready, and returns them.
func stocked(ctx context.Context, t *testing.T, c *nodes.Cluster, n *nodes.Node, pool string, count int) (stock []v1alpha1.IPLease) {
	t.Helper()
	c.Eventually(t, fmt.Sprintf("%d addresses of pool %s are ready", count, pool), func() error {
		var err error
		if stock, err = n.Stock(ctx, pool); err != nil {
			return err
		}
		ready, err := n.Ready(ctx, pool)
		if err == nil && (len(stock) != count || ready != count) {
			err = fmt.Errorf("there are %d Warm leases, %d are ready", len(stock), ready)
		}
		return err
	})
	return stock
}
