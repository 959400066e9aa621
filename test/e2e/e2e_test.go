// SPDX-License-Identifier: Apache-2.0

//go:build cluster

package e2e

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/fenceline/fenceline/test/check"
	"github.com/fenceline/fenceline/test/cluster"
	"github.com/fenceline/fenceline/test/images"
	"github.com/fenceline/fenceline/test/programs"
	"github.com/fenceline/fenceline/test/scenario"
	"github.com/fenceline/fenceline/test/thirdparty"
)

const (
	// clusters play at the same time: a scenario waits for more than half of its time, for kubelets mostly.
	clusters = 2
	// playLimit is more than any scenario takes on a busy machine.
	playLimit = 10 * time.Minute
	// tail is how much of each file of a dump is printed.
	tail = 3000
)

// TestScenarios plays them in the order of the story, each on the cluster that is ready for one: it
// leaves the cluster as it found it. Meanwhile a cluster without IPv4 has its turn.
func TestScenarios(t *testing.T) {
	all := slices.DeleteFunc(scenario.All(), func(s scenario.Scenario) bool { return s.ByHand })
	next := make(chan scenario.Scenario, len(all))
	for _, s := range all {
		next <- s
	}
	close(next)
	// Both clusters have the same programs.
	check.OK(t, programs.Share(t.Context(), t.TempDir(), "test/cmd/app", "test/cmd/machine", "agent", "cni", "controller"))
	before := takeInventory(t)
	t.Cleanup(func() { // runs last
		before.compare(t, takeInventory(t))
		inventory{}.compare(t, remains(t))
	})
	var playing errgroup.Group
	for number := range clusters {
		playing.Go(func() error {
			if number == 0 {
				t.Run("without-IPv4", playWithoutIPv4)
			}
			return on(t, number, cluster.Whole(), func(stage *scenario.Stage) {
				for s := range next {
					t.Run(s.Name, func(t *testing.T) { play(t, s, stage) })
				}
			})
		})
	}
	check.Is(t, playing.Wait(), nil, "got")
	check.That(t, len(next) == 0, "%d scenarios were not played", len(next))
}

// playWithoutIPv4 plays the scenario of a whole pod on a cluster without IPv4, behind a switch with MLD snooping.
func playWithoutIPv4(t *testing.T) {
	options := cluster.Options{KubeProxy: cluster.Nftables, IPv6Only: true, Snooping: true, Gateways: cluster.Gateways()[1:]}
	all := scenario.All()
	whole := slices.IndexFunc(all, func(s scenario.Scenario) bool { return s.Name == "whole" })
	check.OK(t, on(t, clusters, options, func(stage *scenario.Stage) { play(t, all[whole], stage) }))
}

func play(t *testing.T, s scenario.Scenario, stage *scenario.Stage) {
	ctx, cancel := context.WithTimeout(t.Context(), playLimit)
	defer cancel()
	t.Logf("%s, on cluster %s", s.Promise, stage.Options.Prefix)
	err := s.Play(ctx, stage, scenario.NewStory(t.Output()), func(ctx context.Context) { dump(ctx, t, stage, filepath.Base(t.Name())) })
	check.That(t, err == nil, "%v", err)
}

// on starts a cluster with Fenceline, plays on it, and ends it.
func on(t *testing.T, number int, options cluster.Options, play func(*scenario.Stage)) error {
	ctx, prefix := t.Context(), fmt.Sprintf("fle2e%d", number)
	options.Prefix, options.Progress = prefix, t.Output()
	options.Management = netip.PrefixFrom(netip.AddrFrom4([4]byte{172, 30, byte(2 + number), 0}), 24)
	c, err := cluster.Up(ctx, options)
	if err != nil {
		return err
	}
	defer func() { check.Is(t, c.Down(context.Background()), nil, "got") }()
	if err := opensAgain(ctx, c); err != nil {
		return err
	}
	stage, err := scenario.Open(c)
	if err != nil {
		return err
	}
	if err := errors.Join(c.InstallFenceline(ctx, images.DefaultVersion), c.WaitReady(ctx)); err != nil {
		dump(ctx, t, stage, prefix)
		return fmt.Errorf("install Fenceline on cluster %s: %w", prefix, err)
	}
	play(stage)
	return nil
}

