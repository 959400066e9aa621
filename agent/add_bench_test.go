// SPDX-License-Identifier: Apache-2.0

//go:build bench && kernel

package main

import (
	"fmt"
	"io"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/fenceline/fenceline/agent/lease"
	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/cni/agentapi"
	"github.com/fenceline/fenceline/test/check"
	"github.com/fenceline/fenceline/test/figure"
)

// addPause is between the end of an ADD and the next, as with a node's pods usually. The tail of one,
// above all the move of its guard, is over before the next.
const addPause = 200 * time.Millisecond

// addShifts is how often pods come, and go together, so that percentiles stand
// on some hundred ADDs of a node that has no more pods than a kubelet allows.
const addShifts = 4

// addPools differ in what an ADD waits for. Off leaves out more than the probe;
// what the probe alone costs is between Off and Observe. adds are those of a
// shift; with the first of each, which are not measured, they are 110 pods.
var addPools = []struct {
	name  string
	mode  v1alpha1.ConflictMode
	warm  int64
	adds  int
	waits string
}{
	{"off", v1alpha1.ModeOff, 0, 50, "the create, on demand"},
	{"warm", v1alpha1.ModeEnforce, 64, 50, "the update of a Warm lease (default mode)"},
	{"observe", v1alpha1.ModeObserve, 0, 3, "the create and the probe, 3 × 50 ms"},
	{"enforce", v1alpha1.ModeEnforce, 0, 3, "the create, the probe and the claim, 30 ms (default mode)"},
}

// How long an ADD takes: in the agent, as its metric counts it, and with the way over the socket and
// back. The whole agent, a real API server and kernel, and macvlan interfaces take part. The same
// writes of a client that does nothing else take turns with the ADDs, so that the ratios stand whatever
// the machine. The plugin's own start is measured by TestTimeOfTheProcess.
func TestLatencyOfADD(t *testing.T) {
	logToFile(t)
	b := &addBench{machine: start(t), pause: addPause / time.Duration(figure.Size(1, 10)), raw: netip.MustParseAddr("10.69.0.0"), adds: make([]addTimes, len(addPools))}
	for i := range addPools {
		b.addPool(i)
	}
	for i := range figure.Size(addShifts, 1) {
		if !t.Run(fmt.Sprintf("shift %d", i+1), b.shift) {
			return
		}
	}
	t.Log("medians of the steps\n" + b.stepTable())
	t.Log("all\n" + b.table(func(sample) bool { return true }))
	t.Log("without those during which the host took CPU time away from this machine\n" + b.table(func(s sample) bool { return !s.stolen }))
	b.report()
	b.reserved()
}

// reserved compares ADDs beside many reservations for somebody with those before, each by the creates of its time.
func (b *addBench) reserved() {
	median := func(all []sample) float64 {
		var took []time.Duration
		for _, s := range all {
			took = append(took, s.took)
		}
		return float64(figure.Median(took))
	}
	before := median(b.adds[0].agent) / median(b.creates)
	b.reserve(figure.Size(5000, 50))
	b.adds, b.rawTimes = make([]addTimes, len(addPools)), rawTimes{}
	if b.t.Run("shift beside reservations", b.shift) {
		figure.Report(b.t, "ADD in mode Off beside 5 000 reservations for somebody, p50", median(b.adds[0].agent)/median(b.creates)/before, "× without", figure.AtMost(1.1))
	}
}

