// SPDX-License-Identifier: Apache-2.0

package warm

import (
	"context"
	"errors"
	"maps"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr/testr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/fenceline/fenceline/agent/allocate"
	"github.com/fenceline/fenceline/agent/attachment"
	"github.com/fenceline/fenceline/agent/ipam"
	"github.com/fenceline/fenceline/agent/lease"
	"github.com/fenceline/fenceline/agent/segment"
	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/internal/event"
	"github.com/fenceline/fenceline/test/check"
)

const (
	thisNode    = "n1"
	thisSession = "node-1/boot-1"
	// proofTakes is how long a proof takes in these tests.
	proofTakes = 7 * time.Second
)

var hostMAC = net.HardwareAddr{2, 0xbd, 0, 0, 0, 1}

// rig is node n1 with a pool v4, of which each node keeps two addresses, on an
// API server, a journal and a segment in memory. It runs in a bubble of fake time.
type rig struct {
	t      *testing.T
	keeper *Keeper
	api    client.WithWatch
	book   *book
	stop   func()

	mu      sync.Mutex
	watches map[netip.Addr]*memWatch
	parents map[string]int
	held    map[netip.Addr]net.HardwareAddr
	away    bool
	// stuck is the write that the API server never answers.
	stuck string
	// unnamed: what pools name cannot be told now.
	unnamed error
	// unseen: interfaces cannot be looked for now.
	unseen error
	// proxied: another host answers for every address.
	proxied bool
	adds    chan struct{}
	writes  []string
	// metrics are what the keeper has told; read them by told.
	metrics metrics
}

// inBubble runs a test with a rig whose keeper runs.
func inBubble(t *testing.T, test func(*testing.T, *rig), objects ...client.Object) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, objects...)
		r.start(thisSession)
		defer func() {
			r.stop()
			for addr, w := range r.watches {
				check.That(t, w.ended, "%s is watched on", addr)
			}
		}()
		test(t, r)
	})
}

// inBubbleOf is inBubble in a subtest.
func inBubbleOf(t *testing.T, name string, test func(*testing.T, *rig), objects ...client.Object) {
	t.Helper()
	t.Run(name, func(t *testing.T) { inBubble(t, test, objects...) })
}

func newRig(t *testing.T, objects ...client.Object) *rig {
	t.Helper()
	r := &rig{
		t: t, book: &book{}, watches: map[netip.Addr]*memWatch{}, parents: map[string]int{"eth1": 7},
		held: map[netip.Addr]net.HardwareAddr{}, metrics: metrics{taken: map[bool]int{}},
	}
	scheme := runtime.NewScheme()
	check.OK(t, errors.Join(clientgoscheme.AddToScheme(scheme), v1alpha1.AddToScheme(scheme)))
	objects = append(objects, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: thisNode}})
	if !slices.ContainsFunc(objects, func(o client.Object) bool { return o.GetName() == "v4" }) {
		objects = append(objects, v4())
	}
	r.api = fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).
		WithIndex(&corev1.Service{}, "spec.type", func(o client.Object) []string { return []string{string(o.(*corev1.Service).Spec.Type)} }).WithInterceptorFuncs(interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			return r.write("create", o, func() error { return c.Create(ctx, o, opts...) })
		},
		Update: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.UpdateOption) error {
			return r.write("update", o, func() error { return c.Update(ctx, o, opts...) })
		},
		Delete: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
			return r.write("delete", o, func() error { return c.Delete(ctx, o, opts...) })
		},
	}).Build()
	return r
}

func (r *rig) write(verb string, o client.Object, do func() error) error {
	r.mu.Lock()
	away := r.away || verb+" "+o.GetName() == r.stuck
	r.writes = append(r.writes, verb+" "+o.GetName())
	r.mu.Unlock()
	if away {
		return &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}
	}
	return do()
}

// giveWay waits until ADDs that are under way, if any are, have ended.
func (r *rig) giveWay() {
	r.mu.Lock()
	adds := r.adds
	r.mu.Unlock()
	if adds != nil {
		<-adds
	}
}

