// SPDX-License-Identifier: Apache-2.0

//go:build api

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/cli/cluster"
	"github.com/fenceline/fenceline/controller/agents"
	"github.com/fenceline/fenceline/internal/diagnosis"
	"github.com/fenceline/fenceline/test/check"
)

// localNetwork is a network of host-local on two nodes, with a pod, and a file of a pod that is gone.
type localNetwork struct {
	*network
	// data has a directory for each node.
	data string
	text string
}

func newLocalNetwork(t *testing.T) *localNetwork {
	data := t.TempDir()
	text := fmt.Sprintf(`{"type": "macvlan",  "master":"eth1", "ipam":{"type":"host-local","subnet":"10.100.0.0/24","rangeStart":"10.100.0.5","rangeEnd":"10.100.0.12","dataDir":%q} }`, data)
	n := &localNetwork{newNetworkOf(t, text), data, text}
	n.hostLocal = n.answers
	other := node("w1", corev1.ConditionTrue) // it has no agent
	other.Labels[corev1.LabelOSStable] = "windows"
	n.make(other, node("n1", corev1.ConditionTrue), node("n2", corev1.ConditionTrue), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "fenceline-system"}})
	n.write("n1", map[string]string{"10.100.0.7": "c1\r\nnet1", "10.100.0.9": "c2\r\nnet1", "lock": "", "last_reserved_ip.0": "10.100.0.9"})
	n.agent("n1")
	return n
}

func (n *localNetwork) agent(on string) {
	n.Helper()
	p := pod("agent-"+on, on)
	p.Namespace, p.Labels = "fenceline-system", agents.Labels("agent")
	p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	n.make(p)
}

