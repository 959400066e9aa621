// SPDX-License-Identifier: Apache-2.0

package watch

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fenceline/fenceline/agent/lease"
	"github.com/fenceline/fenceline/apis/v1alpha1"
)

// Client reads the leases of this node from its View and everything else from the caches of the manager, and
// writes to the API server. A read fails at once while the View or the caches are not filled, with an error that
// counts as an API server that is unavailable: the caches themselves would wait for any time. Safe for concurrent
// use.
type Client struct {
	client.Client
	Leases *lease.View
	caches cache.Informers
	// full is closed once reads are let through.
	full chan struct{}
}

// NewClient returns a Client of a manager whose caches are not filled yet.
func NewClient(of ctrl.Manager, leases *lease.View) *Client {
	return &Client{Client: of.GetClient(), Leases: leases, caches: of.GetCache(), full: make(chan struct{})}
}

// Fill lets reads through once the caches of all kinds that parts of the agent read at any time are filled: a
// read of one that is not would wait, perhaps for a whole outage. It returns when ctx ends.
func (c *Client) Fill(ctx context.Context) error {
	for _, kind := range []client.Object{
		&corev1.Pod{}, &corev1.Node{}, &corev1.Service{}, &corev1.Secret{},
		&v1alpha1.IPPool{}, &v1alpha1.ReservedIP{}, &v1alpha1.IPSubnet{}, &v1alpha1.LeaseHint{},
	} {
		if _, err := c.caches.GetInformer(ctx, kind); err != nil {
			if ctx.Err() != nil {
				return nil //nolint:nilerr // the agent ends
			}
			return fmt.Errorf("fill the cache of %T: %w", kind, err)
		}
	}
	close(c.full)
	<-ctx.Done()
	return nil
}

// Get reads an object.
func (c *Client) Get(ctx context.Context, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
	if l, ok := o.(*v1alpha1.IPLease); ok {
		found, err := c.Leases.Get(key.Name)
		if err == nil {
			*l = *found
		}
		return err
	}
	if err := c.unfilled(); err != nil {
		return err
	}
	return c.Client.Get(ctx, key, o, opts...)
}

// List reads objects. Of leases it reads all of this node, whatever the options say.
func (c *Client) List(ctx context.Context, l client.ObjectList, opts ...client.ListOption) (err error) {
	if leases, ok := l.(*v1alpha1.IPLeaseList); ok {
		leases.Items, err = c.Leases.All()
		return err
	}
	if err := c.unfilled(); err != nil {
		return err
	}
	return c.Client.List(ctx, l, opts...)
}

func (c *Client) unfilled() error {
	select {
	case <-c.full:
		return nil
	default:
		return apierrors.NewServiceUnavailable("the API server has not filled the caches of the agent since it started")
	}
}

// Filled waits until Fill lets reads through or ctx ends, and reports whether it does.
func (c *Client) Filled(ctx context.Context) bool {
	select {
	case <-c.full:
		return true
	case <-ctx.Done():
		return c.unfilled() == nil
	}
}