// start starts an agent.
func (r *rig) start(session string) {
	store := lease.NewStore(lease.Options{Client: r.api, Reader: r.api, Node: thisNode, Session: session, Clock: clock.RealClock{}})
	r.keeper = New(Options{
		Reporter: event.Reporter{Node: thisNode, Events: events.NewFakeRecorder(1000), Log: testr.New(r.t), Clock: clock.RealClock{}},
		Cache:    r.api, Leases: store, Journal: r.book,
		Allocator: allocate.New(allocate.Options{
			Leases: store, Clock: clock.RealClock{}, Last: map[string]netip.Addr{"v4": netip.MustParseAddr("10.0.0.1")},
			Rand: func() *rand.Rand { return rand.New(rand.NewPCG(1, 2)) },
		}),
		Named:   r.named,
		Carries: func(p *v1alpha1.IPPool, _ int) bool { return !slices.Contains(p.Spec.Parents, "elsewhere") },
		Parent:  r.parent,
		Watch:   r.watch,
		Held:    func(_ int, addr netip.Addr) (net.HardwareAddr, bool) { mac, ok := r.held[addr]; return mac, ok },
		Sighted: func(int, netip.Addr) bool { return false },
		Share:   func() ipam.Share { return ipam.Share{Count: 1} },
		GiveWay: r.giveWay,
		Foreign: &segment.ForeignHosts{Recorded: r.recorded, Clock: clock.RealClock{}},
		Metrics: r,
	})
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		err := r.keeper.Run(ctx)
		check.That(r.t, err == nil, "%v", err)
	})
	r.stop = func() {
		cancel()
		running.Wait()
	}
}

// recorded counts the leases that are Quarantined for a MAC.
func (r *rig) recorded(ctx context.Context, _, mac string) (n int, err error) {
	leases := &v1alpha1.IPLeaseList{}
	err = r.api.List(ctx, leases)
	for i := range leases.Items {
		if leases.Items[i].Spec.ConflictMAC() == mac {
			n++
		}
	}
	return n, err
}

// restart ends the agent and starts another one, in the same or another session.
func (r *rig) restart(session string) {
	r.stop()
	r.start(session)
}

func (r *rig) parent(name string) (int, bool, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	index, ok := r.parents[name]
	return index, ok && r.unseen == nil, r.unseen
}

func (r *rig) named(pool *v1alpha1.IPPool) ([]string, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.unnamed != nil {
		return nil, r.unnamed
	}
	return pool.Spec.Parents, nil
}

func (r *rig) watch(_ int, addr netip.Addr, _ segment.ProbeParams) (Watch, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	w := &memWatch{changed: make(chan struct{}, 1)}
	if r.proxied {
		w.doubt = segment.DoubtSpoken
	}
	if before := r.watches[addr]; before != nil {
		check.That(r.t, before.ended, "%s is watched twice", addr)
		w.doubt, w.proofs = before.doubt, before.proofs
	}
	r.watches[addr] = w
	return w, nil
}

// memWatch is a watch of which the test says what it hears.
type memWatch struct {
	mu      sync.Mutex
	doubt   segment.Doubt
	proofs  int
	ended   bool
	changed chan struct{}
}

func (w *memWatch) Prove(ctx context.Context, _ segment.Timing) (segment.Doubt, segment.Answer, error) {
	select {
	case <-time.After(proofTakes):
	case <-ctx.Done():
		return segment.DoubtUnproven, segment.Answer{}, ctx.Err()
	}
	w.mu.Lock()
	w.proofs++
	w.mu.Unlock()
	return w.Doubt()
}

func (w *memWatch) Wait(ctx context.Context) (segment.Doubt, segment.Answer, error) {
	for {
		if doubt, answer, err := w.Doubt(); doubt != segment.DoubtNone || err != nil {
			return doubt, answer, err
		}
		select {
		case <-w.changed:
		case <-ctx.Done():
			return segment.DoubtNone, segment.Answer{}, ctx.Err()
		}
	}
}

func (w *memWatch) Doubt() (segment.Doubt, segment.Answer, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.doubt == segment.DoubtSpoken {
		return w.doubt, segment.Answer{Conflict: true, MAC: hostMAC, Source: segment.SourceObserver}, nil
	}
	return w.doubt, segment.Answer{}, nil
}

func (w *memWatch) End() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ended = true
	return nil
}

// hear raises a doubt about an address, or ends it. Quietly: no event tells of it.
func (r *rig) hear(addr string, d segment.Doubt, quietly ...bool) {
	r.t.Helper()
	r.mu.Lock()
	w := r.watches[netip.MustParseAddr(addr)]
	r.mu.Unlock()
	w.mu.Lock()
	w.doubt = d
	w.mu.Unlock()
	if len(quietly) == 0 {
		select {
		case w.changed <- struct{}{}:
		default:
		}
	}
	synctest.Wait()
}

func (r *rig) proofs(addr string) int {
	w := r.watches[netip.MustParseAddr(addr)]
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.proofs
}

// The rig is the keeper's metrics.
func (r *rig) WarmLeases(_ string, ready, unproven int) {
	r.set(func() { r.metrics.gauge = [2]int{ready, unproven} })
}
func (r *rig) WarmTaken(_ string, got bool) { r.set(func() { r.metrics.taken[got]++ }) }
func (r *rig) WarmLost(_, reason string) {
	r.set(func() { r.metrics.lost = append(r.metrics.lost, reason) })
}
func (r *rig) Conflict(string, segment.Source) { r.set(func() { r.metrics.conflicts++ }) }

