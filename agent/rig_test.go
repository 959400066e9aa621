package main

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/go-logr/logr/testr"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/fenceline/fenceline/agent/holder"
	"github.com/fenceline/fenceline/agent/journal"
	"github.com/fenceline/fenceline/agent/lease"
	"github.com/fenceline/fenceline/agent/metrics"
	"github.com/fenceline/fenceline/apis/v1alpha1"
)

// cached is a manager of which only the client is used.
type cached struct {
	manager.Manager
	client client.Client
}

func (c cached) GetClient() client.Client { return c.client }

// newAgent is an agent of node n1 that holds some addresses of pool v4.
func newAgent(t testing.TB, held int, objects ...client.Object) *agent {
	t.Helper()
	book, err := journal.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { book.Close() })
	addr := netip.MustParseAddr("10.0.0.2")
	for i := range held {
		err := book.Put(journal.Entry{
			ContainerID: fmt.Sprintf("c%d", i), Interface: "eth0", Phase: journal.Bound, Session: "s", Created: time.Unix(int64(i), 0), Slot: uint32(i + 1),
			Parent: "eth1", ParentIndex: 7, MAC: "02:00:00:00:00:01", PodNamespace: "shop", PodName: "web",
			Addresses: []journal.Address{{Addr: addr, Pool: "v4", LeaseName: addr.String(), Token: 5}},
		})
		if err != nil {
			t.Fatal(err)
		}
		addr = addr.Next()
	}
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).Build()
	a := &agent{
		settings: settings{node: "n1"}, identity: identity{session: "s", cluster: "c"},
		mgr: cached{client: c}, journal: book, counters: metrics.New(prometheus.NewRegistry()),
		events: events.NewFakeRecorder(10), conflicts: make(chan conflict, 1),
	}
	if t, ok := t.(*testing.T); ok {
		a.log = testr.New(t)
	}
	a.store = lease.NewStore(lease.Options{Client: c, Reader: c, Node: "n1", Session: "s", Clock: clock.RealClock{}})
	a.holders = holder.New(t.Context(), holder.Options{Node: "n1", Session: "s", Journal: book, Kernel: struct{ holder.Kernel }{}})
	return a
}
