// SPDX-License-Identifier: Apache-2.0

//go:build bench && kernel

package main

import (
	"bufio"
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/cni/agentapi"
	"github.com/fenceline/fenceline/internal/poolset"
	"github.com/fenceline/fenceline/test/check"
	"github.com/fenceline/fenceline/test/figure"
)

const (
	pooled      = 10_000
	poolsOfNode = 5
	foreignNode = "n2"
	memoryCalls = 32
)

// crowd is the size of the benchmark.
type crowd struct {
	own, foreign int // pods
	reserved     int // reservations for somebody, of one address each
}

// What an agent's process needs with a full node's pods and 10 000 addresses in
// its pools, and what it needs more when other nodes have 20 000 pods with
// leases in the same pools: nothing, its caches hold its own node's. The goals are for transparent
// huge pages at madvise, as most kernels have it. With always, an idle agent takes 28 MB, not 21.
func TestMemoryOfTheAgent(t *testing.T) {
	binary := filepath.Join(t.TempDir(), "agent")
	build := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-ldflags=-s -w", "-o", binary, ".")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	out, err := build.CombinedOutput()
	t.Log(string(out))
	check.OK(t, err)
	ctrl.SetLogger(logr.Discard())
	size := crowd{own: figure.Size(110, 5), foreign: figure.Size(20_000, 50), reserved: figure.Size(5000, 50)}
	var pid atomic.Int64
	m := startAs(t, func(ctx context.Context, s settings) error { return runProcess(ctx, binary, s, &pid) })
	table := []string{fmt.Sprintf("%-64s %9s %9s %9s %9s", "MB, "+(footprintPeriod/2).String()+" after memory was returned", "RSS", "anon", "file", "PSS")}
	row := func(what string) float64 {
		r := m.residentOf(int(pid.Load()))
		table = append(table, fmt.Sprintf("%-64s %9.1f %9.1f %9.1f %9.1f", what, r.rss, r.anon, r.file, r.pss))
		return r.rss
	}
	idle := row("an agent with nothing to do")
	for i := range poolsOfNode {
		pool := &v1alpha1.IPPool{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("many-%d", i)},
			Spec: v1alpha1.IPPoolSpec{
				Subnet: fmt.Sprintf("10.%d.0.0/16", 80+i), IPs: []string{fmt.Sprintf("10.%d.0.1-10.%d.7.208", 80+i, 80+i)},
				ConflictDetection: &v1alpha1.ConflictDetection{Mode: v1alpha1.ModeOff},
			},
		}
		check.OK(t, m.Create(t.Context(), pool))
		// As the controller would: every other address is in use.
		pool.Status.Agents, pool.Status.Served, pool.Status.Shares = 1, 1, 1
		pool.Status.Total, pool.Status.Free = pooled/poolsOfNode, pooled/poolsOfNode/2
		inUse := poolset.Bitmap{}
		for offset := range uint64(pooled / poolsOfNode / 2) {
			inUse = inUse.Mark(1 + 2*offset)
		}
		pool.Status.InUse = poolset.EncodeBitmap(inUse)
		check.OK(t, m.Status().Update(t.Context(), pool))
	}
	for range size.own {
		r := m.sandbox()
		r.Network.DefaultIPv4IPPool = []string{"many-0"}
		m.eventually("an ADD", 20*time.Second, func() bool {
			_, err := m.agent.Add(t.Context(), r)
			return err == nil
		})
	}
	m.awaitReturn(int(pid.Load())) // at rest: pages that only ADDs need go with the next return
	full := row(fmt.Sprintf("%d pods, %d addresses in %d pools", size.own, pooled, poolsOfNode))
	m.foreign(size.foreign)
	m.awaitReturn(int(pid.Load()))
	crowded := row(fmt.Sprintf("and %d pods with leases of another node", size.foreign))
	m.reserve(size.reserved)
	m.awaitReturn(int(pid.Load()))
	reserved := row(fmt.Sprintf("and %d reservations for somebody", size.reserved))
	t.Log("\n" + strings.Join(table, "\n"))
	figure.Report(t, "agent with nothing to do, resident", idle, "MB")
	figure.Report(t, "agent with 110 pods and 10 000 addresses, resident", full, "MB", figure.AtMost(30))
	figure.Report(t, "the same at its peak", memoryFields(t, fmt.Sprintf("/proc/%d/status", pid.Load()))["VmHWM"], "MB")
	figure.Report(t, "growth of the agent by 20 000 pods of other nodes", crowded-full, "MB", figure.AtMost(1))
	figure.Report(t, "growth of the agent by 5 000 reservations for somebody", reserved-crowded, "MB", figure.AtMost(1))
}

