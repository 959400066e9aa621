// SPDX-License-Identifier: Apache-2.0

package ipam

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/internal/demand"
)

// podKinds are all annotations of pods, and namespaceKinds those of namespaces, without prefix.
// Annotations of one kind decide about the same thing.
func podKinds() [][]string {
	return [][]string{
		demand.Kind(), {annotationRoutes}, {annotationDefaultRoute}, {annotationMode}, {annotationHostLink}, {annotationIPs},
		{v1alpha1.AnnotationStaticIP}, {v1alpha1.AnnotationIPRetention}, {demand.Number}, {demand.Reclaim},
	}
}

func namespaceKinds() [][]string { return [][]string{demand.NamespaceKind()} }

// Unread describes for people the annotations of the pod and of its namespace that have one of our
// prefixes, and that nobody reads. Their author may rely on them.
func Unread(req Request) []string {
	ofPod, ofNamespace := slices.Concat(podKinds()...), slices.Concat(namespaceKinds()...)
	return append(
		unread(req.Pod.describe(), req.Pod.Annotations, ofPod, ofNamespace, "is for namespaces"),
		unread("namespace "+req.Pod.Namespace, req.NamespaceAnnotations, ofNamespace, ofPod, "is for pods")...)
}

// unread returns a sentence for each annotation with our prefixes whose name is not known here.
func unread(on string, all map[string]string, here, others []string, forOthers string) []string {
	var found []string
	for _, key := range slices.Sorted(maps.Keys(all)) {
		prefix, name, _ := strings.Cut(key, "/")
		if prefix += "/"; !slices.Contains(demand.Prefixes(), prefix) || slices.Contains(here, name) {
			continue
		}
		near := slices.MinFunc(slices.Concat(here, others), func(a, b string) int { return changes(name, a) - changes(name, b) })
		text := fmt.Sprintf("annotation %s of %s does not exist, the nearest one is %s", key, on, prefix+near)
		switch {
		case near == name:
			text = fmt.Sprintf("annotation %s of %s has no effect, it %s", key, on, forOthers)
		case slices.Contains(others, near):
			text += " and " + forOthers
		}
		found = append(found, text)
	}
	return found
}

// changes is the Levenshtein distance in bytes. The row holds the distances of the part of a that
// was read from each beginning of b.
func changes(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			replaced := diagonal
			if a[i] != b[j] {
				replaced++
			}
			diagonal = row[j+1]
			row[j+1] = min(replaced, diagonal+1, row[j]+1)
		}
	}
	return row[len(b)]
}
