// SPDX-License-Identifier: Apache-2.0

//go:build bench

package nodes

import (
	"context"
	"fmt"
	"strconv"
	"testing"
	"time"

	eventsv1 "k8s.io/api/events/v1"
	apiwatch "k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/test/check"
	"github.com/fenceline/fenceline/test/figure"
	"github.com/fenceline/fenceline/test/scrape"
)

const (
	// servedHalf and servedMost bound the time from the release of an address until a waiting pod
	// has it, for half of the releases and for 99 of 100.
	servedHalf, servedMost = time.Second, 3 * time.Second
)

// TestTimeOfAReleaseToAWaitingPod frees addresses of a full pool, for which pods wait on ten nodes.
// It prints the time from each release until a waiting pod has its answer, and the number of leases
// that the agents tried to create for each address.
func TestTimeOfAReleaseToAWaitingPod(t *testing.T) {
	agents, releases, holding := figure.Size(10, 2), figure.Size(60, 2), figure.Size(10, 2)
	const each = 5
	c := New(t, agents)
	pool := c.Pool("full", "10.92.0.0/24", fmt.Sprintf("10.92.0.2-10.92.0.%d", holding+1))
	watcher := check.Value(client.NewWithWatch(c.Server.Admin(), client.Options{Scheme: c.Scheme()}))(t)
	w := &waits{Cluster: c, t: t, served: make(chan *Sandbox, agents*each)}
	var holders []*Sandbox
	for i := range holding {
		w.begin(c.Nodes[i%agents])
		holders = append(holders, <-w.served)
	}
	for i := range agents * each {
		w.begin(c.Nodes[i%agents])
	}
	w.allWait(agents * each)
	leases := check.Value(watcher.Watch(t.Context(), &v1alpha1.IPLeaseList{}, client.MatchingFields{"spec.pool": pool.Name}))(t)
	defer leases.Stop()
	var took span
	creates := w.creates()
	for range releases {
		victim := holders[0]
		holders = holders[1:]
		go func() {
			if err := victim.End(t.Context()); err != nil {
				t.Error(err)
			}
		}()
		for event := range leases.ResultChan() {
			if event.Type == apiwatch.Deleted && event.Object.(*v1alpha1.IPLease).Spec.Address == victim.Addr.String() {
				break
			}
		}
		free := time.Now()
		next := <-w.served
		took = append(took, next.Since.Sub(free))
		holders = append(holders, next)
		w.begin(next.node)
	}
	tries := w.creates() - creates
	t.Logf("%d agents with %d waiting pods each, %d releases: free to served %s; %.1f creates for each release; the machine's %s",
		agents, each, releases, took, tries/float64(releases), load(t))
	half, most := figure.Median(took), figure.Percentile(took, 99)
	figure.Report(t, "release of a full pool to a waiting pod, p50", figure.Milliseconds(half), "ms", figure.AtMost(figure.Milliseconds(servedHalf)))
	figure.Report(t, "release of a full pool to a waiting pod, p99", figure.Milliseconds(most), "ms", figure.AtMost(figure.Milliseconds(servedMost)))
	if !testing.Short() && (half > servedHalf || most > servedMost) {
		t.Errorf("half of the releases took up to %s, want %s, and 99 of 100 up to %s, want %s", half, servedHalf, most, servedMost)
	}
	w.stop()
}

// waits are pods that wait for an address.
type waits struct {
	*Cluster
	t      *testing.T
	pods   int
	served chan *Sandbox
	ends   []context.CancelFunc
}

// begin starts a pod on a node as a kubelet does.
func (w *waits) begin(n *Node) {
	w.t.Helper()
	w.pods++
	pod := check.Value(n.NewPod(w.t.Context(), "w"+strconv.Itoa(w.pods), nil))(w.t)
	ctx, cancel := context.WithCancel(w.t.Context())
	w.ends = append(w.ends, cancel)
	go func() {
		if s, err := n.Begin(ctx, pod); err == nil {
			w.served <- s
		}
	}()
}

// allWait returns once each pod that is not served has said in an event that it waits.
func (w *waits) allWait(pods int) {
	w.t.Helper()
	w.Eventually(w.t, "all pods wait", func() error {
		all := &eventsv1.EventList{}
		if err := w.List(w.t.Context(), all, client.InNamespace(Shop)); err != nil {
			return err
		}
		waiting := map[string]bool{}
		for _, e := range all.Items {
			if e.Reason == "AddressAwaited" {
				waiting[e.Regarding.Name] = true
			}
		}
		if len(waiting) < pods {
			return fmt.Errorf("%d pods wait", len(waiting))
		}
		return nil
	})
}

// creates is the number of leases that agents tried to create, by the API server's count.
func (w *waits) creates() float64 {
	w.t.Helper()
	k := check.Value(kubernetes.NewForConfig(w.Server.Admin()))(w.t)
	text := check.Value(k.RESTClient().Get().AbsPath("/metrics").Stream(w.t.Context()))(w.t)
	defer text.Close()
	n, _ := check.Value(scrape.Parse(text))(w.t).Sum("apiserver_request_total", map[string]string{"resource": "ipleases", "verb": "POST"})
	return n
}

// stop ends the pods that still wait.
func (w *waits) stop() {
	for _, end := range w.ends {
		end()
	}
}
