// SPDX-License-Identifier: Apache-2.0

//go:build bench

package main

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fenceline/fenceline/test/check"
	"github.com/fenceline/fenceline/test/controlplane"
)

// takenSpan notes when the controller wrote its first and its last lease.
type takenSpan struct {
	mu          sync.Mutex
	first, last time.Time
	n           int
	// requests of the controller by method, watches among them.
	requests map[string]int
}

func (s *takenSpan) transport(next http.RoundTripper) http.RoundTripper {
	return spanTripper{s, next}
}

type spanTripper struct {
	span *takenSpan
	next http.RoundTripper
}

func (s spanTripper) RoundTrip(request *http.Request) (*http.Response, error) {
	s.span.sent(request.Method)
	asked := time.Now()
	response, err := s.next.RoundTrip(request)
	if err == nil && request.Method == http.MethodPut && response.StatusCode == http.StatusOK && strings.Contains(request.URL.Path, "/ipleases/") {
		s.span.note(asked, time.Now())
	}
	return response, err
}

func (s *takenSpan) note(asked, answered time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.n == 0 {
		s.first = asked
	}
	s.n++
	s.last = answered
}

func (s *takenSpan) sent(method string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.requests == nil {
		s.requests = map[string]int{}
	}
	s.requests[method]++
}

func (s *takenSpan) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.n
}

func (s *takenSpan) rate() float64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return float64(s.n) / s.last.Sub(s.first).Seconds()
}

// cpu is the CPU time that the API server has used.
func (w world) cpu(server *controlplane.Server) time.Duration {
	w.Helper()
	return check.Value(server.CPU())(w)
}

// ownCPU is the CPU time that this process has used.
func ownCPU(t *testing.T) time.Duration {
	t.Helper()
	var used syscall.Rusage
	check.OK(t, syscall.Getrusage(syscall.RUSAGE_SELF, &used))
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

// tokenOf returns the access of a ServiceAccount that may do everything. A token
// is what the controller has; to verify an administrator's certificate takes the
// API server longer.
func (w world) tokenOf(server *controlplane.Server, name string) *rest.Config {
	w.Helper()
	w.create(&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: system, Name: name}})
	w.create(&rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: system, Name: name}},
	})
	config := check.Value(server.ServiceAccount(w.ctx, system, name, nil))(w)
	// The binding takes effect a moment later.
	review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{
		ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: "*", Group: "*", Resource: "*"},
	}}
	access := check.Value(client.New(config, client.Options{Scheme: w.client.Scheme()}))(w)
	w.eventually("the rights of "+name, func() error {
		asked := review.DeepCopy()
		if err := access.Create(w.ctx, asked); err != nil {
			return err
		}
		if !asked.Status.Allowed {
			return errors.New(asked.Status.Reason)
		}
		return nil
	})
	return config
}

// load is how many processes of this machine want a CPU, of the last minute:
// figures of a machine with more than it has CPUs say little.
func load(t *testing.T) string {
	t.Helper()
	text := check.Value(os.ReadFile("/proc/loadavg"))(t)
	return fmt.Sprintf("%s on %d CPUs", strings.Fields(string(text))[0], runtime.NumCPU())
}
