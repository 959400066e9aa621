// SPDX-License-Identifier: Apache-2.0

package hint

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/controller/cache"
	"github.com/fenceline/fenceline/test/check"
)

// waitRig is a cache with the full pool lan of three addresses, for which nodes wait.
type waitRig struct {
	*testing.T
	client.WithWatch
	*waits
	clock *clocktesting.FakePassiveClock
	// meanwhile runs before a lease is read; fail is the error of lists of leases, of which lists is the number.
	meanwhile func()
	fail      error
	lists     int
	rounds    int
}

func newWaitRig(t *testing.T) *waitRig {
	r := &waitRig{T: t, clock: clocktesting.NewFakePassiveClock(time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC))}
	r.WithWatch = fake.NewClientBuilder().WithScheme(check.Value(cache.Scheme())(t)).
		WithIndex(&v1alpha1.IPLease{}, cache.LeasesByPool, func(o client.Object) []string { return []string{o.(*v1alpha1.IPLease).Spec.Pool} }).
		WithIndex(&corev1.Service{}, cache.ServicesByType, func(o client.Object) []string { return []string{string(o.(*corev1.Service).Spec.Type)} }).
		WithObjects(&v1alpha1.IPPool{ObjectMeta: metav1.ObjectMeta{Name: "lan"}, Spec: v1alpha1.IPPoolSpec{Subnet: "10.0.0.0/24", IPs: []string{"10.0.0.2-10.0.0.4"}}}).
		Build()
	for _, addr := range []string{"10.0.0.2", "10.0.0.3", "10.0.0.4"} {
		r.lease(addr)
	}
	r.waits = newWaits(interceptor.NewClient(r.WithWatch, interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			if r.meanwhile != nil {
				r.meanwhile()
				r.meanwhile = nil
			}
			return c.Get(ctx, key, o, opts...)
		},
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			if _, ok := list.(*v1alpha1.IPLeaseList); ok {
				r.lists++
				if r.fail != nil {
					return r.fail
				}
			}
			return c.List(ctx, list, opts...)
		},
	}), r.clock)
	return r
}

func leaseIn(addr string) *v1alpha1.IPLease {
	return &v1alpha1.IPLease{ObjectMeta: metav1.ObjectMeta{Name: addr}, Spec: v1alpha1.IPLeaseSpec{Pool: "lan", Address: addr}}
}

func (r *waitRig) lease(addr string) {
	r.Helper()
	check.OK(r, r.Create(r.Context(), leaseIn(addr)))
}

// ends ends a lease, and reports whether its pool needs a pass. version is the one with which it ended.
func (r *waitRig) ends(addr, version string) bool {
	r.Helper()
	l := leaseIn(addr)
	check.OK(r, r.Delete(r.Context(), l))
	l.ResourceVersion = version
	return r.freed(l)
}

// asks has a node ask that has waited for a time.
func (r *waitRig) asks(node string, waited time.Duration, pools ...string) []string {
	r.rounds++
	spec := v1alpha1.LeaseHintSpec{Round: fmt.Sprint("round ", r.rounds)}
	for _, pool := range pools {
		spec.Waits = append(spec.Waits, v1alpha1.PoolWait{Pool: pool, Since: metav1.NewMicroTime(r.clock.Now().Add(-waited))})
	}
	return r.ask(node, spec)
}

// passes makes a pass, and checks which answers change.
func (r *waitRig) passes(what string, nodes ...string) time.Duration {
	r.Helper()
	changed, next, err := r.pass(r.Context(), "lan")
	check.OK(r, err)
	slices.Sort(changed)
	check.List(r, slices.Compact(changed), nodes, "%s: the answers change of", what)
	return next
}

// tells checks what a node is told.
func (r *waitRig) tells(what, node, round string, addresses ...string) {
	r.Helper()
	answered, free, known := r.answer(node)
	check.Equal(r, answered, round, "%s: the question of %s that is answered", what, node)
	check.Equal(r, known, round != "" || r.nodes[node] == nil, "%s: the answer is known:", what)
	var got []string
	for _, f := range free {
		got = append(got, f.Address+" "+f.Version)
	}
	check.List(r, got, addresses, "%s: %s is told of", what, node)
}

