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

	"github.com/fenceline/fenceline/agent/lease"
	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/cni/agentapi"
)

// addsPerPool is how many ADDs each pool serves. All pods stay, so that the node
// ends with 120 of them, a little more than a kubelet runs by default.
const addsPerPool = 40

// addPools differ in what an ADD waits for. Off leaves out more than the probe;
// what the probe alone costs is between Off and Observe.
var addPools = []struct {
	mode  v1alpha1.ConflictMode
	waits string
}{
	{v1alpha1.ModeOff, "neither probe nor claim"},
	{v1alpha1.ModeObserve, "the probe, 3 × 50 ms, without a claim"},
	{v1alpha1.ModeEnforce, "the probe, 3 × 50 ms, and the claim, 30 ms (default)"},
}

// How long an ADD takes, from the plugin's request on the socket to its answer:
// the whole agent, a real API server and kernel, macvlan interfaces. Creates of
// equal leases by the same API server take turns with the ADDs, so that the
// ratios stand whatever the machine. The plugin's own start is measured
// by BenchmarkExec.
func TestLatencyOfADD(t *testing.T) {
	logToFile(t)
	m := start(t)
	requests := make([][]agentapi.AddRequest, len(addPools))
	for i, p := range addPools {
		m.addPool(i, p.mode)
		for range addsPerPool + 1 {
			r := m.sandbox()
			r.Network.DefaultIPv4IPPool = []string{addPoolName(p.mode)}
			requests[i] = append(requests[i], r)
		}
	}

	// The first of each is not measured: connections open, and the API server
	// takes seconds for the first create of a kind.
	raw := []time.Duration{m.rawCreate(0)}
	adds := make([][]time.Duration, len(addPools))
	for i, p := range addPools {
		m.eventually("the agent serves pool "+addPoolName(p.mode), 10*time.Second, func() bool {
			_, err := m.agent.Add(t.Context(), requests[i][0])
			return err == nil
		})
	}
	raw = raw[:0]
	for n := 1; n <= addsPerPool; n++ {
		raw = append(raw, m.rawCreate(n))
		for i := range addPools {
			adds[i] = append(adds[i], m.timedAdd(requests[i][n]))
		}
	}
	t.Log(latencyTable(raw, adds))
}

func addPoolName(mode v1alpha1.ConflictMode) string { return "add-" + strings.ToLower(string(mode)) }

// addPool makes a pool of a subnet of its own that has room for all ADDs.
func (m *machine) addPool(i int, mode v1alpha1.ConflictMode) {
	m.t.Helper()
	pool := &v1alpha1.IPPool{
		ObjectMeta: metav1.ObjectMeta{Name: addPoolName(mode)},
		Spec: v1alpha1.IPPoolSpec{
			Subnet:            fmt.Sprintf("10.%d.0.0/24", 70+i),
			ConflictDetection: &v1alpha1.ConflictDetection{Mode: mode},
		},
	}
	check(m.t, m.Create(m.t.Context(), pool))
}

func (m *machine) timedAdd(r agentapi.AddRequest) time.Duration {
	m.t.Helper()
	start := time.Now()
	_, err := m.agent.Add(m.t.Context(), r)
	took := time.Since(start)
	check(m.t, err)
	return took
}

// rawCreate creates a lease as large as that of an ADD.
func (m *machine) rawCreate(i int) time.Duration {
	m.t.Helper()
	addr := netip.AddrFrom4([4]byte{10, 69, 0, byte(i + 1)})
	l := &v1alpha1.IPLease{
		ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.LeaseName("", addr)},
		Spec: lease.Bind(
			lease.Request{Pool: "raw", Addr: addr, Parent: m.parent, Holder: v1alpha1.Holder{
				Namespace: "shop", Pod: "pod-1", PodUID: string(m.node.UID),
				ContainerID: "pod-1", Interface: "eth0", MAC: "02:00:00:00:00:01", Guarded: true,
			}},
			// Of no node: the agent would take it for one that it has lost.
			lease.Owner{Node: "nobody", Session: string(m.node.UID) + "/boot", Now: time.Now()}),
	}
	start := time.Now()
	err := m.Create(m.t.Context(), l)
	took := time.Since(start)
	check(m.t, err)
	return took
}

func latencyTable(raw []time.Duration, adds [][]time.Duration) string {
	var table strings.Builder
	fmt.Fprintf(&table, "%d of each, in turns; the slowest stands for p99; × is the ratio to raw\n", addsPerPool)
	fmt.Fprintf(&table, "%-22s %9s %7s %9s %7s   %s\n", "", "p50", "×", "p99", "×", "an ADD waits for")
	slices.Sort(raw)
	row := func(name string, took []time.Duration, waits string) {
		slices.Sort(took)
		fmt.Fprintf(&table, "%-22s", name)
		for _, p := range []int{50, 99} {
			d := percentile(took, p)
			fmt.Fprintf(&table, " %6.1f ms %7.1f", d.Seconds()*1000, float64(d)/float64(percentile(raw, p)))
		}
		fmt.Fprintf(&table, "   %s\n", waits)
	}
	row("raw create of a lease", raw, "")
	for i, p := range addPools {
		row("ADD in mode "+string(p.mode), adds[i], p.waits)
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
