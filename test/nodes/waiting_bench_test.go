// SPDX-License-Identifier: Apache-2.0

//go:build bench

package nodes

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiwatch "k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/test/figure"
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
	watcher, err := client.NewWithWatch(c.Server.Admin(), client.Options{Scheme: c.Scheme()})
	c.check(err)
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
	leases, err := watcher.Watch(t.Context(), &v1alpha1.IPLeaseList{}, client.MatchingFields{"spec.pool": pool.Name})
	c.check(err)
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
	load, err := os.ReadFile("/proc/loadavg")
	c.check(err)
	t.Logf("%d agents with %d waiting pods each, %d releases: free to served %s; %.1f creates for each release; the machine's load is %s on %d CPUs",
		agents, each, releases, took, float64(tries)/float64(releases), strings.Fields(string(load))[0], runtime.NumCPU())
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
	pod, err := n.NewPod(w.t.Context(), "w"+strconv.Itoa(w.pods), nil)
	w.check(err)
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
	k, err := kubernetes.NewForConfig(w.Server.Admin())
	w.check(err)
	w.Eventually(w.t, "all pods wait", func() error {
		text, err := k.EventsV1().Events(Shop).List(w.t.Context(), metav1.ListOptions{})
		if err != nil {
			return err
		}
		waiting := map[string]bool{}
		for _, e := range text.Items {
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
func (w *waits) creates() (n int) {
	w.t.Helper()
	k, err := kubernetes.NewForConfig(w.Server.Admin())
	w.check(err)
	text, err := k.RESTClient().Get().AbsPath("/metrics").DoRaw(w.t.Context())
	w.check(err)
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "apiserver_request_total{") && strings.Contains(line, `resource="ipleases"`) && strings.Contains(line, `verb="POST"`) {
			fields := strings.Fields(line)
			f, err := strconv.ParseFloat(fields[len(fields)-1], 64)
			w.check(err)
			n += int(f)
		}
	}
	return n
}

// stop ends the pods that still wait.
func (w *waits) stop() {
	for _, end := range w.ends {
		end()
	}
}
