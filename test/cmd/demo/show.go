package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/fenceline/fenceline/test/cluster"
	"github.com/fenceline/fenceline/test/scenario"
)

// errFailed says that the counts tell of a failure; they have been printed.
var errFailed = errors.New("a promise was broken")

// prefix names the demo's own cluster.
const prefix = "fldemo"

// programme is what fits into a few minutes.
var programme = []string{"pods", "conflict", "zombie", "statefulset", "deaf"}

// choose finds scenarios by their names.
func choose(names []string) ([]scenario.Scenario, error) {
	if len(names) == 0 {
		names = programme
	}
	all := scenario.All()
	var chosen []scenario.Scenario
	for _, name := range names {
		i := slices.IndexFunc(all, func(s scenario.Scenario) bool { return s.Name == name })
		if i < 0 {
			return nil, fmt.Errorf("no scenario %q; there are %s", name, list(all))
		}
		chosen = append(chosen, all[i])
	}
	return chosen, nil
}

func list(all []scenario.Scenario) string {
	var names []string
	for _, s := range all {
		names = append(names, s.Name)
	}
	return strings.Join(names, ", ")
}

// show is one performance.
type show struct {
	out            io.Writer
	story          *scenario.Story
	passed, failed int
}

func newShow(out io.Writer) *show { return &show{out: out, story: scenario.NewStory(out)} }

// playFromNothing starts a cluster, installs Fenceline, tells the story, and
// takes the cluster down.
func (s *show) playFromNothing(ctx context.Context, version string, chosen []scenario.Scenario) error {
	s.heading("A cluster of three nodes on this machine, each a set of namespaces with a real kubelet and containerd")
	c, err := cluster.Up(ctx, cluster.Options{
		Prefix: prefix, Management: netip.MustParsePrefix("172.30.3.0/24"), KubeProxy: true, Progress: progress{s.story},
	})
	if err != nil {
		s.result(err)
		return s.verdict()
	}
	s.heading("Fenceline is built and installed")
	installed := s.install(ctx, c, version)
	s.result(installed)
	if installed == nil {
		s.playAll(ctx, c, chosen)
	}
	s.heading("The cluster is taken down")
	if err := c.Down(context.WithoutCancel(ctx)); err != nil {
		s.result(err)
	}
	return s.verdict()
}

// install does what the README says.
func (s *show) install(ctx context.Context, c *cluster.Cluster, version string) error {
	s.story.Say("helm upgrade --install fenceline charts/fenceline --namespace %s --create-namespace --wait", cluster.FencelineNamespace)
	started := time.Now()
	if err := c.InstallFenceline(ctx, version); err != nil {
		return err
	}
	if err := c.WaitReady(ctx); err != nil {
		return err
	}
	s.story.Say("Installed after %s, and all nodes are Ready: Fenceline is their only network.", time.Since(started).Round(time.Second))
	output, err := c.Kubectl(ctx, "get", "nodes,pods", "--all-namespaces", "--output=wide")
	if err != nil {
		return err
	}
	s.story.Show("kubectl get nodes,pods --all-namespaces --output=wide", output)
	return nil
}

// playOn plays on a cluster that stays.
func (s *show) playOn(ctx context.Context, prefix string, chosen []scenario.Scenario) error {
	c, err := cluster.Open(prefix)
	if err != nil {
		return err
	}
	s.playAll(ctx, c, chosen)
	return s.verdict()
}

func (s *show) playAll(ctx context.Context, c *cluster.Cluster, chosen []scenario.Scenario) {
	stage, err := scenario.Open(c)
	if err != nil {
		s.result(err)
		return
	}
	for _, play := range chosen {
		s.heading(play.Promise)
		figures, err := play.Play(ctx, stage, s.story, func(ctx context.Context, _ error) { s.dump(ctx, stage, play.Name) })
		fmt.Fprintln(s.out)
		for line := range strings.Lines(figures.String()) {
			fmt.Fprint(s.out, "        ", line)
		}
		s.result(err)
	}
}

// result counts what has been shown, and says how it went.
func (s *show) result(err error) {
	if err != nil {
		s.failed++
		fmt.Fprintf(s.out, "FAILED: %v\n", err)
		return
	}
	s.passed++
	fmt.Fprintln(s.out, "PASSED")
}

// verdict is the last line.
func (s *show) verdict() error {
	fmt.Fprintf(s.out, "\n%d passed, %d failed\n", s.passed, s.failed)
	if s.failed > 0 {
		return errFailed
	}
	return nil
}

// dump writes down what may explain a failure.
func (s *show) dump(ctx context.Context, stage *scenario.Stage, name string) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	dir := filepath.Join("test-results", name)
	if err := stage.Dump(ctx, dir); err != nil {
		s.story.Say("Not all diagnostics could be had: %v", err)
	}
	s.story.Say("Logs, leases and events are in %s.", dir)
}

func (s *show) heading(text string) {
	fmt.Fprintf(s.out, "\n%s\n%s\n", text, strings.Repeat("-", len(text)))
}

// progress tells each line of the set-up.
type progress struct{ story *scenario.Story }

func (p progress) Write(text []byte) (int, error) {
	for line := range strings.Lines(string(text)) {
		p.story.Say("%s", strings.TrimSpace(line))
	}
	return len(text), nil
}
