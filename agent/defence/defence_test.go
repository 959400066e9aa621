// SPDX-License-Identifier: Apache-2.0

package defence

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/testr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/fenceline/fenceline/agent/attachment"
	"github.com/fenceline/fenceline/agent/lease"
	"github.com/fenceline/fenceline/agent/segment"
	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/internal/event"
	"github.com/fenceline/fenceline/test/check"
)

// newDefence is that of node n1, which holds some addresses of pool v4.
func newDefence(t testing.TB, held int, objects ...client.Object) *Defence {
	t.Helper()
	book := check.Value(attachment.Open(t.TempDir()))(t)
	t.Cleanup(func() { book.Close() })
	book.Begin("s")
	addr := netip.MustParseAddr("10.0.0.2")
	for i := range held {
		err := book.Put(attachment.Entry{
			ContainerID: fmt.Sprintf("c%d", i), Interface: "eth0", Phase: attachment.Bound, Session: "s", Created: time.Unix(int64(i), 0), Slot: uint32(i + 1),
			Parent: "eth1", ParentIndex: 7, MAC: "02:00:00:00:00:01", PodNamespace: "shop", PodName: "web",
			Addresses: []attachment.Address{{Addr: addr, Pool: "v4", LeaseName: addr.String(), Token: 5}},
		})
		check.OK(t, err)
		addr = addr.Next()
	}
	scheme := runtime.NewScheme()
	check.OK(t, v1alpha1.AddToScheme(scheme))
	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).WithStatusSubresource(&v1alpha1.ReservedIP{}).Build()
	log := logr.Discard()
	if t, ok := t.(*testing.T); ok {
		log = testr.New(t)
	}
	leases := lease.NewStore(lease.Options{Client: c, Reader: c, Node: "n1", Session: "s", Clock: clock.RealClock{}})
	d := New(Options{
		Reporter: event.Reporter{Node: "n1", Events: events.NewFakeRecorder(10), Log: log, Clock: clock.RealClock{}},
		Cluster:  "c", Cache: c, Leases: leases, Attachments: book, Conflict: func(string, segment.Source) {},
	})
	d.waiting = make(chan conflict, 1)
	return d
}

func second(addr string) segment.Conflict {
	return segment.Conflict{
		Holding: segment.Holding{Parent: 7, Announcement: segment.Announcement{Addr: netip.MustParseAddr(addr)}},
		MAC:     net.HardwareAddr{2, 0xbd, 0, 0, 0, 1}, Source: segment.SourceGuard,
	}
}

func TestASecondSpeakerIsRecordedOnTheLease(t *testing.T) {
	l := &v1alpha1.IPLease{ObjectMeta: metav1.ObjectMeta{Name: "10.0.0.2"}, Spec: v1alpha1.IPLeaseSpec{
		Address: "10.0.0.2", State: v1alpha1.StateBound, NodeName: "n1", Session: "s",
	}}
	d := newDefence(t, 1, l)
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- d.Run(ctx) }()
	d.Met(second("10.0.0.2"))
	for range 2 { // the second is taken once the first is recorded
		d.waiting <- conflict{second("10.0.0.2"), "10.0.0.2"}
	}
	stop()
	check.OK(t, <-done)
	check.OK(t, d.Cache.Get(t.Context(), client.ObjectKeyFromObject(l), l))
	c := l.Spec.Conflict
	check.That(t, c != nil && c.MAC == "02:bd:00:00:00:01" && c.Source == "guard", "conflict %+v", c)
}

func TestConflictsNeverBlockTheEventLoop(t *testing.T) {
	d := newDefence(t, 1)
	for range 100 { // Run does not run
		d.Met(second("10.0.0.2"))
		d.Met(second("10.0.0.99")) // not held here
	}
	check.That(t, len(d.waiting) == cap(d.waiting), "%d wait", len(d.waiting))
}

func TestHoldingsOfAPoolThatIsGoneAreDefended(t *testing.T) {
	d := newDefence(t, 3)
	held := d.Holdings()
	check.That(t, len(held) == 3 && held[0].Mode == v1alpha1.ModeEnforce && held[0].Token == 5 && held[0].Parent == 7, "holdings %+v", held)
}

// Called once a second, and for each conflict that is reported.
func BenchmarkHoldingsOf250Pods(b *testing.B) {
	d := newDefence(b, 250, &v1alpha1.IPPool{ObjectMeta: metav1.ObjectMeta{Name: "v4"}})
	b.ReportAllocs()
	for b.Loop() {
		check.Must(b, len(d.Holdings()) == 250, "wrong")
	}
}

func TestRecordsOfAnAddressBackOffToTenMinutes(t *testing.T) {
	c := clocktesting.NewFakeClock(time.Unix(1000, 0))
	p := newPace(c)
	var pauses []time.Duration
	last := c.Now()
	for range 6 * 3600 / 10 { // a conflict every 10 s for six hours
		if p.allow("10.0.0.2") {
			pauses = append(pauses, c.Since(last))
			last = c.Now()
		}
		c.Step(10 * time.Second)
	}
	if fmt.Sprint(pauses[:8]) != "[0s 10s 20s 40s 1m20s 2m40s 5m20s 10m0s]" || pauses[len(pauses)-1] != 10*time.Minute {
		t.Errorf("pauses %v", pauses)
	}
	c.Step(recordForget)
	check.That(t, p.allow("10.0.0.2"), "a conflict after a long peace is not recorded at once")
}

func TestTheRecordsOfANodeAreBounded(t *testing.T) {
	c := clocktesting.NewFakeClock(time.Unix(1000, 0))
	p := newPace(c)
	records := 0
	for second := range 60 { // 250 addresses, of which each has a conflict every second
		for i := range 250 {
			if p.allow(fmt.Sprintf("10.0.0.%d", i)) {
				records++
			}
		}
		check.That(t, second != 0 || records == recordBurst, "%d records at once, want %d", records, recordBurst)
		c.Step(time.Second)
	}
	most := recordBurst + 60*recordRate
	check.That(t, records <= most && records >= most-2, "%d records in a minute, want %d", records, most)
	check.That(t, len(p.leases) == 250, "%d addresses are known", len(p.leases))
	c.Step(recordForget)
	p.allow("10.0.0.1")
	check.That(t, len(p.leases) == 1, "%d addresses are remembered after a long peace", len(p.leases))
}