func TestANodeIsToldOfAnAddressThatComesFree(t *testing.T) {
	r := newWaitRig(t)
	check.That(t, !r.ends("10.0.0.2", "100"), "nobody waits")
	r.lease("10.0.0.2")
	check.List(t, r.asks("n1", time.Minute, "lan"), []string{"lan"}, "passes for n1:")
	r.tells("before the pass", "n1", "")
	r.passes("n1", "n1")
	r.tells("nothing is free", "n1", "round 1")
	r.asks("n2", 2*time.Minute, "lan")
	r.asks("n3", 3*time.Minute, "lan")
	check.None(t, r.ask("n3", v1alpha1.LeaseHintSpec{Round: "round 3", Waits: []v1alpha1.PoolWait{{Pool: "lan"}}}), "passes for a question that is known:")
	r.passes("n2 and n3", "n2", "n3")
	check.That(t, r.ends("10.0.0.3", "107"), "nodes wait")
	check.Equal(t, r.passes("one address", "n3"), second, "the next pass comes after")
	r.tells("one address", "n3", "round 3", "10.0.0.3 107")
	r.tells("one address", "n2", "round 2")
	check.Equal(t, r.lists, 2, "lists of the leases, one for each pass with a question:")
	r.clock.SetTime(r.clock.Now().Add(second))
	check.Equal(t, r.passes("n3 does not take it", "n2"), untaken-second, "the next pass comes after")
	r.tells("n3 does not take it", "n2", "round 2", "10.0.0.3 107")
	r.clock.SetTime(r.clock.Now().Add(untaken - second))
	check.Equal(t, r.passes("nobody takes it", "n1"), 0, "all are told; the next pass comes after")
	// One of them takes it, and another one comes free.
	r.lease("10.0.0.3")
	r.ends("10.0.0.4", "109")
	r.passes("it is taken", "n1", "n2", "n3")
	// It comes free again before a pass.
	r.lease("10.0.0.4")
	r.ends("10.0.0.4", "111")
	r.passes("free again", "n3")
	r.tells("free again", "n3", "round 3", "10.0.0.4 111")
	check.List(t, r.asks("n3", 0), []string{"lan"}, "passes for n3, which waits no longer:")
	r.tells("it waits no longer", "n3", "")
	r.passes("n3 waits no longer", "n2", "n3")
	r.tells("n3 waits no longer", "n2", "round 2", "10.0.0.4 111")
	r.asks("n1", 0)
	r.asks("n2", 0)
	r.passes("nobody waits")
	check.That(t, len(r.nodes) == 0 && len(r.pools) == 0, "left: %v, %v", r.nodes, r.pools)
}

// TestNoAddressThatComesFreeIsMissed: it ends before the question, during the pass or after it.
func TestNoAddressThatComesFreeIsMissed(t *testing.T) {
	for name, c := range map[string]struct{ before, during, after bool }{
		"before the question": {before: true},
		"during the pass":     {during: true},
		"after it":            {after: true},
	} {
		t.Run(name, func(t *testing.T) {
			r := newWaitRig(t)
			again := true // a question starts a pass
			end := func() { again = r.ends("10.0.0.2", "100") || again }
			if c.before {
				end()
			}
			r.asks("n1", 0, "lan")
			if c.during {
				r.ends("10.0.0.3", "99") // which the pass reads
				r.meanwhile = end
			}
			for again {
				again = false
				_, _, err := r.pass(t.Context(), "lan")
				check.OK(t, err)
				if c.after {
					c.after = false
					end()
				}
			}
			_, free, known := r.answer("n1")
			told := slices.ContainsFunc(free, func(f v1alpha1.FreeAddress) bool { return f.Address == "10.0.0.2" })
			check.That(t, known && told, "it is told of %v", free)
		})
	}
}

