// SPDX-License-Identifier: Apache-2.0

package ipam

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/fenceline/fenceline/apis/v1alpha1"
)

// Names of annotations, without prefix.
const (
	annotationSubnets = "subnets"
	annotationSubnet  = "subnet"
	annotationPools   = "ippools"
	annotationPool    = "ippool"

	annotationRoutes       = "routes"
	annotationDefaultRoute = "default-route-nic"
	annotationMode         = "mode"
	annotationHostLink     = "host-link"

	annotationNamespaceV4    = "default-ipv4-ippool"
	annotationNamespaceV6    = "default-ipv6-ippool"
	annotationNamespaceV4Old = "defaultv4ippool"
	annotationNamespaceV6Old = "defaultv6ippool"
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

// prefixes returns the prefixes of annotations by precedence.
func prefixes() []string { return []string{v1alpha1.AnnotationPrefix, v1alpha1.LegacyAnnotationPrefix} }

// hasOurs reports whether there is an annotation of a kind with our prefix.
func hasOurs(all map[string]string, kind []string) bool {
	return slices.ContainsFunc(kind, func(name string) bool {
		_, ok := all[v1alpha1.AnnotationPrefix+name]
		return ok
	})
}

// find returns the first annotation that has one of the names, which are of one kind. An annotation
// with our prefix takes precedence over one with the other prefix. Among annotations with the same
// prefix, the order of names decides.
func find(on string, all map[string]string, expected string, names ...string) (annotation, bool) {
	read := prefixes()
	if hasOurs(all, kindOf(names[0])) {
		read = read[:1]
	}
	for _, prefix := range read {
		for _, name := range names {
			if value, ok := all[prefix+name]; ok {
				return annotation{on, prefix + name, value, expected}, true
			}
		}
	}
	return annotation{}, false
}

// wrong returns an AnnotationError for the annotation.
func (a annotation) wrong(format string, args ...any) error {
	return &AnnotationError{a.on, a.key, a.value, a.expected, fmt.Errorf(format, args...)}
}

// decode reads the value as JSON. Unknown fields are refused: a misspelt
// "ipv4" must not fall through to some other pool.
func (a annotation) decode(into any) error {
	d := json.NewDecoder(bytes.NewReader([]byte(a.value)))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		return a.wrong("not the JSON expected: %w", err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return a.wrong("more follows after the JSON value")
	}
	return nil
}
