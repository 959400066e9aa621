package agents

import (
	"cmp"
	"slices"
	"strconv"

	"k8s.io/apimachinery/pkg/types"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/controller/podview"
)

// index reads an agent's index; false if it has none.
func index(pod *podview.Pod) (int, bool) {
	i, err := strconv.Atoi(pod.Annotations[v1alpha1.AnnotationAgentIndex])
	return i, err == nil && i >= 0
}

// Assign returns the indexes that are to be written, by UID: the lowest unused
// one for each agent without. Where two agents have the same index, the older
// one keeps it. Indexes that stand are never moved, because with an index its
// agent changes the share of every pool that it tries first.
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

// Shares returns into how many shares the agents divide a pool: one more than
// the highest index, so that each index has its share even when agents with
// lower ones have left.
func Shares(pods []podview.Pod) int {
	shares := 0
	for i := range pods {
		if n, ok := index(&pods[i]); ok {
			shares = max(shares, n+1)
		}
	}
	return shares
}
