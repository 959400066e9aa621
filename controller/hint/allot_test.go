// SPDX-License-Identifier: Apache-2.0

package hint

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/test/check"
)

// TestWhichNodesAreToldOfAFreeAddress: few of them, the longest waits first.
func TestWhichNodesAreToldOfAFreeAddress(t *testing.T) {
	now := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	// crowd are n nodes, of which the first one has waited longest.
	crowd := func(n int) (all []waiter) {
		for i := range n {
			all = append(all, waiter{node: fmt.Sprint("n", i+1), since: now.Add(time.Duration(i-n) * time.Second)})
		}
		return all
	}
	// free are addresses that came free a time ago, each with the nodes that are told of it already.
	free := func(ago time.Duration, told ...string) (all []vacancy) {
		for i, nodes := range told {
			all = append(all, vacancy{addr: netip.AddrFrom4([4]byte{10, 0, 0, byte(i)}), since: now.Add(-ago), nodes: strings.Fields(nodes)})
		}
		return all
	}
	for rule, c := range map[string]struct {
		waiting []waiter
		vacant  []vacancy
		told    []string
		next    time.Duration
	}{
		"nobody waits":                                {nil, free(0, ""), []string{""}, 0},
		"nothing is free":                             {crowd(9), nil, nil, 0},
		"a single node":                               {crowd(1), free(0, ""), []string{"n1"}, 0},
		"one address: the longest wait":               {crowd(9), free(0, ""), []string{"n1"}, second},
		"three addresses: three nodes":                {crowd(9), free(0, "", "", ""), []string{"n1", "n2", "n3"}, second},
		"more addresses than nodes":                   {crowd(2), free(0, "", "", ""), []string{"n1", "n2", "n1"}, second},
		"the one that is told stays so":               {crowd(9), free(0, "n5"), []string{"n5"}, second},
		"another address: those without one first":    {crowd(4), free(0, "n1", ""), []string{"n1", "n2"}, second},
		"a node that waits no longer":                 {crowd(4), free(0, "n9"), []string{"n1"}, second},
		"a tenth of a second later":                   {crowd(9), free(second-150*time.Millisecond, "n1"), []string{"n1"}, 150 * time.Millisecond},
		"an address that nobody takes: a second node": {crowd(9), free(second, "n1"), []string{"n1 n2"}, untaken - second},
		"two addresses that nobody takes: two others": {crowd(9), free(second, "n1", "n2"), []string{"n1 n3", "n2 n4"}, untaken - second},
		"half a second later":                         {crowd(9), free(untaken/2, "n1 n2"), []string{"n1 n2"}, untaken / 2},
		"a second later: twice so many":               {crowd(9), free(untaken, "n1 n2"), []string{"n1 n2 n3 n4"}, untaken},
		"then four times":                             {crowd(8), free(2*untaken, "n1 n2 n3 n4"), []string{"n1 n2 n3 n4 n5 n6 n7 n8"}, 0},
		"after a day, all":                            {crowd(3), free(24*time.Hour, ""), []string{"n1 n2 n3"}, 0},
	} {
		t.Run(rule, func(t *testing.T) {
			check.Equal(t, allot(now, c.waiting, c.vacant), c.next, "the time until more are told")
			var told []string
			for _, v := range c.vacant {
				told = append(told, strings.Join(v.nodes, " "))
			}
			check.List(t, told, c.told, "told")
		})
	}
}

// TestFewNodesAreWokenHoweverManyWait, and each gets its share of many addresses.
func TestFewNodesAreWokenHoweverManyWait(t *testing.T) {
	now := time.Now()
	var waiting []waiter
	for i := range 5000 {
		waiting = append(waiting, waiter{node: fmt.Sprint("n", i), since: now.Add(-time.Duration(i) * time.Millisecond)})
	}
	vacant := make([]vacancy, mostVacant)
	for i := range vacant {
		vacant[i] = vacancy{addr: netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)}), since: now}
	}
	allot(now, waiting, vacant)
	told := map[string]int{}
	for i, v := range vacant {
		check.Equal(t, len(v.nodes), 1, "of address %d, so many nodes are told:", i)
		for _, node := range v.nodes {
			told[node]++
		}
	}
	check.Equal(t, len(told), mostVacant, "told nodes")
	for i := range mostVacant {
		check.Equal(t, told[fmt.Sprint("n", 4999-i)], 1, "addresses of which number %d by its wait is told:", i+1)
	}

	allot(now, waiting[:1], vacant)
	told = map[string]int{}
	for _, v := range vacant {
		for _, node := range v.nodes {
			told[node]++
		}
	}
	check.Equal(t, told[waiting[0].node], v1alpha1.MaxHintFree, "addresses of which a node is told at most")
}
