// SPDX-License-Identifier: Apache-2.0

package reclaim

import (
	"fmt"
	"slices"
	"testing"

	"github.com/fenceline/fenceline/test/check"
)

func anywhere(string) bool { return true }

func on(nodes ...string) func(string) bool {
	return func(n string) bool { return slices.Contains(nodes, n) }
}

func TestVerifiers(t *testing.T) {
	nowhere := func(string) bool { return false }
	for _, row := range []struct {
		name      string
		own       string
		alive     []string
		onSegment func(string) bool
		inSubnet  func(string) bool
		want      string
	}{
		{"the holder's own node comes first, it can kill the slot", "n1", []string{"n3", "n2", "n1"}, on("n2"), nowhere, "n1"},
		{"without that node, a node on the segment", "n1", []string{"n2", "n3", "n4"}, on("n3"), on("n2"), "n3"},
		{"without any of its pool, a node with a pool of the same subnet", "n1", []string{"n2", "n3", "n4"}, nowhere, on("n2"), "n2"},
		{"a node with a pool of the same subnet that is not alive is passed over", "n1", []string{"n3"}, nowhere, on("n2"), "n3"},
		{"without any on the segment, the only one that is alive", "n1", []string{"n2"}, nowhere, nowhere, "n2"},
		{"nobody", "n1", nil, anywhere, anywhere, ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			got := firstOf(candidates("10.6.0.10", row.own, []string{"n1", "n2", "n3", "n4"}, on(row.alive...), row.onSegment, row.inSubnet))
			check.That(t, got == row.want, "got %q, want %q", got, row.want)
		})
	}
}

func TestVerifiersAreAskedInTurn(t *testing.T) {
	alive := []string{"n1", "n2", "n3", "n4", "n5"}
	onSegment := func(n string) bool { return n == "n2" || n == "n4" }
	all := candidates("10.6.0.10", "n1", append(alive, "n6"), on(alive...), onSegment)

	order := slices.Collect(all)
	check.Must(t, order[0] == "n1" && onSegment(order[1]) && onSegment(order[2]) && len(order) == len(alive),
		"order %v: want n1, then n2 and n4, then the others", order)
	asked := "n1"
	for _, want := range append(order[1:], "n1", order[1]) {
		asked = after(all, asked)
		check.Must(t, asked == want, "after %v: asked %s, want %s", order, asked, want)
	}
	check.Equal(t, after(all, "gone"), "n1", "after a node that is gone:")
	check.Equal(t, after(candidates("10.6.0.10", "n1", []string{"n1"}, anywhere, onSegment), "n1"), "", "with one candidate, another one:")
}

func TestLeasesSpreadOverVerifiers(t *testing.T) {
	alive := []string{"n0", "n1", "n2", "n3"}
	chosen := map[string]int{}
	for i := range 1000 {
		lease := fmt.Sprintf("10.6.%d.%d", i/250, i%250)
		first := firstOf(candidates(lease, "", alive, anywhere, anywhere))
		check.Equal(t, firstOf(candidates(lease, "", []string{"n3", "n1", "n0", "n2"}, anywhere, anywhere)), first, "%s, in another order:", lease)
		chosen[first]++
	}
	for _, n := range alive {
		check.That(t, chosen[n] >= 150 && chosen[n] <= 350, "1000 leases over 4 nodes: %v", chosen)
	}
}