// report compares the ADDs of the agent with the writes that they contain.
func (b *addBench) report() {
	b.t.Helper()
	all := func(samples []sample) (took []time.Duration) {
		for _, s := range samples {
			took = append(took, s.took)
		}
		return took
	}
	ratio := func(adds, writes []sample, percent int) float64 {
		return float64(figure.Percentile(all(adds), percent)) / float64(figure.Percentile(all(writes), percent))
	}
	off, warm, enforce := b.adds[0].agent, b.adds[1].agent, b.adds[3].agent
	figure.Report(b.t, "ADD in mode Off, on demand, p50", ratio(off, b.creates, 50), "× raw create", figure.AtMost(1.2))
	figure.Report(b.t, "ADD in mode Off, on demand, p99", ratio(off, b.creates, 99), "× raw create", figure.AtMost(1.4))
	figure.Report(b.t, "ADD from a Warm lease, p50", ratio(warm, b.updates, 50), "× raw update", figure.AtMost(1.3))
	figure.Report(b.t, "ADD from a Warm lease, p99", ratio(warm, b.updates, 99), "× raw update", figure.AtMost(1.5))
	figure.Report(b.t, "ADD in mode Enforce, on demand, p50", figure.Milliseconds(figure.Median(all(enforce))), "ms", figure.AtMost(200))
}

// addBench is a machine whose ADDs take turns with raw writes.
type addBench struct {
	*machine
	pause time.Duration
	// raw is the address of the last raw lease.
	raw netip.Addr
	// spent is how long all ADDs together have taken the agent, and the steps of all ADDs, by name.
	spent map[string]time.Duration
	// adds are of each pool.
	adds []addTimes
	rawTimes
}

// sample is how long something took, and whether the host of this machine took
// CPU time away from it meanwhile, which nothing here can help.
type sample struct {
	took   time.Duration
	stolen bool
}

// addTimes are ADDs, as the plugin sees them and as the agent does, and their steps.
type addTimes struct {
	plugin, agent []sample
	steps         map[string][]time.Duration
}

// rawTimes are raw writes: creates, and updates with and without the API
// server's tracking of fields, which an ADD ends.
type rawTimes struct{ creates, updates, untracked []sample }

// shift lets pods come one after the other, and go at its end.
func (b *addBench) shift(t *testing.T) {
	whole := b.t
	b.t = t
	defer func() { b.t = whole }()
	requests := make([][]agentapi.AddRequest, len(addPools))
	for i, p := range addPools {
		for range figure.Size(p.adds, 2) + 1 {
			r := b.sandbox()
			r.Network.DefaultIPv4IPPool = []string{p.name}
			requests[i] = append(requests[i], r)
		}
	}
	// The first of each is not measured: connections open, and the API server takes
	// seconds for the first create of a kind.
	b.rawWrites(new(rawTimes))
	for i, p := range addPools {
		b.eventually("the agent serves pool "+p.name, 20*time.Second, func() bool {
			_, err := b.agent.Add(t.Context(), requests[i][0])
			return err == nil
		})
		if p.warm > 0 {
			b.eventually("the addresses are ready", 3*time.Minute, func() bool { return gauge(t, p.name, "ready") == float64(stock(p.warm)) })
		}
	}
	b.spent = b.timeInADDs()
	for n := 1; ; n++ {
		left := false
		for i := range addPools {
			if n >= len(requests[i]) {
				continue
			}
			left = true
			b.timedAdd(requests[i][n], &b.adds[i])
		}
		if !left {
			break
		}
		b.rawWrites(&b.rawTimes)
	}
	for _, r := range slices.Concat(requests...) {
		check.OK(t, b.agent.Del(t.Context(), agentapi.DelRequest{Attachment: r.Attachment, NetNS: r.NetNS, Pod: r.Pod, Network: r.Network}))
	}
	check.OK(t, b.DeleteAllOf(t.Context(), &corev1.Pod{}, client.InNamespace("shop"), client.GracePeriodSeconds(0)))
}

