// SPDX-License-Identifier: Apache-2.0

// Package conformance runs cases of Kubernetes' own e2e tests on a cluster of package test/cluster,
// and accounts for every case that the test binary has.
//
// The binary is built from the version of Kubernetes that the cluster runs (package test/thirdparty).
// The list of cases and the names of the images come from the binary, so a new version of Kubernetes
// brings its new cases.
package conformance

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// labels choose the cases of Kubernetes' network group that every conformant cluster passes: those with
// [sig-network] and [Conformance] in their names.
const labels = "sig-network && Conformance"

// prefix begins the name of every image of the tests. It names no registry: the nodes import them.
const prefix = "fenceline/e2e"

// interruptLimit is how long the tests may clean up after an interrupt.
const interruptLimit = time.Minute

// Suite is the test binary and the command that runs it in parallel.
type Suite struct {
	dir string // of component E2E
	out string
}

// New returns the suite of the directory dir of component E2E. It keeps its files in the directory
// out, which it makes.
func New(dir, out string) (Suite, error) {
	s := Suite{dir: dir, out: out}
	if err := os.MkdirAll(out, 0o755); err != nil {
		return s, fmt.Errorf("prepare the e2e tests: %w", err)
	}
	names := "promoterE2eRegistry: " + prefix + "\ngcRegistry: " + prefix + "\n"
	if err := os.WriteFile(s.registries(), []byte(names), 0o644); err != nil {
		return s, fmt.Errorf("prepare the e2e tests: %w", err)
	}
	return s, nil
}

// Run is one run of cases on a cluster.
type Run struct {
	// Focus and Skip are regular expressions over the names of cases. Empty ones choose all cases, and
	// skip none.
	Focus, Skip string
	// Kubeconfig is the administrator's, Kubectl the program.
	Kubeconfig, Kubectl string
	// Processes run cases at the same time.
	Processes int
	// Limit ends the run.
	Limit time.Duration
	// Progress receives what the tests print when a case fails, and a dot for each that passes.
	Progress io.Writer
}

// Cases returns the names of all cases of the binary that the run chooses, in the binary's order.
func (s Suite) Cases(ctx context.Context, r Run) ([]string, error) {
	report := filepath.Join(s.out, "cases.json")
	args := append(choice(r, "--ginkgo."), "--ginkgo.dry-run", "--ginkgo.silence-skips", "--ginkgo.json-report="+report)
	if _, err := s.binary(ctx, args...); err != nil {
		return nil, fmt.Errorf("list the cases: %w", err)
	}
	outcomes, err := readReport(report)
	if err != nil {
		return nil, fmt.Errorf("list the cases: %w", err)
	}
	var cases []string
	for _, o := range outcomes {
		cases = append(cases, o.Case)
	}
	if len(cases) == 0 {
		return nil, fmt.Errorf("list the cases: none matches %q without %q", r.Focus, r.Skip)
	}
	return cases, nil
}

// Images returns the names of all images that the cases of the binary use.
func (s Suite) Images(ctx context.Context) ([]string, error) {
	output, err := s.binary(ctx, "--list-images")
	if err != nil {
		return nil, fmt.Errorf("list the images: %w", err)
	}
	return strings.Fields(output), nil
}

// Run runs the chosen cases and returns the outcome of each that ended. A case that fails is no error.
func (s Suite) Run(ctx context.Context, r Run) ([]Outcome, error) {
	const report = "report.json"
	if err := os.RemoveAll(filepath.Join(s.out, report)); err != nil {
		return nil, fmt.Errorf("run the cases: %w", err)
	}
	args := append(choice(r, "--"),
		"--procs="+strconv.Itoa(r.Processes), "--timeout="+r.Limit.String(), "--no-color", "--silence-skips",
		"--json-report="+report, "--output-dir="+s.out, filepath.Join(s.dir, "e2e.test"),
		"--", "--provider=skeleton", "--kubeconfig="+r.Kubeconfig, "--kubectl-path="+r.Kubectl)
	cmd := s.command(ctx, "ginkgo", args...)
	cmd.Stdout, cmd.Stderr = r.Progress, r.Progress
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = interruptLimit
	err := cmd.Run()
	if exit := new(exec.ExitError); errors.As(err, &exit) {
		err = nil // some case failed; the report says which
	}
	if err != nil {
		return nil, fmt.Errorf("run the cases: %w", err)
	}
	outcomes, err := readReport(filepath.Join(s.out, report))
	if err != nil {
		return outcomes, fmt.Errorf("run the cases: %w", err)
	}
	return outcomes, nil
}

// choice returns the flags of the cases that the run chooses.
func choice(r Run, prefix string) []string {
	args := []string{prefix + "label-filter=" + labels}
	if r.Focus != "" {
		args = append(args, prefix+"focus="+r.Focus)
	}
	if r.Skip != "" {
		args = append(args, prefix+"skip="+r.Skip)
	}
	return args
}

// binary runs the test binary without a cluster and returns what it printed.
func (s Suite) binary(ctx context.Context, args ...string) (string, error) {
	cmd := s.command(ctx, "e2e.test", args...)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	output, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%w\n%s%s", err, output, stderr.String())
	}
	return string(output), nil
}

func (s Suite) command(ctx context.Context, program string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, filepath.Join(s.dir, program), args...)
	cmd.Dir = s.out
	cmd.Env = append(os.Environ(), "KUBE_TEST_REPO_LIST="+s.registries())
	return cmd
}

// registries is the file that replaces the registries of the tests' images.
func (s Suite) registries() string { return filepath.Join(s.out, "registries.yaml") }
