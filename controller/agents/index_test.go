// SPDX-License-Identifier: Apache-2.0

package agents_test

import (
	"strconv"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/controller/agents"
	"github.com/fenceline/fenceline/controller/podview"
	"github.com/fenceline/fenceline/test/check"
)

// agent is a pod with the UID, created at the minute, with the index, or none if negative.
func agent(uid string, minute, index int) podview.Pod {
	pod := podview.Pod{ObjectMeta: metav1.ObjectMeta{
		Name: uid, UID: types.UID(uid),
		CreationTimestamp: metav1.NewTime(time.Date(2030, 1, 1, 12, minute, 0, 0, time.UTC)),
	}}
	if index >= 0 {
		pod.Annotations = map[string]string{v1alpha1.AnnotationAgentIndex: strconv.Itoa(index)}
	}
	return pod
}

func TestAssignIndexes(t *testing.T) {
	damaged := agent("a", 0, -1)
	damaged.Annotations = map[string]string{v1alpha1.AnnotationAgentIndex: "first"}
	for _, row := range []struct {
		name   string
		pods   []podview.Pod
		want   map[types.UID]int
		shares int
	}{
		{"no agents", nil, map[types.UID]int{}, 0},
		{"new agents, the oldest first", []podview.Pod{agent("b", 1, -1), agent("a", 0, -1)}, map[types.UID]int{"a": 0, "b": 1}, 0},
		{"of the same age, by name", []podview.Pod{agent("b", 0, -1), agent("a", 0, -1)}, map[types.UID]int{"a": 0, "b": 1}, 0},
		{"indexes stand", []podview.Pod{agent("a", 0, 1), agent("b", 1, 0)}, map[types.UID]int{}, 2},
		{"the lowest unused for the new one", []podview.Pod{agent("a", 0, 0), agent("b", 1, 2), agent("c", 2, -1)}, map[types.UID]int{"c": 1}, 3},
		{"a hole does not move others", []podview.Pod{agent("a", 0, 7)}, map[types.UID]int{}, 8},
		{"of two with one index the older keeps it", []podview.Pod{agent("b", 1, 0), agent("a", 0, 0)}, map[types.UID]int{"b": 1}, 1},
		{"a damaged index is written anew", []podview.Pod{damaged}, map[types.UID]int{"a": 0}, 0},
	} {
		t.Run(row.name, func(t *testing.T) {
			check.Same(t, agents.Assign(row.pods), row.want, "assigned")
			check.Equal(t, agents.Shares(row.pods), row.shares, "shares:")
		})
	}
}
