// SPDX-License-Identifier: Apache-2.0

package allocate

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"path"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"

	"github.com/fenceline/fenceline/agent/ipam"
	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/internal/poolset"
	"github.com/fenceline/fenceline/test/check"
)

// seedVariable is the environment variable that repeats one seed of the property.
const seedVariable = "FENCELINE_TEST_SEED"

// TestProperty: for random pools, reservations, affinities, pods and concurrent agents, beside Warm and
// Retained leases, no two live leases share an address, every reason of every refusal is true, and an
// address is found whenever one is allowed.
func TestProperty(t *testing.T) {
	var all tally
	for _, seed := range seeds() {
		w := newWorld(seed)
		m := newMemory("")
		m.history = w.history
		all.add(w.run(t, 3, 3, 8, func(int) (Leases, func(*v1alpha1.IPLease) error) {
			return m, func(l *v1alpha1.IPLease) error { m.delete(l.Name); return nil }
		}))
		if t.Failed() {
			t.Fatalf("repeat with %s=%d", seedVariable, seed)
		}
	}
	all.check(t)
}

// seeds are always the same ones and some new ones, or the one to repeat.
func seeds() []uint64 {
	const fixed, fresh = 80, 40
	if seed, err := strconv.ParseUint(os.Getenv(seedVariable), 10, 64); err == nil {
		return []uint64{seed}
	}
	all := make([]uint64, fixed+fresh)
	for i := range all {
		all[i] = uint64(i)
		if i >= fixed {
			all[i] = rand.Uint64()
		}
	}
	return all
}

// tally is how interfaces fared: of those served, how many with an address that
// was Warm or Retained before, and how often which reason was told.
type tally struct {
	served, warm, kept, refused int
	reasons                     map[ipam.Reason]int
}

func (a *tally) add(b tally) {
	a.served, a.warm, a.kept, a.refused = a.served+b.served, a.warm+b.warm, a.kept+b.kept, a.refused+b.refused
	for reason, n := range b.reasons {
		a.tell(reason, n)
	}
}

func (a *tally) tell(reason ipam.Reason, n int) {
	if a.reasons == nil {
		a.reasons = map[ipam.Reason]int{}
	}
	a.reasons[reason] += n
}

// check demands that all was met often enough to mean something.
func (a *tally) check(t *testing.T) {
	t.Logf("%d interfaces served, %d of them by Warm and %d by Retained leases, %d refused: %v", a.served, a.warm, a.kept, a.refused, a.reasons)
	if a.served < 50 || a.warm < 10 || a.kept < 5 || a.refused < 50 || a.reasons[ipam.Exhausted] < 10 || len(a.reasons) < 8 {
		t.Errorf("the random worlds have become too easy or too hard")
	}
}

// run lets the workers of some agents give random pods their addresses and
// take them away again, all at the same time. connect returns an agent's access.
func (w *world) run(t *testing.T, agents, workers, pods int, connect func(int) (Leases, func(*v1alpha1.IPLease) error)) tally {
	t.Helper()
	reserved := check.Value(poolset.Parse(w.reserved))(t)
	all := &ledger{live: map[string]string{}}
	var wg sync.WaitGroup
	for index := range agents {
		leases, end := connect(index)
		if index == 0 {
			w.retainBefore(t, leases, all)
		}
		a := New(Options{Leases: leases, Clock: clock.RealClock{}})
		stock := &stock{}
		for worker := range workers {
			wg.Go(func() {
				r := rand.New(rand.NewPCG(w.seed, uint64(index*workers+worker)))
				p := tenant{
					world: w, ledger: all, t: t, a: a, end: end, stock: stock, reserved: reserved,
					node: fmt.Sprintf("n%d", index), name: fmt.Sprintf("%d-%d", index, worker), share: ipam.Share{Index: r.IntN(agents), Count: agents},
				}
				for i := range pods {
					p.keepWarm(r)
					p.start(r, fmt.Sprintf("pod-%d-%d-%d", index, worker, i))
					runtime.Gosched()
					if len(p.held) > 2 || len(p.held) > 0 && chance(r, 30) {
						p.stop(r)
					}
				}
				for len(p.held) > 0 {
					p.stop(r)
				}
			})
		}
	}
	wg.Wait()
	return all.sum
}

// The oracle says what the rules allow by looking at each address in turn. It
// shares no code with package ipam.

// oracleLimit is how many addresses of a subnet the oracle looks at: the random pools have none beyond.
const oracleLimit = 64

// allowed returns the addresses that a pool may hand out.
func allowed(p *v1alpha1.IPPool, reserved []string) []netip.Addr {
	var left []netip.Addr
	for _, a := range hosts(netip.MustParsePrefix(p.Spec.Subnet)) {
		isGateway := p.Spec.Gateway != nil && *p.Spec.Gateway == a.String()
		offered := len(p.Spec.IPs) == 0 || within(a, p.Spec.IPs)
		if offered && !isGateway && !within(a, p.Spec.ExcludeIPs) && !within(a, reserved) {
			left = append(left, a)
		}
	}
	return left
}

// hosts returns the first addresses of a subnet that a host may have.
func hosts(subnet netip.Prefix) (all []netip.Addr) {
	for a := subnet.Addr(); subnet.Contains(a) && len(all) < oracleLimit; a = a.Next() {
		all = append(all, a)
	}
	if subnet.Addr().BitLen()-subnet.Bits() >= 2 {
		all = all[1:]
		if subnet.Addr().Is4() {
			all = all[:len(all)-1]
		}
	}
	return all
}

