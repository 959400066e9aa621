// SPDX-License-Identifier: Apache-2.0

package ipam

import (
	"fmt"
	"slices"

	"github.com/fenceline/fenceline/internal/demand"
)

// Names of annotations, without prefix. Those about pools and subnets are in package demand.
const (
	annotationRoutes       = "routes"
	annotationDefaultRoute = "default-route-nic"
	annotationMode         = "mode"
	annotationHostLink     = "host-link"
	annotationIPs          = "ips"
)

// AnnotationError names an annotation whose value cannot be used.
type AnnotationError struct {
	On         string // "pod ns/name" or "namespace ns"
	Annotation string // with its prefix
	Value      string
	Expected   string // the form expected, by example
	Err        error
}

func (e *AnnotationError) Error() string {
	const longest = 256
	value := e.Value
	if len(value) > longest {
		value = value[:longest] + "…"
	}
	return fmt.Sprintf("annotation %s of %s is %q: %v; expected the form %s", e.Annotation, e.On, value, e.Err, e.Expected)
}

// Unwrap returns the problem of the value.
func (e *AnnotationError) Unwrap() error { return e.Err }

// annotation is one annotation as found on an object.
type annotation struct{ on, key, value, expected string }

// kindOf returns the names of the annotations that decide the same thing as the named one. If an
// object has an annotation of this kind with our prefix, one with the other prefix is a leftover.
// It is not read at all, so it neither wins nor refuses a pod.
func kindOf(name string) []string {
	for _, kind := range append(podKinds(), namespaceKinds()...) {
		if slices.Contains(kind, name) {
			return kind
		}
	}
	return nil
}

// find returns the first annotation of a kind that has one of the names. One with our prefix takes
// precedence. Among those with the same prefix, the order of names decides.
func find(on string, all map[string]string, expected string, names ...string) (annotation, bool) {
	key, value, ok := demand.Find(all, kindOf(names[0]), names...)
	return annotation{on, key, value, expected}, ok
}

// wrong returns an AnnotationError for the annotation.
func (a annotation) wrong(format string, args ...any) error {
	return &AnnotationError{a.on, a.key, a.value, a.expected, fmt.Errorf(format, args...)}
}

// decode reads the value as JSON. Unknown fields are refused: a misspelt
// "ipv4" must not fall through to some other pool.
func (a annotation) decode(into any) error {
	if err := demand.Decode(a.value, into); err != nil {
		return a.wrong("%w", err)
	}
	return nil
}
