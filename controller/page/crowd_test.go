// SPDX-License-Identifier: Apache-2.0

//go:build browser || bench

package page

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fenceline/fenceline/apis/v1alpha1"
)

// crowd is a cache of the pools underlay, a /16 with 20 000 leases, and v6, a /64.
type crowd struct {
	client.Reader
	mu     sync.Mutex
	pools  []v1alpha1.IPPool
	leases map[string]*v1alpha1.IPLease
}

func newCrowd() *crowd {
	gateway := "10.20.0.1"
	c := &crowd{leases: map[string]*v1alpha1.IPLease{}}
	underlay, v6 := poolNamed("underlay", "10.20.0.0/16", "10.20.0.1-10.20.199.255"), poolNamed("v6", "fd00:20::/64")
	underlay.Spec.Gateway, underlay.Spec.ExcludeIPs = &gateway, []string{"10.20.0.4-10.20.0.7"}
	underlay.Status = v1alpha1.IPPoolStatus{Total: 51190, Used: 20000, Free: 31190, Bound: 17500, Warm: 1000, Quarantined: 1000, Retained: 500}
	v6.Status = v1alpha1.IPPoolStatus{Total: 1 << 62, Used: 3, Free: 1<<62 - 3, Bound: 2, Warm: 1, Conditions: []metav1.Condition{
		{Type: "Ready", Status: metav1.ConditionTrue}, {Type: v1alpha1.ConditionUnfenced, Status: metav1.ConditionTrue, Message: "one address waits"}}}
	c.pools = []v1alpha1.IPPool{*v6, *underlay}
	for i := range 20000 {
		// In each /24 a block and scattered addresses, in scattered states.
		third, k, hash := i/125, i%125, uint32(i)*2654435761>>16
		if k < 90 {
			k += 20
		} else {
			k = 115 + k*37%128
		}
		address := fmt.Sprintf("10.20.%d.%d", third, k)
		l := leaseNamed(address, v1alpha1.StateBound, fmt.Sprintf("web-%d", i))
		l.Spec.Holder.Namespace, l.Spec.NodeName = []string{"shop", "billing", "search"}[i%3], fmt.Sprintf("node-%03d", i%100)
		l.Spec.Since.Time = l.Spec.Since.Add(time.Duration(i) * time.Second)
		state := int(hash % 40)
		if i < 6 {
			state = i
		}
		switch state {
		case 1, 2:
			l.Spec.State, l.Spec.Holder = v1alpha1.StateWarm, nil
		case 3:
			l = taken(l, v1alpha1.ReasonNodeUnreachable)
		case 4:
			l = taken(l, v1alpha1.ReasonConflict)
			l.Spec.Conflict = &v1alpha1.Conflict{MAC: "02:00:00:00:00:09", Source: "observer", Count: 3}
		case 5:
			l.Spec.State = v1alpha1.StateRetained
		}
		c.leases[l.Name] = l
	}
	for i, address := range []string{"fd00:20::5", "fd00:20::1:0", "fd00:20::a:b"} {
		l := leaseNamed(address, v1alpha1.StateBound, fmt.Sprintf("six-%d", i))
		l.Name, l.Spec.Pool = v1alpha1.LeaseName("", l.Spec.Addr()), "v6"
		c.leases[l.Name] = l
	}
	return c
}

func (c *crowd) Get(_ context.Context, key client.ObjectKey, o client.Object, _ ...client.GetOption) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch o := o.(type) {
	case *v1alpha1.IPLease:
		if l, ok := c.leases[key.Name]; ok {
			*o = *l
			return nil
		}
	case *v1alpha1.IPPool:
		if i := slices.IndexFunc(c.pools, func(p v1alpha1.IPPool) bool { return p.Name == key.Name }); i >= 0 {
			*o = c.pools[i]
			return nil
		}
	}
	return apierrors.NewNotFound(schema.GroupResource{}, key.Name)
}

func (c *crowd) List(_ context.Context, list client.ObjectList, options ...client.ListOption) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch list := list.(type) {
	case *v1alpha1.IPPoolList:
		list.Items = c.pools
	case *v1alpha1.IPLeaseList:
		for _, l := range c.leases {
			if options[0].(client.MatchingFields)["pool"] == l.Spec.Pool {
				list.Items = append(list.Items, *l)
			}
		}
	case *v1alpha1.ReservedIPList:
		r := v1alpha1.ReservedIP{}
		r.Spec.IPs = []string{"10.20.0.8-10.20.0.13"}
		list.Items = append(list.Items, r)
	}
	return nil
}

// churn passes 500 writes to the feed in a second, as many as reclaims: the same leases again.
func (c *crowd) churn(feed *Feed) {
	pace := time.NewTicker(20 * time.Millisecond)
	defer pace.Stop()
	for i := range 500 {
		feed.Lease(nil, c.leases[fmt.Sprintf("10.20.%d.%d", i/90, 20+i%90)], time.Now())
		if i%10 == 9 {
			<-pace.C
		}
	}
}
