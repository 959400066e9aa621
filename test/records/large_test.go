// SPDX-License-Identifier: Apache-2.0

//go:build api

package records

import (
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fenceline/fenceline/apis/v1alpha1"
)

// writeLimit is how long the API server may take to validate and store the largest pool on a busy
// machine. Its clients wait for 30 s or more.
const writeLimit = 20 * time.Second

// testLargePool writes a pool with as many entries as the API server accepts. An edit and a write of the
// status validate all entries again.
func (e *env) testLargePool(t *testing.T) {
	large := record("IPPool", "large", fields{"subnet": "10.0.0.0/8", "ips": many(4096), "excludeIPs": many(4096)})
	pool := &v1alpha1.IPPool{}
	for _, step := range []struct {
		what  string
		write func() error
	}{
		{"create", func() error { return e.admin.Create(t.Context(), large) }},
		{"edit", func() error {
			if err := e.admin.Get(t.Context(), client.ObjectKey{Name: "large"}, pool); err != nil {
				return err
			}
			pool.Spec.IPs = append(pool.Spec.IPs[1:], "10.0.255.1")
			return e.admin.Update(t.Context(), pool)
		}},
		{"publish", func() error {
			pool.Status.Total = 1
			return e.controller.Status().Update(t.Context(), pool)
		}},
	} {
		began := time.Now()
		if err := step.write(); err != nil {
			t.Fatalf("%s a pool of 8192 entries: %v", step.what, err)
		}
		took := time.Since(began)
		t.Logf("%s a pool of 8192 entries: %s", step.what, took.Round(time.Millisecond))
		if took > writeLimit {
			t.Errorf("%s took %s, want at most %s", step.what, took, writeLimit)
		}
	}
	if err := e.admin.Delete(t.Context(), large); err != nil {
		t.Error(err)
	}
}
