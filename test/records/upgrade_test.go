// SPDX-License-Identifier: Apache-2.0

//go:build api

package records

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/fenceline/fenceline/test/check"
)

// testStoredObjects stores the objects of the first version, and upgrades the chart with other CRDs.
func (e *env) testStoredObjects(t *testing.T) {
	var stored, kept []*unstructured.Unstructured
	for text := range strings.SplitSeq(string(check.Value(os.ReadFile("testdata/objects-0.1.0.yaml"))(t)), "\n---\n") {
		o := &unstructured.Unstructured{}
		check.OK(t, yaml.Unmarshal([]byte(text), &o.Object))
		stored = append(stored, o)
		made := o.DeepCopy()
		e.create(t, made)
		kept = append(kept, made)
	}
	later := t.TempDir()
	check.OK(t, os.CopyFS(later, os.DirFS(chart)))
	crds := check.Value(filepath.Glob(filepath.Join(later, "files/crds/*.yaml")))(t)
	check.Must(t, len(crds) == len(stored), "%d CRDs, and objects of %d kinds", len(crds), len(stored))
	for _, file := range crds {
		crd := &unstructured.Unstructured{}
		check.OK(t, yaml.Unmarshal(check.Value(os.ReadFile(file))(t), &crd.Object))
		versions := crd.Object["spec"].(map[string]any)["versions"].([]any)
		schema := versions[0].(map[string]any)["schema"]
		check.OK(t, unstructured.SetNestedMap(schema.(map[string]any), map[string]any{"type": "string"}, "openAPIV3Schema", "properties", "spec", "properties", "later"))
		check.OK(t, os.WriteFile(file, append([]byte("---\n"), check.Value(yaml.Marshal(crd.Object))(t)...), 0o644))
	}
	e.helm(t, "upgrade", "fenceline", later, "--namespace", namespace)
	for i, o := range stored {
		now := &unstructured.Unstructured{}
		now.SetGroupVersionKind(o.GroupVersionKind())
		check.OK(t, e.admin.Get(t.Context(), client.ObjectKeyFromObject(o), now))
		check.Same(t, now.Object, kept[i].Object, "%s after an upgrade", o.GetKind())
		lost := missing(o.Object["spec"], now.Object["spec"])
		check.That(t, len(lost) == 0, "%s has lost %v", o.GetKind(), lost)
		e.eventually(t, "a write of the new field to "+o.GetKind(), func() error {
			patch := client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"later":"x"}}`))
			if err := e.admin.Patch(t.Context(), now, patch); err != nil || missing(map[string]any{"later": "x"}, now.Object["spec"]) == nil {
				return err
			}
			return errors.New("the API server does not have the new CRD yet")
		})
	}
	e.helm(t, "upgrade", "fenceline", chart, "--namespace", namespace, "--reset-values")
	for _, o := range stored {
		check.OK(t, client.IgnoreNotFound(e.admin.Delete(t.Context(), o)))
	}
}

// missing returns the fields of a tree that another tree does not have, or not with the same value.
func missing(want, got any) (lost []string) {
	fields, ok := want.(map[string]any)
	if !ok {
		if fmt.Sprint(want) != fmt.Sprint(got) { // whole numbers have several types
			lost = []string{fmt.Sprintf("%v (there is %v)", want, got)}
		}
		return lost
	}
	has, _ := got.(map[string]any)
	for name, value := range fields {
		for _, what := range missing(value, has[name]) {
			lost = append(lost, name+": "+what)
		}
	}
	return lost
}
