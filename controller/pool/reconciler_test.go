// SPDX-License-Identifier: Apache-2.0

package pool

import (
	"context"
	"strconv"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	clocktesting "k8s.io/utils/clock/testing"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/controller/cache"
	"github.com/fenceline/fenceline/controller/metrics"
	"github.com/fenceline/fenceline/controller/podview"
	"github.com/fenceline/fenceline/test/check"
)

// indexer hands the cache's indexes to a fake client.
type indexer struct{ *fake.ClientBuilder }

func (i indexer) IndexField(_ context.Context, o client.Object, name string, keys client.IndexerFunc) error {
	i.WithIndex(o, name, keys)
	return nil
}

// An agent that is replaced must not tell the only other one that nobody is there to be heard.
func TestAnAgentThatIsReplacedIsCounted(t *testing.T) {
	scheme := check.Value(cache.Scheme())(t)
	agent := func(name string) *podview.Pod {
		return &podview.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "system", Name: name, Labels: map[string]string{
				"app.kubernetes.io/name": "fenceline", "app.kubernetes.io/component": "agent"}},
			Spec: podview.Spec{NodeName: name},
		}
	}
	pool := &v1alpha1.IPPool{ObjectMeta: metav1.ObjectMeta{Name: "blue"}, Spec: v1alpha1.IPPoolSpec{Subnet: "10.6.0.0/24"}}
	builder := fake.NewClientBuilder().WithScheme(scheme).WithObjects(pool, agent("n1"), agent("n2")).WithStatusSubresource(pool)
	check.OK(t, cache.AddIndexes(t.Context(), indexer{builder}))
	c := builder.Build()
	clock := clocktesting.NewFakePassiveClock(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	r := &Reconciler{
		Client: c, Live: c, Events: events.NewFakeRecorder(10), Metrics: metrics.New(prometheus.NewRegistry()), Clock: clock, Namespace: "system",
		notes: newNotes(),
	}
	look := func(after time.Duration, want int64) ctrl.Result {
		t.Helper()
		clock.SetTime(clock.Now().Add(after))
		result := check.Value(r.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(pool)}))(t)
		check.OK(t, c.Get(t.Context(), client.ObjectKeyFromObject(pool), pool))
		check.That(t, pool.Status.Agents == want, "the pool tells of %d agents, want %d", pool.Status.Agents, want)
		return result
	}
	look(0, 2)
	check.OK(t, c.Delete(t.Context(), agent("n2")))
	check.Equal(t, look(time.Minute, 2).RequeueAfter, fewerGrace, "the next look is in")
	look(fewerGrace, 1)
}

func TestPublicationsArePaced(t *testing.T) {
	for _, row := range []struct {
		name                 string
		bytes, agents, pools int
		want                 time.Duration
		entries              int
	}{
		{"a small pool once a second", 44, 10, 1, time.Second, 0},
		{"without agents once a second", 1 << 20, 0, 1, time.Second, 0},
		{"a /24 for 5000 agents: the record weighs more than its bitmap", 44, 5000, 1, 14858 * time.Millisecond, 0},
		{"a /16 for 1000 agents", 10923, 1000, 1, 13347 * time.Millisecond, 0},
		{"1 MB to one agent", 1<<20 - recordSize, 1, 1, time.Second, 0},
		{"as one of 32 pools that change", 44, 5000, 32, 14858 * time.Millisecond, 0},
		{"as one of 320 pools that change: all together publish 32 MB a second", 44, 5000, 320, 148583 * time.Millisecond, 0},
		{"many pools of a small cluster once a second", 44, 30, 320, time.Second, 0},
		{"256 entries in a small cluster", 44, 10, 1, time.Second, 256},
		{"8192 entries: the API server validates them", 44, 3, 1, 4915 * time.Millisecond, 8192},
		{"8192 entries for 100 agents: they are sent as well", 44, 100, 1, 12797 * time.Millisecond, 8192},
	} {
		check.Equal(t, interval(size{row.bytes, row.entries}, row.agents, row.pools).Round(time.Millisecond), row.want, "%s: every", row.name)
	}
}

func TestLooksArePaced(t *testing.T) {
	p := newNotes()
	at := func(ms int) time.Time { return noon().Add(time.Duration(ms) * time.Millisecond) }
	check.Equal(t, p.look("blue", at(0)), 0, "the first look waits")
	check.Equal(t, p.look("blue", at(400)), 600*time.Millisecond, "the second look waits")
	check.Equal(t, p.look("green", at(400)), 0, "another pool waits")
	check.Equal(t, p.look("blue", at(1000)), 0, "a look after a second waits")
}

