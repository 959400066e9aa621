// SPDX-License-Identifier: Apache-2.0

package agents

import (
	"cmp"
	"slices"
	"strconv"

	"k8s.io/apimachinery/pkg/types"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/controller/podview"
)

// index returns an agent's index. It reports whether the agent has a valid one.
func index(pod *podview.Pod) (int, bool) {
	i, err := strconv.Atoi(pod.Annotations[v1alpha1.AnnotationAgentIndex])
	return i, err == nil && i >= 0
}

// Assign returns the indexes to write, by the UID of the pod: the lowest unused index for each agent
// without one. If two agents have the same index, the older agent keeps it. Other indexes never
// change, because a new index makes its agent try another share of every pool first.
func Assign(pods []podview.Pod) map[types.UID]int {
	byAge := make([]*podview.Pod, len(pods))
	for i := range pods {
		byAge[i] = &pods[i]
	}
	slices.SortFunc(byAge, func(a, b *podview.Pod) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	})

	used := map[int]bool{}
	var without []*podview.Pod
	for _, pod := range byAge {
		if i, ok := index(pod); ok && !used[i] {
			used[i] = true
			continue
		}
		without = append(without, pod)
	}
	assigned := map[types.UID]int{}
	next := 0
	for _, pod := range without {
		for used[next] {
			next++
		}
		used[next] = true
		assigned[pod.UID] = next
	}
	return assigned
}

// Shares returns the number of shares into which the agents divide a pool. It is one more than the
// highest index, so each index has its share, even if agents with lower indexes have left.
func Shares(pods []podview.Pod) int {
	shares := 0
	for i := range pods {
		if n, ok := index(&pods[i]); ok {
			shares = max(shares, n+1)
		}
	}
	return shares
}