func TestTheAddressesOfAPoolThatHaveNoLease(t *testing.T) {
	r := newWaitRig(t)
	pool, reserved := &v1alpha1.IPPool{}, &v1alpha1.ReservedIP{ObjectMeta: metav1.ObjectMeta{Name: "r"}, Spec: v1alpha1.ReservedIPSpec{IPs: []string{"10.0.0.6"}}}
	check.OK(t, r.Get(t.Context(), client.ObjectKey{Name: "lan"}, pool))
	pool.Spec.IPs = []string{"10.0.0.2-10.0.0.7"}
	check.OK(t, r.Update(t.Context(), pool))
	check.OK(t, r.Create(t.Context(), reserved))
	other := leaseIn("10.0.0.7") // of a pool that had the address before
	other.Spec.Pool = "old"
	check.OK(t, r.Create(t.Context(), other))
	r.asks("n1", 0, "lan", "gone")
	r.passes("at first", "n1")
	r.tells("one of two pools", "n1", "", "10.0.0.5 ")
	_, _, err := r.pass(t.Context(), "gone")
	check.OK(t, err)
	r.tells("at first", "n1", "round 1", "10.0.0.5 ")
	check.OK(t, r.Delete(t.Context(), reserved))
	check.List(t, r.doubt(), []string{"gone", "lan"}, "a reservation ends: passes")
	r.passes("a reservation ends", "n1")
	r.tells("a reservation ends", "n1", "round 1", "10.0.0.5 ", "10.0.0.6 ")

	// What no event of the pool has told is found at the next question.
	check.OK(t, r.Delete(t.Context(), other))
	r.passes("the lease of another pool ends")
	r.asks("n1", 0, "lan")
	r.passes("it asks again", "n1")
	r.tells("it asks again", "n1", "round 2", "10.0.0.5 ", "10.0.0.6 ", "10.0.0.7 ")

	// An error makes the next pass look for all.
	r.doubt()
	r.fail = errors.New("refused")
	r.ends("10.0.0.2", "100")
	_, _, err = r.pass(t.Context(), "lan")
	check.Is(t, err, r.fail, "got")
	r.fail = nil
	r.passes("after an error", "n1")
	r.tells("after an error", "n1", "round 2", "10.0.0.5 ", "10.0.0.6 ", "10.0.0.7 ", "10.0.0.2 ")
}

// TestANodeWhoseAgentEndedIsForgotten: another one gets the address.
func TestANodeWhoseAgentEndedIsForgotten(t *testing.T) {
	r := newWaitRig(t)
	for _, node := range []string{"dead-1", "dead-2"} {
		r.asks(node, time.Hour, "lan")
	}
	r.clock.SetTime(r.clock.Now().Add(forgotten))
	r.asks("n1", 0, "lan")
	r.ends("10.0.0.2", "100")
	r.passes("the dead ones have not asked again", "n1")
	r.tells("the dead ones have not asked again", "n1", "round 3", "10.0.0.2 100")
	r.asks("dead-1", time.Hour, "lan")
	r.passes("one lives", "dead-1")
}

// TestAPoolWithManyFreeAddresses: not all of them are offered at once, and none is forgotten.
func TestAPoolWithManyFreeAddresses(t *testing.T) {
	r := newWaitRig(t)
	pool := &v1alpha1.IPPool{}
	check.OK(t, r.Get(t.Context(), client.ObjectKey{Name: "lan"}, pool))
	pool.Spec.Subnet, pool.Spec.IPs = "10.0.0.0/16", nil
	check.OK(t, r.Update(t.Context(), pool))
	r.asks("n1", 0, "lan")
	r.passes("many", "n1")
	_, free, _ := r.answer("n1")
	check.Equal(t, len(free), v1alpha1.MaxHintFree, "told addresses")
	check.Equal(t, len(r.pools["lan"].vacant), mostVacant, "vacant addresses")
	for _, f := range free {
		r.lease(f.Address)
	}
	r.passes("they are taken", "n1")
	_, free, _ = r.answer("n1")
	check.Equal(t, len(free), v1alpha1.MaxHintFree, "further addresses")
	check.That(t, netip.MustParseAddr(free[0].Address).Compare(netip.MustParseAddr("10.0.0.9")) > 0, "again %v", free[0])
}

// TestPassesOverALargePoolArePaced.
func TestPassesOverALargePoolArePaced(t *testing.T) {
	r := newWaitRig(t)
	r.asks("n1", 0, "lan")
	r.ends("10.0.0.2", "100")
	r.meanwhile = func() { r.clock.SetTime(r.clock.Now().Add(50 * time.Millisecond)) }
	r.passes("one that takes 50 ms", "n1")
	r.ends("10.0.0.3", "101")
	check.Equal(t, r.passes("the next one"), 450*time.Millisecond, "it waits for")
	r.clock.SetTime(r.clock.Now().Add(450 * time.Millisecond))
	r.passes("in time", "n1")
	r.tells("in time", "n1", "round 1", "10.0.0.2 100", "10.0.0.3 101")
}

