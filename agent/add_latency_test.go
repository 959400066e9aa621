//go:build bench && kernel

package main

import (
	"fmt"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/fenceline/fenceline/agent/lease"
	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/cni/agentapi"
)

// addPace is how far ADDs are apart, as those of a node's pods usually are. The
// tail of one, above all the move of its guard, is over before the next.
const addPace = 200 * time.Millisecond

// addPools differ in what an ADD waits for. Off leaves out more than the probe;
// what the probe alone costs is between Off and Observe.
var addPools = []struct {
	name  string
	mode  v1alpha1.ConflictMode
	warm  int64
	adds  int
	waits string
}{
	{"off", v1alpha1.ModeOff, 0, 120, "the create, on demand; goal 1.2 and 1.4 × create"},
	{"warm", v1alpha1.ModeEnforce, 64, 120, "the update of a Warm lease (default mode); goal 1.3 and 1.5 × update"},
	{"observe", v1alpha1.ModeObserve, 0, 20, "the create and the probe, 3 × 50 ms"},
	{"enforce", v1alpha1.ModeEnforce, 0, 20, "the create, the probe and the claim, 30 ms (default mode)"},
}

// How long an ADD takes: in the agent, as its metric counts it, and with the way
// over the socket and back. The whole agent, a real API server and kernel, and
// macvlan interfaces take part. The same writes of a client that does nothing
// else take turns with the ADDs, so that the ratios stand whatever the
// machine. The plugin's own start is measured by TestTimeOfTheProcess.
func TestLatencyOfADD(t *testing.T) {
	logToFile(t)
	m := start(t)
	requests := make([][]agentapi.AddRequest, len(addPools))
	for i, p := range addPools {
		m.addPool(i)
		for range p.adds + 1 {
			r := m.sandbox()
			r.Network.DefaultIPv4IPPool = []string{p.name}
			requests[i] = append(requests[i], r)
		}
	}

	// The first of each is not measured: connections open, guards are loaded
	// ahead, and the API server takes seconds for the first create of a kind.
	pace := time.NewTicker(addPace)
	defer pace.Stop()
	m.rawWrites(0, pace.C, new(rawTimes))
	for i, p := range addPools {
		m.eventually("the agent serves pool "+p.name, 20*time.Second, func() bool {
			_, err := m.agent.Add(t.Context(), requests[i][0])
			return err == nil
		})
		if p.warm > 0 {
			m.eventually("the addresses are ready", 3*time.Minute, func() bool { return gauge(t, p.name, "ready") == float64(p.warm) })
		}
	}
	var raw rawTimes
	adds := make([]addTimes, len(addPools))
	for n := 1; ; n++ {
		left := false
		for i, p := range addPools {
			if n > p.adds {
				continue
			}
			left = true
			<-pace.C
			m.timedAdd(requests[i][n], &adds[i])
		}
		if !left {
			break
		}
		m.rawWrites(n, pace.C, &raw)
	}
	t.Log(latencyTable(raw, adds))
}

// addPool makes a pool of a subnet of its own that has room for all ADDs.
func (m *machine) addPool(i int) {
	m.t.Helper()
	p := addPools[i]
	pool := &v1alpha1.IPPool{
		ObjectMeta: metav1.ObjectMeta{Name: p.name},
		Spec: v1alpha1.IPPoolSpec{
			Subnet:            fmt.Sprintf("10.%d.0.0/22", 70+i),
			ConflictDetection: &v1alpha1.ConflictDetection{Mode: p.mode},
			Warm:              &p.warm,
		},
	}
	check(m.t, m.Create(m.t.Context(), pool))
	// As the controller would.
	pool.Status.Agents, pool.Status.Served, pool.Status.Shares = 1, 1, 1
	pool.Status.Total, pool.Status.Free = 1021, 1021
	check(m.t, m.Status().Update(m.t.Context(), pool))
}

// addTimes are how long ADDs took, as the plugin sees it and as the agent does.
type addTimes struct{ plugin, agent []time.Duration }

func (m *machine) timedAdd(r agentapi.AddRequest, took *addTimes) {
	m.t.Helper()
	before := m.timeInADDs()
	start := time.Now()
	_, err := m.agent.Add(m.t.Context(), r)
	took.plugin = append(took.plugin, time.Since(start))
	check(m.t, err)
	took.agent = append(took.agent, m.timeInADDs()-before)
}

// timeInADDs is how long all ADDs together have taken the agent.
func (m *machine) timeInADDs() time.Duration {
	m.t.Helper()
	families, err := ctrlmetrics.Registry.Gather()
	check(m.t, err)
	for _, f := range families {
		if f.GetName() != "fenceline_cni_duration_seconds" {
			continue
		}
		for _, metric := range f.GetMetric() {
			for _, l := range metric.GetLabel() {
				if l.GetValue() == "ADD" {
					return time.Duration(metric.GetHistogram().GetSampleSum() * float64(time.Second))
				}
			}
		}
	}
	return 0
}