// addPool makes a pool of a subnet of its own that has room for all ADDs.
func (m *machine) addPool(i int) {
	m.t.Helper()
	p := addPools[i]
	warm := stock(p.warm)
	pool := &v1alpha1.IPPool{
		ObjectMeta: metav1.ObjectMeta{Name: p.name},
		Spec: v1alpha1.IPPoolSpec{
			Subnet:            fmt.Sprintf("10.%d.0.0/22", 70+i),
			ConflictDetection: &v1alpha1.ConflictDetection{Mode: p.mode},
			Warm:              &warm,
		},
	}
	check.OK(m.t, m.Create(m.t.Context(), pool))
	// As the controller would.
	pool.Status.Agents, pool.Status.Served, pool.Status.Shares = 1, 1, 1
	pool.Status.Total, pool.Status.Free = 1021, 1021
	check.OK(m.t, m.Status().Update(m.t.Context(), pool))
}

// stock is how many addresses of a pool are ready.
func stock(full int64) int64 { return min(full, int64(figure.Size(64, 4))) }

// timed does something after the pause.
func (b *addBench) timed(do func() error) sample {
	b.t.Helper()
	<-time.After(b.pause)
	stolen := stolenTime(b.t)
	start := time.Now()
	err := do()
	took := time.Since(start)
	check.OK(b.t, err)
	return sample{took, stolenTime(b.t) != stolen}
}

func (b *addBench) timedAdd(r agentapi.AddRequest, took *addTimes) {
	b.t.Helper()
	plugin := b.timed(func() error {
		_, err := b.agent.Add(b.t.Context(), r)
		return err
	})
	spent := b.timeInADDs()
	took.plugin = append(took.plugin, plugin)
	took.agent = append(took.agent, sample{spent[wholeADD] - b.spent[wholeADD], plugin.stolen})
	if took.steps == nil {
		took.steps = map[string][]time.Duration{}
	}
	for step := range spent {
		took.steps[step] = append(took.steps[step], spent[step]-b.spent[step])
	}
	b.spent = spent
}

// stepTable has a row for each step of an ADD.
func (b *addBench) stepTable() string {
	var table strings.Builder
	for _, p := range addPools {
		fmt.Fprintf(&table, "%12s", p.name)
	}
	for _, step := range slices.Sorted(maps.Keys(b.adds[0].steps)) {
		fmt.Fprintln(&table)
		for i := range addPools {
			fmt.Fprintf(&table, " %8.2f ms", figure.Milliseconds(figure.Median(b.adds[i].steps[step])))
		}
		fmt.Fprint(&table, "  ", step)
	}
	return table.String()
}

// stolenTime is how much CPU time the host has taken from this machine since
// its start, in ticks (proc_stat(5), "steal").
func stolenTime(t *testing.T) string {
	t.Helper()
	text := check.Value(os.ReadFile("/proc/stat"))(t)
	// cpu user nice system idle iowait irq softirq steal
	return strings.Fields(string(text))[8]
}

// wholeADD is the name of a whole ADD among its steps.
const wholeADD = "ADD"

// timeInADDs is how long all ADDs together have taken the agent, and the steps of all ADDs, by name.
func (m *machine) timeInADDs() map[string]time.Duration {
	m.t.Helper()
	spent := map[string]time.Duration{}
	for _, f := range check.Value(ctrlmetrics.Registry.Gather())(m.t) {
		if name := f.GetName(); name != "fenceline_cni_duration_seconds" && name != "fenceline_add_step_seconds" {
			continue
		}
		for _, metric := range f.GetMetric() {
			for _, l := range metric.GetLabel() {
				if l.GetName() == "step" || l.GetValue() == wholeADD {
					sum := metric.GetHistogram().GetSampleSum() + metric.GetSummary().GetSampleSum()
					spent[l.GetValue()] += time.Duration(sum * float64(time.Second))
				}
			}
		}
	}
	return spent
}