// wishes has a node ask for one of some addresses of the pool lan.
func (r *waitRig) wishes(node string, addresses ...string) {
	r.rounds++
	r.ask(node, v1alpha1.LeaseHintSpec{Round: fmt.Sprint("round ", r.rounds), Waits: []v1alpha1.PoolWait{
		{Pool: "lan", Addresses: addresses, Since: metav1.NewMicroTime(r.clock.Now())},
	}})
}

// TestANodeIsToldOnlyOfTheAddressesOfItsWish, and before the nodes that take any.
func TestANodeIsToldOnlyOfTheAddressesOfItsWish(t *testing.T) {
	r := newWaitRig(t)
	r.asks("n1", time.Hour, "lan")
	r.wishes("n2", "10.0.0.3", "10.0.0.4")
	r.passes("nothing is free", "n1", "n2")
	r.ends("10.0.0.2", "100")
	r.passes("another one", "n1")
	r.tells("another one", "n2", "round 2")
	r.ends("10.0.0.3", "101")
	r.passes("one of the wish", "n2")
	r.tells("one of the wish", "n2", "round 2", "10.0.0.3 101")
	r.clock.SetTime(r.clock.Now().Add(second))
	r.passes("n2 does not take it", "n1")
	r.wishes("n3", "10.0.0.2")
	r.passes("a later wish for what is free", "n3")
	r.tells("a later wish for what is free", "n3", "round 3", "10.0.0.2 100")
}

// TestAWishIsFoundInAPoolWithManyFreeAddresses: more than are offered at once.
func TestAWishIsFoundInAPoolWithManyFreeAddresses(t *testing.T) {
	r := newWaitRig(t)
	pool := &v1alpha1.IPPool{}
	check.OK(t, r.Get(t.Context(), client.ObjectKey{Name: "lan"}, pool))
	pool.Spec.Subnet, pool.Spec.IPs = "10.0.0.0/16", nil
	check.OK(t, r.Update(t.Context(), pool))
	r.lease("10.0.77.7")
	r.asks("n1", 0, "lan")
	r.passes("many", "n1")
	r.wishes("n2", "10.0.77.7")
	r.passes("it is taken", "n2")
	r.ends("10.0.77.7", "100")
	r.passes("it comes free", "n2")
	r.tells("it comes free", "n2", "round 2", "10.0.77.7 100")
	check.List(t, r.changesOfWait(func() { r.asks("n2", 0) }), []string{"n2"}, "n2 waits no longer: the answers change of")
}

func (r *waitRig) changesOfWait(change func()) []string {
	r.Helper()
	change()
	nodes, _, err := r.pass(r.Context(), "lan")
	check.OK(r, err)
	slices.Sort(nodes)
	return slices.Compact(nodes)
}

// TestAWarmLeaseOfAWishIsAskedFor at the node that keeps it, until the wait ends.
func TestAWarmLeaseOfAWishIsAskedFor(t *testing.T) {
	r := newWaitRig(t)
	check.OK(t, r.Delete(t.Context(), leaseIn("10.0.0.3")))
	warm := leaseIn("10.0.0.3")
	warm.Spec.State, warm.Spec.NodeName = v1alpha1.StateWarm, "n9"
	check.OK(t, r.Create(t.Context(), warm))
	r.asks("n1", 0, "lan")
	r.passes("a wait for any address", "n1")
	check.None(t, r.wantedOf("n9"), "a wait for any address: wanted of n9")
	r.wishes("n2", "10.0.0.2", "10.0.0.3")
	r.passes("a wish", "n2", "n9")
	check.List(t, r.wantedOf("n9"), []v1alpha1.LeaseVersion{versionOf(warm)}, "wanted of n9")
	r.ends("10.0.0.3", "100")
	r.passes("it is released", "n2", "n9")
	r.tells("it is released", "n2", "round 2", "10.0.0.3 100")
	check.None(t, r.wantedOf("n9"), "it is released: wanted of n9")

	warm.ResourceVersion = ""
	check.OK(t, r.Create(t.Context(), warm))
	r.asks("n1", 0)
	r.wishes("n2", "10.0.0.3")
	r.passes("it is Warm again", "n2", "n9")
	r.asks("n2", 0)
	r.passes("nobody waits any longer", "n9")
	check.None(t, r.wantedOf("n9"), "nobody waits any longer: wanted of n9")
}