// runProcess runs the agent's binary, as the image has it, until ctx ends.
func runProcess(ctx context.Context, binary string, s settings, pid *atomic.Int64) error {
	agent := exec.CommandContext(ctx, binary, "--node-name", s.node, "--namespace", s.namespace, "--pod-name", s.pod,
		"--state-dir", s.stateDir, "--socket", s.socket, "--bpf-dir", s.bpfDir,
		"--metrics-address", s.metrics.Address, "--health-address", s.healthAddress, "--log-level", slog.LevelWarn.String())
	agent.Stderr = os.Stderr
	agent.Cancel = func() error { return agent.Process.Signal(syscall.SIGTERM) }
	if err := agent.Start(); err != nil {
		return err
	}
	pid.Store(int64(agent.Process.Pid))
	if err := agent.Wait(); ctx.Err() == nil {
		return fmt.Errorf("the agent ended: %w", err)
	}
	return nil
}

// foreign makes pods of another node, and leases that they hold.
func (m *machine) foreign(pods int) {
	m.t.Helper()
	group, ctx := errgroup.WithContext(m.t.Context())
	group.SetLimit(memoryCalls)
	for n := range pods {
		group.Go(func() error {
			name := fmt.Sprintf("foreign-%d", n)
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name}, Spec: corev1.PodSpec{
				NodeName: foreignNode, Containers: []corev1.Container{{Name: "c", Image: "none"}},
			}}
			if err := m.Create(ctx, pod); err != nil {
				return err
			}
			addr := fmt.Sprintf("10.%d.%d.%d", 80+n%poolsOfNode, 128+n/poolsOfNode/250, 1+n/poolsOfNode%250)
			return m.Create(ctx, &v1alpha1.IPLease{ObjectMeta: metav1.ObjectMeta{Name: addr}, Spec: v1alpha1.IPLeaseSpec{
				Address: addr, Pool: fmt.Sprintf("many-%d", n%poolsOfNode), Parent: m.parent,
				State: v1alpha1.StateBound, NodeName: foreignNode, Session: "n2/boot",
				Holder: &v1alpha1.Holder{
					Namespace: "shop", Pod: name, PodUID: string(pod.UID), Interface: "eth0", ContainerID: name,
					MAC: "02:00:00:00:00:01", Guarded: true,
				},
			}})
		})
	}
	check.OK(m.t, group.Wait())
	// The agent still hears its own node's: its caches are not behind.
	r := m.sandbox()
	r.Network.DefaultIPv4IPPool = []string{"many-0"}
	check.Value(m.agent.Add(m.t.Context(), r))(m.t)
	check.OK(m.t, m.agent.Del(m.t.Context(), agentapi.DelRequest{Attachment: r.Attachment}))
}

// reserve makes reservations of one address each for pods of StatefulSets. No two are adjacent: the set of them all has
// a range for each.
func (m *machine) reserve(count int) {
	m.t.Helper()
	group, ctx := errgroup.WithContext(m.t.Context())
	group.SetLimit(memoryCalls)
	for n := range count {
		group.Go(func() error {
			return m.Create(ctx, &v1alpha1.ReservedIP{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("kept-%d", n)}, Spec: v1alpha1.ReservedIPSpec{
				IPs: []string{fmt.Sprintf("10.%d.%d.%d", 80+n%poolsOfNode, 64+n/poolsOfNode/125, 1+2*(n/poolsOfNode%125))},
				For: &v1alpha1.ReservedFor{Namespace: "kept", StatefulSet: fmt.Sprintf("set-%d", n)},
			}})
		})
	}
	check.OK(m.t, group.Wait())
}

// resident is the memory of a process in MB.
type resident struct{ rss, anon, file, pss float64 }

// residentOf returns the memory of an agent. In the long form of the benchmark that is half a period after
// the agent returned memory.
func (m *machine) residentOf(pid int) resident {
	m.t.Helper()
	m.awaitReturn(pid)
	if !testing.Short() {
		<-time.After(footprintPeriod / 2)
	}
	return residentNow(m.t, pid)
}

// awaitReturn waits until an agent returns memory, which drops all pages of its executable. The short form
// of the benchmark does not wait.
func (m *machine) awaitReturn(pid int) {
	m.t.Helper()
	if testing.Short() {
		return
	}
	filePages := func() float64 { return memoryFields(m.t, fmt.Sprintf("/proc/%d/status", pid))["RssFile"] }
	last := filePages()
	m.eventually("the agent returns memory", 2*footprintPeriod, func() bool {
		before := last
		last = filePages()
		return last < before-3
	})
}

func residentNow(t *testing.T, pid int) resident {
	t.Helper()
	status := memoryFields(t, fmt.Sprintf("/proc/%d/status", pid))
	rollup := memoryFields(t, fmt.Sprintf("/proc/%d/smaps_rollup", pid))
	return resident{status["VmRSS"], status["RssAnon"], status["RssFile"], rollup["Pss"]}
}

// memoryFields reads the lines "Name:   123 kB" of a file of /proc, in MB.
func memoryFields(t *testing.T, path string) map[string]float64 {
	t.Helper()
	f := check.Value(os.Open(path))(t)
	defer f.Close()
	fields := map[string]float64{}
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		name, rest, _ := strings.Cut(lines.Text(), ":")
		text, ok := strings.CutSuffix(strings.TrimSpace(rest), " kB")
		if kB, err := strconv.ParseFloat(text, 64); ok && err == nil {
			fields[name] = kB / 1000
		}
	}
	check.OK(t, lines.Err())
	return fields
}