// rawTimes are how long raw writes took: creates, and updates with and without
// the API server's tracking of fields, which an ADD ends.
type rawTimes struct{ creates, updates, untracked []time.Duration }

// rawWrites are the writes of ADDs, by a client that does nothing else: one
// creates a lease, the others bind a Warm one. Each finds machine and API server
// as much at rest as an ADD does.
func (m *machine) rawWrites(n int, pace <-chan time.Time, took *rawTimes) {
	m.t.Helper()
	// Of no node: the agent would take them for some that it has lost.
	nobody := lease.Owner{Node: "nobody", Session: string(m.node.UID) + "/boot", Now: time.Now()}
	request := func(third byte) lease.Request {
		return lease.Request{
			Pool: "raw", Addr: netip.AddrFrom4([4]byte{10, 69, third, byte(n + 1)}), Parent: m.parent,
			Holder: v1alpha1.Holder{
				Namespace: "shop", Pod: "pod-1", PodUID: string(m.node.UID),
				ContainerID: "pod-1", Interface: "eth0", MAC: "02:00:00:00:00:01", Guarded: true,
			},
		}
	}
	leaseOf := func(r lease.Request, spec v1alpha1.IPLeaseSpec) *v1alpha1.IPLease {
		return &v1alpha1.IPLease{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.LeaseName("", r.Addr)}, Spec: spec}
	}
	timed := func(took *[]time.Duration, write func() error) {
		<-pace
		start := time.Now()
		check(m.t, write())
		*took = append(*took, time.Since(start))
	}

	bound := request(0)
	l := leaseOf(bound, lease.Bind(bound, nobody))
	timed(&took.creates, func() error { return m.Create(m.t.Context(), l) })
	bind := func(warm lease.Request, took *[]time.Duration, prepare func(*v1alpha1.IPLease)) {
		l := leaseOf(warm, lease.Warm(warm, nobody))
		check(m.t, m.Create(m.t.Context(), l))
		var err error
		l.Spec, err = lease.BindWarm(warm, nobody)(l.Spec)
		check(m.t, err)
		prepare(l)
		timed(took, func() error { return m.Update(m.t.Context(), l) })
	}
	bind(request(1), &took.updates, func(*v1alpha1.IPLease) {})
	bind(request(2), &took.untracked, (*v1alpha1.IPLease).EndTracking)
}

// latencyTable compares ADDs with what a client pays for the same write.
func latencyTable(raw rawTimes, adds []addTimes) string {
	var table strings.Builder
	slices.Sort(raw.creates)
	slices.Sort(raw.updates)
	fmt.Fprintf(&table, "in turns, %s apart; × is the ratio to the raw write\n", addPace)
	fmt.Fprintf(&table, "%-26s %4s %9s %8s %8s %9s %8s %8s %9s   %s\n", "", "n",
		"p50", "× create", "× update", "p99", "× create", "× update", "slowest", "an ADD waits for")
	row := func(name string, took []time.Duration, waits string) {
		slices.Sort(took)
		fmt.Fprintf(&table, "%-26s %4d", name, len(took))
		for _, p := range []int{50, 99} {
			d := percentile(took, p)
			fmt.Fprintf(&table, " %6.1f ms %8.2f %8.2f", d.Seconds()*1000,
				float64(d)/float64(percentile(raw.creates, p)), float64(d)/float64(percentile(raw.updates, p)))
		}
		fmt.Fprintf(&table, " %6.1f ms   %s\n", took[len(took)-1].Seconds()*1000, waits)
	}
	row("raw create, Bound", raw.creates, "")
	row("raw update, Warm to Bound", raw.updates, "")
	row("    and no fields tracked", raw.untracked, "")
	for i, p := range addPools {
		row(fmt.Sprintf("ADD, pool %s", p.name), adds[i].agent, p.waits)
		row("    and over the socket", adds[i].plugin, "")
	}
	return table.String()
}

// percentile is the nearest rank in sorted durations.
func percentile(sorted []time.Duration, p int) time.Duration {
	return sorted[(len(sorted)*p+99)/100-1]
}

// logToFile keeps the agent's log out of the figures; it writes to stderr. A
// failed test prints it.
func logToFile(t *testing.T) {
	t.Helper()
	file, err := os.Create(filepath.Join(t.TempDir(), "agent.log"))
	check(t, err)
	stderr := os.Stderr
	os.Stderr = file
	t.Cleanup(func() {
		os.Stderr = stderr
		if t.Failed() {
			_, err := file.Seek(0, io.SeekStart)
			check(t, err)
			_, err = io.Copy(stderr, file)
			check(t, err)
		}
		check(t, file.Close())
	})
}