// opensAgain finds the cluster by its prefix alone, as another process does.
func opensAgain(ctx context.Context, c *cluster.Cluster) error {
	other, err := cluster.Open(c.Options.Prefix)
	if err != nil {
		return err
	}
	name, err := other.Node(2).Exec(ctx, "hostname")
	if err == nil && strings.TrimSpace(name) != other.Node(2).Name() {
		err = fmt.Errorf("the host name of node 2 is %q", name)
	}
	return err
}

// dump writes down what may explain a failure, and prints the end of it.
func dump(ctx context.Context, t *testing.T, stage *scenario.Stage, name string) {
	t.Helper()
	dir := filepath.Join(check.Value(thirdparty.Root())(t), "test-results", name)
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	if err := stage.Dump(ctx, dir); err != nil {
		t.Logf("the dump is not complete: %v", err)
	}
	files, _ := filepath.Glob(filepath.Join(dir, "*"))
	for _, file := range files {
		content, err := os.ReadFile(file)
		fmt.Fprintf(t.Output(), "--- the end of %s (%v)\n%s\n", file, err, content[max(0, len(content)-tail):])
	}
}

// inventory is the part of this machine that clusters could change.
type inventory map[string][]string

func takeInventory(t *testing.T) inventory {
	t.Helper()
	inv := inventory{"BPF pin": check.Value(filepath.Glob("/sys/fs/bpf/*"))(t)}
	for _, name := range []string{"vm/overcommit_memory", "vm/panic_on_oom", "kernel/panic", "kernel/panic_on_oops", "kernel/keys/root_maxkeys", "net/ipv4/ip_forward"} {
		data, err := os.ReadFile(filepath.Join("/proc/sys", name))
		check.Must(t, err == nil || os.IsNotExist(err), "%v", err)
		inv["value of "+name] = []string{strings.TrimSpace(string(data))}
	}
	return inv
}

// remains returns the parts of clusters that are on this machine. A run that was killed leaves some,
// and the next cluster of the same name removes them.
func remains(t *testing.T) inventory {
	t.Helper()
	mounts := strings.Split(string(check.Value(os.ReadFile("/proc/self/mounts"))(t)), "\n")
	mounts = slices.DeleteFunc(mounts, func(line string) bool { return !strings.Contains(line, "fle2e") })
	inv := inventory{"mount": mounts, "process": processesWith(t, "clusters/fle2e")}
	for what, pattern := range map[string]string{
		"network namespace": "/run/netns/fle2e*",
		"cgroup":            "/sys/fs/cgroup/*/fle2e*",
		"unified cgroup":    "/sys/fs/cgroup/fle2e*",
		"link":              "/sys/class/net/fle2e*",
	} {
		inv[what] = check.Value(filepath.Glob(pattern))(t)
	}
	return inv
}

func (before inventory) compare(t *testing.T, after inventory) {
	t.Helper()
	for what, now := range after {
		check.That(t, slices.Equal(before[what], now), "%s: before %v, now %v", what, before[what], now)
	}
}

// processesWith returns the command lines that name a cluster's directory, or whose mount namespace shows it.
func processesWith(t *testing.T, part string) []string {
	t.Helper()
	files := check.Value(filepath.Glob("/proc/[0-9]*/cmdline"))(t)
	var found []string
	for _, file := range files {
		args, err := os.ReadFile(file)
		if err != nil {
			continue // ended meanwhile
		}
		mounts, err := os.ReadFile(filepath.Join(filepath.Dir(file), "mounts"))
		if err != nil {
			continue
		}
		if strings.Contains(string(args), part) || strings.Contains(string(mounts), part) {
			found = append(found, strings.ReplaceAll(string(args), "\x00", " "))
		}
	}
	return found
}
