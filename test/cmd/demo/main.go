// SPDX-License-Identifier: Apache-2.0

// Demo shows on a real cluster what Fenceline promises, and closes with "N passed, N failed".
//
//	demo [-version V] [NAME...]    start a cluster, install Fenceline, play scenarios, remove the cluster
//	demo -on PREFIX [NAME...]      play scenarios on a cluster that is up
//
// Without names it plays the scenarios that fit into a few minutes.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/fenceline/fenceline/test/cluster"
	"github.com/fenceline/fenceline/test/images"
	"github.com/fenceline/fenceline/test/must"
	"github.com/fenceline/fenceline/test/scenario"
)

func main() {
	version := flag.String("version", images.DefaultVersion, "version of the images and the chart")
	on := flag.String("on", "", "prefix of a cluster that is up, with Fenceline installed")
	bridged := flag.Bool("bridged", false, "pods are ports of bridges, in place of macvlans")
	flag.Parse()
	log.SetLogger(logr.Discard()) // the clients of the scenarios have nothing to tell a viewer
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	err := run(ctx, *version, *on, *bridged, flag.Args())
	if errors.Is(err, errFailed) {
		os.Exit(1)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
		os.Exit(2)
	}
}

func run(ctx context.Context, version, on string, bridged bool, names []string) (err error) {
	defer must.Catch(&err)
	chosen := choose(names)
	s := newShow(os.Stdout)
	if on != "" {
		s.playAll(ctx, must.Value(cluster.Open(on)), chosen)
		return s.verdict()
	}
	return s.playFromNothing(ctx, version, bridged, chosen)
}

// errFailed reports that a promise was broken. The counts have been printed by then.
var errFailed = errors.New("a promise was broken")

// prefix names the demo's own cluster.
const prefix = "fldemo"

// programme names the scenarios that fit into a few minutes.
var programme = []string{"whole", "conflict", "zombie", "stuck"}

// choose finds scenarios by their names.
func choose(names []string) []scenario.Scenario {
	if len(names) == 0 {
		names = programme
	}
	all := scenario.All()
	var chosen []scenario.Scenario
	for _, name := range names {
		i := slices.IndexFunc(all, func(s scenario.Scenario) bool { return s.Name == name })
		must.That(i >= 0, "no scenario %q; there are %s", name, list(all))
		chosen = append(chosen, all[i])
	}
	return chosen
}

func list(all []scenario.Scenario) string {
	var names []string
	for _, s := range all {
		names = append(names, s.Name)
	}
	return strings.Join(names, ", ")
}

// show is one run of the demo.
type show struct {
	out            io.Writer
	story          *scenario.Story
	passed, failed int
}

func newShow(out io.Writer) *show { return &show{out: out, story: scenario.NewStory(out)} }

// playFromNothing starts a cluster, installs Fenceline, plays the scenarios and removes the cluster.
func (s *show) playFromNothing(ctx context.Context, version string, bridged bool, chosen []scenario.Scenario) error {
	s.heading("Start a cluster of three nodes on this machine: each node is a set of namespaces with a real kubelet and containerd")
	options := cluster.Whole()
	options.Bridged = bridged
	options.Prefix, options.Management, options.Progress = prefix, netip.MustParsePrefix("172.30.3.0/24"), progress{s.story}
	c, err := cluster.Up(ctx, options)
	if err != nil {
		s.result(err)
		return s.verdict()
	}
	s.heading("Build and install Fenceline")
	installed := s.install(ctx, c, version)
	s.result(installed)
	if installed == nil {
		s.playAll(ctx, c, chosen)
	}
	s.heading("Remove the cluster")
	if err := c.Down(context.WithoutCancel(ctx)); err != nil {
		s.result(err)
	}
	return s.verdict()
}

// install follows the README.
func (s *show) install(ctx context.Context, c *cluster.Cluster, version string) (err error) {
	defer must.Catch(&err)
	s.story.Say("helm upgrade --install fenceline charts/fenceline --namespace %s --create-namespace --wait", cluster.FencelineNamespace)
	started := time.Now()
	must.OK(c.InstallFenceline(ctx, version))
	must.OK(c.WaitReady(ctx))
	s.story.Say("Installed in %s. All nodes are Ready, with Fenceline as their only network.", time.Since(started).Round(time.Second))
	output := must.Value(c.Kubectl(ctx, "get", "nodes,pods", "--all-namespaces", "--output=wide"))
	s.story.Show("kubectl get nodes,pods --all-namespaces --output=wide", output)
	return nil
}

func (s *show) playAll(ctx context.Context, c *cluster.Cluster, chosen []scenario.Scenario) {
	stage, err := scenario.Open(c)
	if err != nil {
		s.result(err)
		return
	}
	for _, play := range chosen {
		s.heading(play.Promise)
		s.result(play.Play(ctx, stage, s.story, func(ctx context.Context) { s.dump(ctx, stage, play.Name) }))
	}
}

// result counts and prints the result of one scenario or step.
func (s *show) result(err error) {
	if err != nil {
		s.failed++
		fmt.Fprintf(s.out, "FAILED: %v\n", err)
		return
	}
	s.passed++
	fmt.Fprintln(s.out, "PASSED")
}

// verdict prints the last line.
func (s *show) verdict() error {
	fmt.Fprintf(s.out, "\n%d passed, %d failed\n", s.passed, s.failed)
	if s.failed > 0 {
		return errFailed
	}
	return nil
}

// dump saves diagnostics that may explain a failure.
func (s *show) dump(ctx context.Context, stage *scenario.Stage, name string) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	dir := filepath.Join("test-results", name)
	if err := stage.Dump(ctx, dir); err != nil {
		s.story.Say("Some diagnostics are missing: %v", err)
	}
	s.story.Say("Logs, leases and events are in %s.", dir)
}

func (s *show) heading(text string) {
	fmt.Fprintf(s.out, "\n%s\n%s\n", text, strings.Repeat("-", len(text)))
}

// progress prints each line of the set-up as a sentence of the story.
type progress struct{ story *scenario.Story }

func (p progress) Write(text []byte) (int, error) {
	for line := range strings.Lines(string(text)) {
		p.story.Say("%s", strings.TrimSpace(line))
	}
	return len(text), nil
}