// within tells whether one of the entries covers an address.
func within(a netip.Addr, entries []string) bool {
	return slices.ContainsFunc(entries, func(entry string) bool {
		if first, last, ok := strings.Cut(entry, "-"); ok {
			from, to := netip.MustParseAddr(first), netip.MustParseAddr(last)
			return from.BitLen() == a.BitLen() && from.Compare(a) <= 0 && a.Compare(to) <= 0
		}
		if strings.Contains(entry, "/") {
			return netip.MustParsePrefix(entry).Contains(a)
		}
		return entry == a.String()
	})
}

// notMeant are the affinities of a pool that do not admit a request.
func notMeant(p *v1alpha1.IPPool, req ipam.Request, definition string) []ipam.Reason {
	why := notOnNode(p, req.NodeName, req.NodeLabels)
	why = append(why, unlessNamed(p.Spec.NamespaceName, req.Pod.Namespace, ipam.NamespaceName)...)
	if len(p.Spec.NamespaceName) == 0 {
		why = append(why, unlessSelected(p.Spec.NamespaceAffinity, req.NamespaceLabels, ipam.NamespaceAffinity)...)
	}
	why = append(why, unlessSelected(p.Spec.PodAffinity, req.Pod.Labels, ipam.PodAffinity)...)
	return append(why, unlessNamed(p.Spec.MultusName, definition, ipam.MultusName)...)
}

// notOnNode are those that look at the node alone.
func notOnNode(p *v1alpha1.IPPool, node string, labels map[string]string) []ipam.Reason {
	if len(p.Spec.NodeName) > 0 {
		return unlessNamed(p.Spec.NodeName, node, ipam.NodeName)
	}
	return unlessSelected(p.Spec.NodeAffinity, labels, ipam.NodeAffinity)
}

func unlessNamed(names []string, name string, why ipam.Reason) []ipam.Reason {
	if len(names) == 0 || slices.Contains(names, name) {
		return nil
	}
	return []ipam.Reason{why}
}

func unlessSelected(s *metav1.LabelSelector, labels map[string]string, why ipam.Reason) []ipam.Reason {
	if selected(s, labels) {
		return nil
	}
	return []ipam.Reason{why}
}

func selected(s *metav1.LabelSelector, labels map[string]string) bool {
	if s == nil {
		return true
	}
	for k, v := range s.MatchLabels {
		if labels[k] != v {
			return false
		}
	}
	return true
}

// closed is why a pool hands out nothing new; all is what it might hand out if
// nothing were reserved, and left is what of it is not.
func closed(p *v1alpha1.IPPool, all, left []netip.Addr) (why []ipam.Reason) {
	for _, c := range p.Status.Conditions {
		if c.Type == v1alpha1.ConditionReady && c.Status == metav1.ConditionFalse {
			why = append(why, ipam.NotReady)
		}
	}
	if p.DeletionTimestamp != nil {
		why = append(why, ipam.Deleting)
	}
	if p.Spec.Disable != nil && *p.Spec.Disable {
		why = append(why, ipam.Disabled)
	}
	switch {
	case len(all) == 0:
		why = append(why, ipam.AllExcluded)
	case len(left) == 0:
		why = append(why, ipam.AllReserved)
	}
	return why
}

// withheld is what people may be told about an address of its subnet that a pool does not hand out.
func withheld(p *v1alpha1.IPPool, a netip.Addr, reserved []string) (says []string) {
	subnet := netip.MustParsePrefix(p.Spec.Subnet)
	if !subnet.Contains(a) {
		return nil
	}
	if p.Spec.Gateway != nil && *p.Spec.Gateway == a.String() {
		says = append(says, "it is the gateway of pool "+p.Name)
	}
	if !slices.Contains(hosts(subnet), a) {
		says = append(says, "no host may have this address of the subnet "+p.Spec.Subnet)
	}
	if within(a, p.Spec.ExcludeIPs) {
		says = append(says, "it is excluded from pool "+p.Name)
	}
	if len(p.Spec.IPs) > 0 && !within(a, p.Spec.IPs) {
		says = append(says, "it is outside of the ips of pool "+p.Name)
	}
	if within(a, reserved) {
		says = append(says, "it is reserved")
	}
	return says
}

// named returns the pools of one family that names and patterns stand for.
func named(pools []v1alpha1.IPPool, names []string, ipv6 bool) []*v1alpha1.IPPool {
	var found []*v1alpha1.IPPool
	for i := range pools {
		isIPv6 := netip.MustParsePrefix(pools[i].Spec.Subnet).Addr().Is6()
		matches := slices.ContainsFunc(names, func(name string) bool {
			ok, err := path.Match(name, pools[i].Name)
			return err == nil && ok
		})
		if isIPv6 == ipv6 && matches {
			found = append(found, &pools[i])
		}
	}
	return found
}

// leasesOf names the leases of a pool's addresses.
func leasesOf(p *v1alpha1.IPPool, addrs []netip.Addr) []string {
	names := make([]string, len(addrs))
	for i, a := range addrs {
		names[i] = v1alpha1.LeaseName(p.Spec.Network, a)
	}
	return names
}

// overlaps tells whether another pool of the same network has one of a pool's addresses.
func overlaps(p *v1alpha1.IPPool, pools []v1alpha1.IPPool) bool {
	own := allowed(p, nil)
	return slices.ContainsFunc(pools, func(o v1alpha1.IPPool) bool {
		return o.Name != p.Name && o.Spec.Network == p.Spec.Network &&
			slices.ContainsFunc(allowed(&o, nil), func(a netip.Addr) bool { return slices.Contains(own, a) })
	})
}