// TestUrgentPublicationsGoAhead: a pool whose publications cost 10 s each.
func TestUrgentPublicationsGoAhead(t *testing.T) {
	const agents, bytes = 1000, 10<<20/1000 - recordSize
	cost := interval(size{bytes: bytes}, agents, 1).Round(100 * time.Millisecond)
	check.Must(t, cost == 10*time.Second, "a publication costs %s", cost)
	p := newNotes()
	p.published("blue", size{bytes: bytes}, agents, noon().Time)
	check.Equal(t, p.wait("blue", false, noon().Time).Round(100*time.Millisecond), cost, "an ordinary publication waits")
	second := func(n int) time.Time { return noon().Add(time.Duration(n) * time.Second) }
	for n := 1; n <= 4; n++ {
		got := p.wait("blue", true, second(n))
		check.Must(t, got == 0, "urgent publication %d waits %s", n, got)
		p.published("blue", size{bytes: bytes}, agents, second(n))
	}
	// Five publications in 5 s: a state that flaps goes on at the pace.
	check.Equal(t, p.wait("blue", true, second(5)).Round(100*time.Millisecond), 5*time.Second, "one more urgent publication waits")
	check.Equal(t, p.wait("blue", false, second(5)).Round(100*time.Millisecond), 45*time.Second, "an ordinary publication waits")
	// What is not used up is not saved.
	p.published("blue", size{bytes: bytes}, agents, second(3600))
	check.Equal(t, p.wait("blue", false, second(3600)).Round(100*time.Millisecond), cost, "an hour later an ordinary publication waits")
}

func TestBusyPoolsShareThePace(t *testing.T) {
	p := newNotes()
	for i := range 64 {
		p.published(strconv.Itoa(i), size{bytes: 44}, 5000, noon().Time)
	}
	p.published("blue", size{bytes: 44}, 5000, noon().Time)
	check.Equal(t, p.wait("blue", false, noon().Time).Round(time.Second), 30*time.Second, "one of 65 busy pools waits twice the 15s of a single one:")
	// The others have had their turn and are quiet since.
	p.published("green", size{bytes: 44}, 5000, noon().Add(time.Hour))
	check.Equal(t, p.wait("green", false, noon().Add(time.Hour)).Round(time.Second), 15*time.Second, "a single busy pool waits")
}

func TestWhatIsUrgent(t *testing.T) {
	status := func(edit func(*v1alpha1.IPPoolStatus)) v1alpha1.IPPoolStatus {
		s := v1alpha1.IPPoolStatus{ObservedGeneration: 1, Used: 3, InUse: "Bw==", Conditions: []metav1.Condition{
			{Type: "Exhausted", Status: "False", Reason: "AddressLeft", ObservedGeneration: 1},
		}}
		edit(&s)
		return s
	}
	for _, row := range []struct {
		name string
		edit func(*v1alpha1.IPPoolStatus)
		want bool
	}{
		{"nothing", func(*v1alpha1.IPPoolStatus) {}, false},
		{"counts and bitmap are not", func(s *v1alpha1.IPPoolStatus) { s.Used, s.InUse = 4, "Dw==" }, false},
		{"an agent more is not", func(s *v1alpha1.IPPoolStatus) { s.Agents, s.Shares = 4, 4 }, false},
		{"another message is not", func(s *v1alpha1.IPPoolStatus) { s.Conditions[0].Message = "another" }, false},
		{"scarce: another node's last request waits for it", func(s *v1alpha1.IPPoolStatus) { s.Scarce = true }, true},
		{"exhausted", func(s *v1alpha1.IPPoolStatus) { s.Conditions[0].Status = "True" }, true},
		{"another reason", func(s *v1alpha1.IPPoolStatus) { s.Conditions[0].Reason = "None" }, true},
		{"a condition more", func(s *v1alpha1.IPPoolStatus) {
			s.Conditions = append(s.Conditions, metav1.Condition{Type: "Outside", Status: "False"})
		}, true},
		{"an edit of the pool", func(s *v1alpha1.IPPoolStatus) { s.ObservedGeneration = 2 }, true},
	} {
		t.Run(row.name, func(t *testing.T) {
			check.Equal(t, isUrgent(status(func(*v1alpha1.IPPoolStatus) {}), status(row.edit)), row.want, "urgent")
		})
	}
}