// write writes files of host-local.
func (n *localNetwork) write(on string, files map[string]string) {
	n.Helper()
	dir := filepath.Join(n.data, on, "vlan100")
	check.OK(n, os.MkdirAll(dir, 0o755))
	for name, text := range files {
		check.OK(n, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
}

// files returns all files of host-local on both nodes.
func (n *localNetwork) files() map[string]string {
	n.Helper()
	all := map[string]string{}
	check.OK(n, filepath.WalkDir(n.data, func(path string, e os.DirEntry, err error) error {
		if err == nil && !e.IsDir() {
			all[strings.TrimPrefix(path, n.data+"/")] = string(check.Value(os.ReadFile(path))(n))
		}
		return err
	}))
	return all
}

// answers has the agent's code answer, in the directory of its node. It passes the door of the API server, as exec does.
func (n *localNetwork) answers(_ context.Context, _ *cluster.Cluster, pod string, r diagnosis.HostLocal) (*diagnosis.HostLocalFiles, error) {
	if n.door.left.Load() <= 0 || r.DataDir != n.data {
		return nil, errors.New("nobody answers")
	}
	r.DataDir = filepath.Join(n.data, strings.TrimPrefix(pod, "agent-"))
	files, err := r.Answer(time.Now().Add(-time.Hour))
	if r.Write && n.door.left.Add(-1) <= 0 {
		return nil, errors.New("the answer is lost")
	}
	return &files, err
}

// gives returns the node whose host-local would give an address, or "".
func (n *localNetwork) gives(addr string) string {
	n.Helper()
	type set []struct{ RangeStart, RangeEnd, Gateway netip.Addr }
	var c struct {
		IPAM struct {
			Type                 string
			RangeStart, RangeEnd netip.Addr
			Ranges               []set
		}
	}
	check.OK(n, json.Unmarshal([]byte(n.config()), &c))
	ranges := set{{c.IPAM.RangeStart, c.IPAM.RangeEnd, netip.Addr{}}}
	if len(c.IPAM.Ranges) > 0 {
		ranges = c.IPAM.Ranges[0]
	}
	a := netip.MustParseAddr(addr)
	for _, r := range ranges {
		if c.IPAM.Type != "host-local" || a == r.Gateway || a.Less(r.RangeStart) || r.RangeEnd.Less(a) {
			continue
		}
		for _, on := range []string{"n1", "n2"} {
			if _, err := os.Stat(filepath.Join(n.data, on, "vlan100", addr)); err != nil {
				return on
			}
		}
	}
	return ""
}

// ruleHolds: no address is free in both. Of an address that host-local has given, other nodes know nothing, as ever.
func (n *localNetwork) ruleHolds(when string) {
	n.Helper()
	p := n.pool()
	isOpen := p != nil && !ptr.Deref(p.Spec.Disable, false)
	for _, addr := range []string{"10.100.0.5", "10.100.0.7", "10.100.0.8", "10.100.0.9", "10.100.0.12"} {
		err := n.client.Get(n.Context(), client.ObjectKey{Name: addr}, &v1alpha1.IPLease{})
		check.That(n, err == nil || apierrors.IsNotFound(err), "read %s: %v", addr, err)
		isRecorded := addr == "10.100.0.7" || addr == "10.100.0.9"
		check.That(n, !isOpen || err == nil || n.gives(addr) == "" && !isRecorded, "%s: both give %s, or Fenceline gives one that is in use", when, addr)
		check.That(n, err != nil || isRecorded || n.gives(addr) == "", "%s: %s has a lease, and node %s gives it", when, addr, n.gives(addr))
	}
}

func TestANetworkOfHostLocalMovesInAndBackAndIn(t *testing.T) {
	n := newLocalNetwork(t)
	_, err := n.run("", "move-in", "plan", "host-local", "default/vlan100")
	check.That(t, errors.Is(err, errBlocked), "a plan without the agent of n2: %v", err)
	n.agent("n2")
	n.says("move-in plan host-local default/vlan100", "Addresses in use: 2, of which to adopt: 1, to hold: 1", "no pod of node n1 has it by network-status")
	before := n.files()
	check.Equal(t, len(before), 4, "files after the plan")

	n.says("move-in start --settle=50ms host-local default/vlan100", "step Open", "Adopted: 1, held: 1", "switched to Fenceline", "Not done: 1 addresses are held")
	frozen := n.files()
	check.That(t, frozen["n1/vlan100/10.100.0.8"] == "fenceline-move/default.vlan100" && frozen["n2/vlan100/10.100.0.7"] != "" && len(frozen) == 4+6+8, "the files are %v", frozen)
	n.ruleHolds("after the start")
	_, err = n.run("", "move-in", "status", "whereabouts", "default/vlan100")
	check.Says(t, err, "is one from host-local: write that in place of whereabouts")

	// A pod of Fenceline keeps its address until its end.
	p := pod("ours-0", "n1")
	n.make(p)
	ours := lease("10.100.0.8", p, func(s *v1alpha1.IPLeaseSpec) { s.Pool = "vlan100" })
	n.make(ours)
	n.says("move-in back --settle=50ms host-local default/vlan100", "10.100.0.8 on node n1: Bound", "default/ours-0", "host-local excludes them")
	half := n.files()
	check.That(t, half["n1/vlan100/10.100.0.8"] != "" && half["n2/vlan100/10.100.0.8"] != "" && len(half) == 4+2, "the files are %v", half)
	check.That(t, n.gives("10.100.0.8") == "" && n.gives("10.100.0.6") != "", "the definition is %s", n.config())
	n.ruleHolds("half-way back")

	// While an agent is away, the definition goes back all the same. The files on its node stay, and the move with them.
	check.OK(t, n.client.Delete(t.Context(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "fenceline-system", Name: "agent-n2"}}, client.GracePeriodSeconds(0)))
	check.OK(t, n.client.Delete(t.Context(), ours))
	n.says("move-in back --settle=50ms host-local default/vlan100", "are left on some nodes", "host-local on node n2 are not known: it has no agent that is Ready")
	left := n.files()
	check.That(t, n.config() == n.text && left["n1/vlan100/10.100.0.8"] == "" && left["n2/vlan100/10.100.0.8"] != "" && n.theMove() != nil, "definition %s, files %v, move %v", n.config(), left, n.theMove())
	n.agent("n2")
	n.says("move-in back --settle=50ms host-local default/vlan100", "is as before the move")
	check.Equal(t, n.config(), n.text, "the definition")
	check.That(t, maps.Equal(n.files(), before) && n.pool() == nil && n.theMove() == nil, "files %v, pool %v and move %v are left", n.files(), n.pool(), n.theMove())

	// In for good: the hold is proven free.
	n.says("move-in start --settle=50ms host-local default/vlan100", "step Open")
	check.OK(t, n.client.Delete(t.Context(), &v1alpha1.IPLease{ObjectMeta: metav1.ObjectMeta{Name: "10.100.0.9"}}))
	check.Becomes(t, limit, "nothing is held", func() bool { return n.theMove().Status.Held == 0 })
	n.says("move-in finish host-local default/vlan100", "is finished")
	check.That(t, maps.Equal(n.files(), before) && n.theMove() == nil && n.pool() != nil, "files %v and move %v are left", n.files(), n.theMove())
}

// The command dies after each of its writes to the API server or to the files of a node. The rule holds, and it goes on.
func TestTheCommandOfAMoveFromHostLocalDiesAnywhere(t *testing.T) {
	t.Parallel()
	n := newLocalNetwork(t)
	n.agent("n2")
	before := n.files()
	n.through()
	n.diesAnywhere("host-local", n.ruleHolds, func() {
		check.Equal(t, n.config(), n.text, "the definition")
		check.That(t, maps.Equal(n.files(), before), "the files are %v", n.files())
	})
}

// answer has the agents answer by another function, which gets what the real code says.
func (n *localNetwork) answer(by func(pod string, r diagnosis.HostLocal, files *diagnosis.HostLocalFiles) error) {
	n.hostLocal = func(ctx context.Context, c *cluster.Cluster, pod string, r diagnosis.HostLocal) (*diagnosis.HostLocalFiles, error) {
		files, err := n.answers(ctx, c, pod, r)
		if err == nil {
			err = by(pod, r, files)
		}
		return files, err
	}
}

func TestFilesOfAMoveFromHostLocalThatLack(t *testing.T) {
	n := newLocalNetwork(t)
	n.agent("n2")
	before := n.files()

	// An agent goes away in the start. The way back is open.
	n.answer(func(pod string, r diagnosis.HostLocal, _ *diagnosis.HostLocalFiles) error {
		if r.Write && pod == "agent-n2" {
			return errors.New("the agent is gone")
		}
		return nil
	})
	_, err := n.run("", "move-in", "start", "--settle=50ms", "host-local", "default/vlan100")
	check.Says(t, err, "node n2 are not known: the agent is gone", "or go back")
	check.That(t, n.gives("10.100.0.8") == "", "the definition is %s", n.config())
	n.says("move-in back --settle=50ms host-local default/vlan100", "files of the move are left", "node n2")
	check.That(t, n.config() == n.text && n.theMove() != nil, "definition %s, move %v", n.config(), n.theMove())
	n.hostLocal = n.answers
	n.says("move-in back --settle=50ms host-local default/vlan100", "is as before the move")
	check.That(t, maps.Equal(n.files(), before), "the files are %v", n.files())

	// A DEL ends a file on n1, and n2 loses one. The start fills both up.
	n.says("move-in start --settle=50ms host-local default/vlan100", "step Open")
	for _, lost := range []string{"n1/vlan100/10.100.0.9", "n2/vlan100/10.100.0.5"} {
		check.OK(t, os.Remove(filepath.Join(n.data, lost)))
	}
	n.says("move-in status host-local default/vlan100", "node n1 lacks 1 files of the move", "node n2 lacks 1 files of the move", "repeat `kubectl fenceline move-in start`")
	n.says("move-in start --settle=50ms host-local default/vlan100", "step Open")
	for _, lost := range []string{"n1/vlan100/10.100.0.9", "n2/vlan100/10.100.0.5"} {
		check.Equal(t, n.files()[lost], "fenceline-move/default.vlan100", "%s:", lost)
	}
	check.OK(t, n.client.Delete(t.Context(), &v1alpha1.IPLease{ObjectMeta: metav1.ObjectMeta{Name: "10.100.0.9"}}))
	isWhole := func() bool {
		m := n.theMove()
		return m.Status.Held == 0 && m.Status.ObservedGeneration == m.Generation
	}
	check.Becomes(t, limit, "nothing is held", isWhole)

	// Another command takes the move over between the reading and the writing.
	full := n.files()
	n.answer(func(pod string, r diagnosis.HostLocal, _ *diagnosis.HostLocalFiles) error {
		if pod == "agent-n2" && !r.Write {
			n.edits(func(m *v1alpha1.Move) { m.Spec.Holder = "ann@desk" })
		}
		return nil
	})
	_, err = n.run("", "move-in", "finish", "host-local", "default/vlan100")
	check.Says(t, err, "is at step Open by ann@desk meanwhile")
	check.That(t, maps.Equal(n.files(), full), "the files are %v", n.files())

	// One that was killed has its agent write once more.
	check.Becomes(t, limit, "the controller has seen the move", isWhole)
	n.answer(func(pod string, r diagnosis.HostLocal, files *diagnosis.HostLocalFiles) error {
		if r.Write && pod == "agent-n2" {
			files.Marked = 3
		}
		return nil
	})
	_, err = n.run("", "move-in", "finish", "--take-over", "host-local", "default/vlan100")
	check.Says(t, err, "node n2 has 3 files of the move again")
	check.That(t, n.theMove() != nil, "the move has ended")
	n.hostLocal = n.answers
	n.says("move-in finish --take-over host-local default/vlan100", "is finished")
}
