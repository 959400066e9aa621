// SPDX-License-Identifier: Apache-2.0

package pool

import (
	"context"
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

// An agent that is replaced must not tell the only other one that nobody is
// there to be heard.
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
	result := look(time.Minute, 2)
	check.That(t, result.RequeueAfter == fewerGrace, "the next look is in %s", result.RequeueAfter)
	look(fewerGrace, 1)
}
