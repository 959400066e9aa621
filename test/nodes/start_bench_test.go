// SPDX-License-Identifier: Apache-2.0

//go:build bench

package nodes

import (
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/fenceline/fenceline/test/check"
	"github.com/fenceline/fenceline/test/figure"
	"github.com/fenceline/fenceline/test/namespaces"
	"github.com/fenceline/fenceline/test/network"
	"github.com/fenceline/fenceline/test/programs"
)

// TestTimeOfAStart prints how long an agent takes from its exec until it serves ADD: after the boot of
// a node, and with its programs in the kernel. CPU time says more than time on a busy machine. It needs
// only the programs, so that guests can run it.
func TestTimeOfAStart(t *testing.T) {
	lan := network.NewLAN(t)
	c := On(t, namespaces.On(t, programs.Dir(), lan, lan.Host(t, namespaces.NodeName(1), namespaces.Parent)))
	n := c.Nodes[0]
	var boot, restart, bare starts
	for range figure.Size(10, 1) {
		c.check(n.StopAgent())
		c.check(n.RemovePins())
		boot.of(n)
		c.check(n.StopAgent())
		restart.of(n)
		version := exec.Command(filepath.Join(c.bin, "agent"), "--version")
		begun := time.Now()
		c.check(version.Run())
		bare.add(time.Since(begun), version.ProcessState.UserTime()+version.ProcessState.SystemTime())
	}
	boot.report(t, "start of an agent until ADD is served")
	restart.report(t, "the same with its programs in the kernel")
	bare.report(t, "agent that tells its version")
}

// starts are the durations and the CPU times of starts.
type starts struct{ took, cpu []time.Duration }

func (s *starts) add(took, cpu time.Duration) {
	s.took, s.cpu = append(s.took, took), append(s.cpu, cpu)
}

// of starts the agent of a node.
func (s *starts) of(n *Node) {
	begun := time.Now()
	n.cluster.check(n.AwaitAgent(n.cluster.t.Context()))
	took := time.Since(begun)
	s.add(took, check.Value(n.agent.CPU())(n.cluster.t))
}

func (s *starts) report(t *testing.T, name string) {
	t.Helper()
	t.Logf("%s: %s, CPU %s", name, s.took, s.cpu)
	figure.Report(t, name+", p50", figure.Milliseconds(figure.Median(s.took)), "ms")
	figure.Report(t, name+", CPU", figure.Milliseconds(figure.Median(s.cpu)), "ms")
}
