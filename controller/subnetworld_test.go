// SPDX-License-Identifier: Apache-2.0

//go:build api

package main

import (
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"strings"
	"sync"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/internal/poolset"
	"github.com/fenceline/fenceline/test/check"
)

// subnet makes an IPSubnet.
func (w world) subnet(name, subnet string, edits ...func(*v1alpha1.IPSubnetSpec)) *v1alpha1.IPSubnet {
	w.Helper()
	s := &v1alpha1.IPSubnet{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.IPSubnetSpec{Subnet: subnet}}
	for _, edit := range edits {
		edit(&s.Spec)
	}
	w.create(s)
	return s
}

// deployment makes a Deployment whose template has annotations.
func (w world) deployment(name string, replicas int32, annotations ...string) *appsv1.Deployment {
	w.Helper()
	d := &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
		Spec: appsv1.DeploymentSpec{
			Replicas: ptr.To(replicas), Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": name}},
			Template: template(name, annotations...),
		},
	}
	w.create(d)
	return d
}

// poolsOf returns the pools of an application, by name of the application.
func (w world) poolsOf(app string) []v1alpha1.IPPool {
	w.Helper()
	var pools v1alpha1.IPPoolList
	check.OK(w, w.client.List(w.ctx, &pools))
	var found []v1alpha1.IPPool
	for _, p := range pools.Items {
		if a := p.Spec.Application; a != nil && a.Name == app && p.DeletionTimestamp == nil {
			found = append(found, p)
		}
	}
	return found
}

// waitPool waits until an application has one pool that hands out a number of addresses, and returns it.
func (w world) waitPool(app string, addresses uint64) v1alpha1.IPPool {
	w.Helper()
	var pool v1alpha1.IPPool
	w.eventually(fmt.Sprintf("a pool of %s with %d addresses", app, addresses), func() error {
		pools := w.poolsOf(app)
		if len(pools) != 1 {
			return fmt.Errorf("it has %d pools", len(pools))
		}
		pool = pools[0]
		if set, err := poolset.Addresses(&pool); err != nil || set.Len() != addresses {
			return fmt.Errorf("it has %v without %v (%w)", pool.Spec.IPs, pool.Spec.ExcludeIPs, err)
		}
		return nil
	})
	return pool
}

// waitNoPool waits until an application has no pool.
func (w world) waitNoPool(app string) {
	w.Helper()
	w.eventually("the end of the pool of "+app, func() error {
		if pools := w.poolsOf(app); len(pools) > 0 {
			return fmt.Errorf("it has pool %s", pools[0].Name)
		}
		return nil
	})
}

// checkDisjoint reports pools of IPSubnets with common addresses, and returns their number.
func (w world) checkDisjoint() int {
	w.Helper()
	var pools v1alpha1.IPPoolList
	check.OK(w, w.client.List(w.ctx, &pools))
	owners, n := map[netip.Addr]string{}, 0
	for _, p := range pools.Items {
		if p.Spec.IPSubnet == "" {
			continue
		}
		n++
		ips := check.Value(poolset.Parse(p.Spec.IPs))(w)
		for i := range ips.Len() {
			if other, ok := owners[ips.At(i)]; ok {
				w.Errorf("pools %s and %s have %s", p.Name, other, ips.At(i))
			}
			owners[ips.At(i)] = p.Name
		}
	}
	return n
}

// waitSubnet waits until the status of an IPSubnet meets a condition.
func (w world) waitSubnet(name string, condition func(v1alpha1.IPSubnetStatus) error) {
	w.Helper()
	w.eventually("status of IPSubnet "+name, func() error {
		s := &v1alpha1.IPSubnet{}
		if err := w.client.Get(w.ctx, client.ObjectKey{Name: name}, s); err != nil {
			return err
		}
		return condition(s.Status)
	})
}

// unserved waits until an application is listed as one that lacks addresses.
func (w world) waitUnserved(subnet, app, message string) {
	w.Helper()
	w.waitSubnet(subnet, func(s v1alpha1.IPSubnetStatus) error {
		for _, u := range s.Unserved {
			if u.Name == app && strings.Contains(u.Message, message) {
				return nil
			}
		}
		return fmt.Errorf("it lists %+v", s.Unserved)
	})
}

// calls counts the requests of a controller to the API server.
type calls struct {
	mu sync.Mutex
	n  map[string]int
}

func (c *calls) wrap(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(r *http.Request) (*http.Response, error) {
		if r.URL.Query().Get("watch") == "" {
			c.mu.Lock()
			parts := strings.Split(strings.TrimPrefix(r.URL.Path, "/apis/"), "/")
			what := r.Method + " " + parts[min(2, len(parts)-1)]
			if strings.HasSuffix(r.URL.Path, "/status") {
				what += "/status"
			}
			c.n[what]++
			c.mu.Unlock()
		}
		return next.RoundTrip(r)
	})
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

var errNotYet = errors.New("not yet")

// subnetNamed returns an IPSubnet.
func (w world) subnetNamed(name string) *v1alpha1.IPSubnet {
	w.Helper()
	s := &v1alpha1.IPSubnet{}
	check.OK(w, w.client.Get(w.ctx, client.ObjectKey{Name: name}, s))
	return s
}
