// SPDX-License-Identifier: Apache-2.0

package hint

import (
	"cmp"
	"net/netip"
	"slices"
	"time"

	"github.com/fenceline/fenceline/apis/v1alpha1"
)

const (
	// second is the time after which a second node is told of an address that is still free: the ADD of the first may
	// have ended or got another address meanwhile. It is longer than a create usually takes to reach the controller,
	// since a node that is told too early has a create that fails.
	second = 250 * time.Millisecond
	// untaken is the time after which twice as many nodes are told, and again.
	untaken = time.Second
	// mostVacant is how many free addresses of a pool are offered at the same time.
	mostVacant = 2 * v1alpha1.MaxHintFree
)

// waiter is a node whose ADDs wait for a pool.
type waiter struct {
	node string
	// since is when the first of these ADDs arrived.
	since time.Time
	// picky: none of these ADDs takes any address of the pool. only are the addresses of their wishes.
	picky bool
	only  map[netip.Addr]bool
	// told is the number of free addresses of the pool of which the node is told.
	told int
}

// takes reports whether an ADD of the node takes an address.
func (w waiter) takes(addr netip.Addr) bool { return !w.picky || w.only[addr] }

// vacancy is a free address of a pool for which nodes wait.
type vacancy struct {
	addr netip.Addr
	// version is that of the lease that ended, or "".
	version string
	since   time.Time
	// nodes are told of the address.
	nodes []string
}

// allot decides which of the nodes that wait are told of each free address, in the order of the addresses: those
// that are told already, then those that wish for this address, then those that are told of the fewest addresses, and
// of these the ones that have waited longest. So many ADDs that wait on one node keep no other node from an address when
// several come free at once, and the nodes that are woken are few however many wait. next is the time until more are
// told, or 0.
func allot(now time.Time, waiting []waiter, vacant []vacancy) (next time.Duration) {
	for i := range vacant {
		vacant[i].nodes = slices.DeleteFunc(slices.Clone(vacant[i].nodes), func(node string) bool {
			at := slices.IndexFunc(waiting, func(w waiter) bool { return w.node == node && w.takes(vacant[i].addr) })
			if at >= 0 {
				waiting[at].told++
			}
			return at < 0
		})
	}
	slices.SortFunc(waiting, byTurn)
	wishes := slices.ContainsFunc(waiting, func(w waiter) bool { return len(w.only) > 0 })
	for i := range vacant {
		v := &vacant[i]
		want, until := wanted(now.Sub(v.since))
		takers := len(waiting)
		if wishes {
			takers = 0
			for _, w := range waiting {
				if w.takes(v.addr) {
					takers++
				}
			}
			tell(waiting, v, min(want, takers), func(w waiter) bool { return w.only[v.addr] })
		}
		want = min(want, takers)
		tell(waiting, v, want, func(w waiter) bool { return w.takes(v.addr) })
		if left := v.since.Add(until).Sub(now); want < takers && (next == 0 || left < next) {
			next = left
		}
	}
	return next
}

// tell has further nodes told of an address, of those that are meant, up to a number of them. waiting stays sorted.
func tell(waiting []waiter, v *vacancy, want int, isMeant func(waiter) bool) {
	for at := 0; len(v.nodes) < want && at < len(waiting) && waiting[at].told < v1alpha1.MaxHintFree; {
		w := waiting[at]
		if slices.Contains(v.nodes, w.node) || !isMeant(w) {
			at++
			continue
		}
		v.nodes = append(v.nodes, w.node)
		w.told++
		waiting = slices.Delete(waiting, at, at+1)
		to, _ := slices.BinarySearchFunc(waiting, w, byTurn)
		waiting = slices.Insert(waiting, to, w)
	}
}

// wanted returns how many nodes are told of an address that has been free for a time, and the age at which more are.
func wanted(free time.Duration) (nodes int, until time.Duration) {
	if free < second {
		return 1, second
	}
	steps := free / untaken
	return 2 << min(steps, 16), (steps + 1) * untaken
}

// byTurn orders nodes by the number of addresses of which they are told, then by their wait.
func byTurn(a, b waiter) int {
	return cmp.Or(cmp.Compare(a.told, b.told), a.since.Compare(b.since), cmp.Compare(a.node, b.node))
}