// rawWrites are the writes of ADDs, by a client that does nothing else: one creates a lease, the others
// bind a Warm one. Each finds machine and API server as much at rest as an ADD does.
func (b *addBench) rawWrites(took *rawTimes) {
	b.t.Helper()
	// Of no node: the agent would take them for some that it has lost.
	nobody := lease.Owner{Node: "nobody", Session: string(b.node.UID) + "/boot", Now: time.Now()}
	request := func() lease.Request {
		b.raw = b.raw.Next()
		return lease.Request{
			Pool: "raw", Addr: b.raw, Parent: b.parent,
			Holder: v1alpha1.Holder{
				Namespace: "shop", Pod: "pod-1", PodUID: string(b.node.UID),
				ContainerID: "pod-1", Interface: "eth0", MAC: "02:00:00:00:00:01", Guarded: true,
			},
		}
	}
	leaseOf := func(r lease.Request, spec v1alpha1.IPLeaseSpec) *v1alpha1.IPLease {
		return &v1alpha1.IPLease{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.LeaseName("", r.Addr)}, Spec: spec}
	}
	bound := request()
	l := leaseOf(bound, lease.Bind(bound, nobody))
	took.creates = append(took.creates, b.timed(func() error { return b.Create(b.t.Context(), l) }))
	bind := func(warm lease.Request, prepare func(*v1alpha1.IPLease)) sample {
		l := leaseOf(warm, lease.Warm(warm, nobody))
		check.OK(b.t, b.Create(b.t.Context(), l))
		l.Spec = check.Value(lease.BindWarm(warm)(l.Spec, nobody))(b.t)
		prepare(l)
		return b.timed(func() error { return b.Update(b.t.Context(), l) })
	}
	took.updates = append(took.updates, bind(request(), func(*v1alpha1.IPLease) {}))
	took.untracked = append(took.untracked, bind(request(), (*v1alpha1.IPLease).EndTracking))
}

// table compares ADDs with what a client pays for the same write, of the samples that count.
func (b *addBench) table(counts func(sample) bool) string {
	var table strings.Builder
	sorted := func(samples []sample) (all []time.Duration) {
		for _, s := range samples {
			if counts(s) {
				all = append(all, s.took)
			}
		}
		slices.Sort(all)
		return all
	}
	creates, updates := sorted(b.creates), sorted(b.updates)
	fmt.Fprintf(&table, "in turns, %s apart; × is the ratio to the raw write\n", addPause)
	fmt.Fprintf(&table, "%-26s %4s %9s %8s %8s %9s %8s %8s %9s   %s\n", "", "n",
		"p50", "× create", "× update", "p99", "× create", "× update", "slowest", "an ADD waits for")
	row := func(name string, samples []sample, waits string) {
		took := sorted(samples)
		fmt.Fprintf(&table, "%-26s %4d", name, len(took))
		for _, p := range []int{50, 99} {
			d := figure.Percentile(took, p)
			fmt.Fprintf(&table, " %6.1f ms %8.2f %8.2f", d.Seconds()*1000,
				float64(d)/float64(figure.Percentile(creates, p)), float64(d)/float64(figure.Percentile(updates, p)))
		}
		fmt.Fprintf(&table, " %6.1f ms   %s\n", took[len(took)-1].Seconds()*1000, waits)
	}
	row("raw create, Bound", b.creates, "")
	row("raw update, Warm to Bound", b.updates, "")
	row("    and no fields tracked", b.untracked, "")
	for i, p := range addPools {
		row(fmt.Sprintf("ADD, pool %s", p.name), b.adds[i].agent, p.waits)
		row("    and over the socket", b.adds[i].plugin, "")
	}
	return table.String()
}

// logToFile keeps the agent's log out of the figures; it writes to stderr. A failed test prints it.
func logToFile(t *testing.T) {
	t.Helper()
	file := check.Value(os.Create(filepath.Join(t.TempDir(), "agent.log")))(t)
	stderr := os.Stderr
	os.Stderr = file
	t.Cleanup(func() {
		os.Stderr = stderr
		if t.Failed() {
			_, err := file.Seek(0, io.SeekStart)
			check.OK(t, err)
			_, err = io.Copy(stderr, file)
			check.OK(t, err)
		}
		check.OK(t, file.Close())
	})
}
