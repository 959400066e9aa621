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
	"github.com/fenceline/fenceline/internal/poolset"
)

// Client reads the leases of this node from its View, reservations from Reservations, and everything else from the
// caches of the manager, and writes to the API server. A read fails at once while one of them is not filled, with an
// error that counts as an API server that is unavailable: the caches themselves would wait for any time. Safe for
// concurrent use.
type Client struct {
	client.Client
	Leases       *lease.View
	reservations *Reservations
	caches       cache.Informers
	// full is closed once reads are let through.
	full chan struct{}
}

// NewClient returns a Client of a manager whose caches are not filled yet.
func NewClient(of ctrl.Manager, watches client.WithWatch, leases *lease.View) *Client {
	return &Client{Client: of.GetClient(), Leases: leases, reservations: newReservations(watches), caches: of.GetCache(), full: make(chan struct{})}
}

// Run watches the reservations until ctx ends.
func (c *Client) Run(ctx context.Context) error { return c.reservations.Run(ctx) }

// Fill lets reads through once the caches of all kinds that parts of the agent read at any time are filled: a
// read of one that is not would wait, perhaps for a whole outage. It returns when ctx ends.
func (c *Client) Fill(ctx context.Context) error {
	for _, kind := range []client.Object{
		&corev1.Pod{}, &corev1.Node{}, &corev1.Service{}, &corev1.Secret{},
		&v1alpha1.IPPool{}, &v1alpha1.IPSubnet{}, &v1alpha1.LeaseHint{},
	} {
		if _, err := c.caches.GetInformer(ctx, kind); err != nil {
			if ctx.Err() != nil {
				return nil //nolint:nilerr // the agent ends
			}
			return fmt.Errorf("fill the cache of %T: %w", kind, err)
		}
	}
	select {
	case <-c.reservations.filled:
		close(c.full)
		<-ctx.Done()
	case <-ctx.Done():
	}
	return nil
}

// Get reads an object. Of reservations, it knows those of virtual addresses and of machines.
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
	if r, ok := o.(*v1alpha1.ReservedIP); ok {
		found, err := c.reservations.get(key.Name)
		if err == nil {
			*r = *found
		}
		return err
	}
	return c.Client.Get(ctx, key, o, opts...)
}

// Reservations implements poolset.Keeper.
func (c *Client) Reservations() (*poolset.Packed, error) {
	if err := c.unfilled(); err != nil {
		return nil, err
	}
	return c.reservations.all(), nil
}

// List reads objects. Of leases it reads all of this node, and of reservations those of virtual addresses and of
// machines, whatever the options say.
func (c *Client) List(ctx context.Context, l client.ObjectList, opts ...client.ListOption) (err error) {
	if leases, ok := l.(*v1alpha1.IPLeaseList); ok {
		leases.Items, err = c.Leases.All()
		return err
	}
	if err := c.unfilled(); err != nil {
		return err
	}
	if reservations, ok := l.(*v1alpha1.ReservedIPList); ok {
		reservations.Items = c.reservations.list()
		return nil
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
