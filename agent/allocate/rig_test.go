// SPDX-License-Identifier: Apache-2.0

//go:build api || bench

package allocate

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"sync/atomic"
	"testing"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/fenceline/fenceline/agent/ipam"
	"github.com/fenceline/fenceline/agent/lease"
	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/test/check"
)

// node is one agent's allocator over its own connection to a real API server.
type node struct {
	*Allocator
	store          *lease.Store
	client         client.Client
	share          ipam.Share
	creates, lists atomic.Int64
}

func newNode(t testing.TB, config *rest.Config, share ipam.Share) *node {
	t.Helper()
	n := &node{client: connect(t, config), share: share}
	name := fmt.Sprintf("n%d", share.Index)
	n.store = lease.NewStore(lease.Options{
		Client: n.client, Reader: n.client, Node: name, Session: name + "/boot", Clock: clock.RealClock{},
		CountError: func(string, error) {},
	})
	n.restart()
	return n
}

// restart forgets what the allocator has learnt.
func (n *node) restart() { n.Allocator = New(Options{Leases: counting{n}, Clock: clock.RealClock{}}) }

func connect(t testing.TB, config *rest.Config) client.Client {
	t.Helper()
	scheme := runtime.NewScheme()
	check.OK(t, v1alpha1.AddToScheme(scheme))
	log.SetLogger(logr.Discard())
	// A connection of its own, as each agent has: clients with equal configurations share one.
	config = rest.CopyConfig(config)
	config.Dial = (&net.Dialer{}).DialContext
	return check.Value(client.New(config, client.Options{Scheme: scheme}))(t)
}

// counting counts what an allocation costs the API server.
type counting struct{ *node }

func (c counting) Create(ctx context.Context, r lease.Request) (*v1alpha1.IPLease, error) {
	c.creates.Add(1)
	return c.store.Create(ctx, r)
}

func (c counting) TakenIn(ctx context.Context, pool string) (map[netip.Addr]struct{}, error) {
	c.lists.Add(1)
	return c.store.TakenIn(ctx, pool)
}

// allocate asks for an address for a container.
func (n *node) allocate(ctx context.Context, container string, pool ipam.Candidate) (*v1alpha1.IPLease, error) {
	w := wishFor(pool)
	w.Share = n.share
	w.Holder.ContainerID = container
	l, _, err := onDemand(ctx, n.Allocator, w)
	return l, err
}