func (r *rig) set(fn func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	fn()
}

// metrics are counted by lease; gauge is of ready ones and others.
type metrics struct {
	lost      []string
	conflicts int
	gauge     [2]int
	taken     map[bool]int
}

// told returns what the metrics were told up to now.
func (r *rig) told() metrics {
	r.mu.Lock()
	defer r.mu.Unlock()
	m := r.metrics
	m.lost, m.taken = slices.Clone(m.lost), maps.Clone(m.taken)
	return m
}

// book is a journal in memory.
type book struct {
	mu     sync.Mutex
	pairs  []attachment.Pair
	writes int
}

func (b *book) Get() ([]attachment.Pair, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.pairs, b.pairs != nil
}

func (b *book) all() []attachment.Pair {
	all, _ := b.Get()
	return all
}

func (b *book) Put(p []attachment.Pair) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.pairs, b.writes = p, b.writes+1
	return nil
}

func (b *book) written() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.writes
}

func v4(change ...func(*v1alpha1.IPPool)) *v1alpha1.IPPool {
	p := &v1alpha1.IPPool{
		ObjectMeta: metav1.ObjectMeta{Name: "v4"},
		Spec:       v1alpha1.IPPoolSpec{Subnet: "10.0.0.0/24", IPs: []string{"10.0.0.2-10.0.0.101"}, Warm: new(int64(2))},
		Status:     v1alpha1.IPPoolStatus{Total: 100, Free: 100, Agents: 3, Served: 3},
	}
	for _, c := range change {
		c(p)
	}
	return p
}

// changePool changes the pool as somebody does, and wakes the keeper as its watch does.
func (r *rig) changePool(change func(*v1alpha1.IPPool)) {
	r.t.Helper()
	p := &v1alpha1.IPPool{}
	check.OK(r.t, r.api.Get(r.t.Context(), client.ObjectKey{Name: "v4"}, p))
	change(p)
	check.OK(r.t, r.api.Update(r.t.Context(), p))
	r.wake()
}

// wake lets the keeper look and act.
func (r *rig) wake() {
	synctest.Wait()
	r.keeper.Wake()
	r.pass(gather)
}

// pass lets time pass.
func (r *rig) pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// leases are the leases that exist, with their states.
func (r *rig) leases() map[string]v1alpha1.LeaseState {
	r.t.Helper()
	list := &v1alpha1.IPLeaseList{}
	check.OK(r.t, r.api.List(r.t.Context(), list))
	states := map[string]v1alpha1.LeaseState{}
	for _, l := range list.Items {
		states[l.Name] = l.Spec.State
	}
	return states
}

func (r *rig) lease(name string) *v1alpha1.IPLease {
	r.t.Helper()
	l := &v1alpha1.IPLease{}
	check.OK(r.t, r.api.Get(r.t.Context(), client.ObjectKey{Name: name}, l))
	return l
}

// want expects these leases, each "name State".
func (r *rig) want(want ...string) {
	r.t.Helper()
	got := []string{}
	for name, state := range r.leases() {
		got = append(got, name+" "+string(state))
	}
	slices.Sort(got)
	check.Must(r.t, slices.Equal(got, want), "leases %v, want %v", got, want)
}

// ready expects what an ADD on eth1 could take without a doubt, and puts it back.
func (r *rig) ready(want ...string) {
	r.t.Helper()
	got := []string{}
	var taken []Stocked
	p := &v1alpha1.IPPool{}
	check.OK(r.t, r.api.Get(r.t.Context(), client.ObjectKey{Name: "v4"}, p))
	wish := wishV4()
	wish.Mode = p.ConflictMode()
	for {
		l, ok := r.keeper.Take(wish)
		if !ok {
			break
		}
		taken = append(taken, l)
		if doubt, _ := r.keeper.Doubt(l); doubt == segment.DoubtNone {
			got = append(got, l.Name)
		}
	}
	for _, l := range taken {
		r.keeper.PutBack(l)
	}
	slices.Sort(got)
	check.Must(r.t, slices.Equal(got, want), "ready are %v, want %v", got, want)
}

// warmed uses the pair and waits until two addresses are ready.
func (r *rig) warmed() {
	r.t.Helper()
	r.keeper.Used("v4", "eth1")
	r.pass(proofTakes + time.Second)
	r.ready("10.0.0.2", "10.0.0.3")
}

// wishV4 is the wish of an ADD on eth1 for a lease of pool v4.
func wishV4() Wish {
	return Wish{Pool: "v4", Parent: "eth1", ParentIndex: 7, Mode: v1alpha1.ModeEnforce, Has: all}
}
