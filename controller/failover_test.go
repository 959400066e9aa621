// SPDX-License-Identifier: Apache-2.0

//go:build api

package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/test/check"
	"github.com/fenceline/fenceline/test/controlplane"
	"github.com/fenceline/fenceline/test/programs"
)

// leaked is how many leases are due when the leader is killed.
const leaked = 300

// TestFailOver kills the leader in the middle of a reclaim, and between an edit of a pool and what follows
// from it. The controllers are real processes that have no more rights than the chart gives. What living
// pods have is never touched.
func TestFailOver(t *testing.T) {
	w, server := newWorld(t)
	w.readyNode("n1")
	p := w.startPair(server)
	endUnseen, checkPools := w.editPools()

	w.pool("leaked", "10.30.0.0/16")
	gone, names := w.goneHolder("leaked-0"), addresses("10.30.1.0", leaked)
	for _, name := range names {
		w.bound("leaked", name, gone)
	}
	living := w.bound("leaked", "10.30.0.9", w.runningPod("living-0", "n1"))
	w.eventually("the first reclaim", func() error {
		n := w.quarantined()
		return unless(n != 0, "no lease is quarantined")
	})
	p.killLeader()
	endUnseen()
	p.waitSuccessor()
	w.waitQuarantines(leaked)

	// Created, quarantined: whoever did it, did it once, and took it from the holder.
	for _, name := range names {
		w.takenOnce(name)
	}
	w.untouched(living)
	checkPools()
	p.endSuccessor()

	// The leader may have been killed before it told of its last reclaim.
	for name, n := range told(names, p.first, p.second) {
		check.That(t, n <= 1, "%d audit lines tell of %s", n, name)
	}
	now, err := w.leader()
	check.That(t, err != nil, "%s has ended and is still the leader", now)
}

// goneHolder is a pod that does not exist.
func (w world) goneHolder(name string) *corev1.Pod {
	gone := w.podObject("default", name, "n1")
	gone.UID = "11111111-0000-4000-8000-000000000000"
	return gone
}

// waitQuarantines waits until so many leases are Quarantined.
func (w world) waitQuarantines(want int) {
	w.Helper()
	w.eventually("all reclaims", func() error {
		n := w.quarantined()
		return unless(n == want, "%d of %d leases are quarantined", n, want)
	})
}

// takenOnce reports an error unless a lease was created and then quarantined, and nothing else.
func (w world) takenOnce(name string) {
	w.Helper()
	l := w.lease(name)
	check.That(w, l.Generation == 2 && l.Spec.Previous != nil && l.Spec.Previous.Node == "n1" && l.Spec.NodeName == "n1",
		"lease %s: generation %d, node %s, previous %+v", name, l.Generation, l.Spec.NodeName, l.Spec.Previous)
}

// build builds the controller.
func (w world) build() string {
	w.Helper()
	file := filepath.Join(w.TempDir(), "controller")
	check.OK(w, programs.Build(w.ctx, "controller", file))
	return file
}

// start starts a controller that is killed with the test at the latest.
func (w world) start(program, kubeconfig string, flags ...string) *exec.Cmd {
	w.Helper()
	cmd := exec.Command(program, append(flags, "--namespace", system, "--metrics-address", "127.0.0.1:0",
		"--health-address", "127.0.0.1:0", "--extra-grace", extraGrace.String(), "--settle", settle.String())...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+kubeconfig)
	log := &output{}
	cmd.Stderr = log
	// Wait returns although the killed process's pipe may be open somewhere.
	cmd.WaitDelay = time.Second
	check.OK(w, cmd.Start())
	w.Cleanup(func() {
		if cmd.ProcessState == nil {
			_ = cmd.Process.Kill() // it may have ended
			_ = cmd.Wait()         // says that it was killed
		}
		if w.Failed() {
			w.Logf("controller %d said:\n%s", cmd.Process.Pid, log)
		}
	})
	return cmd
}

// output is what a controller has written so far.
type output struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (o *output) Write(text []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(text)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

// leader returns who holds the leader's Lease.
func (w world) leader() (string, error) {
	var lease coordinationv1.Lease
	if err := w.client.Get(w.ctx, types.NamespacedName{Namespace: system, Name: name}, &lease); err != nil {
		return "", err
	}
	if h := lease.Spec.HolderIdentity; h != nil && *h != "" {
		return *h, nil
	}
	return "", errors.New("nobody is the leader")
}

// chartRights installs the controller's account as the chart does, and returns its access.
func (w world) chartRights(server *controlplane.Server) *rest.Config {
	w.Helper()
	return check.Value(server.ControllerRights(w.ctx, system))(w)
}

// kubeconfig writes an access into a file.
func (w world) kubeconfig(config *rest.Config) string {
	w.Helper()
	file := filepath.Join(w.TempDir(), "kubeconfig")
	check.OK(w, controlplane.WriteKubeconfig(config, file))
	return file
}

// TestTwoControllersAtOnce runs two that both believe to be the leader, as after
// a pause of one of them. The preconditions of their writes decide.
func TestTwoControllersAtOnce(t *testing.T) {
	w, server := newWorld(t)
	w.readyNode("n1")
	w.pool("leaked", "10.31.0.0/16")
	gone, names := w.goneHolder("leaked-0"), addresses("10.31.1.0", leaked/5)
	kept := addresses("10.31.2.0", leaked/5)
	for i := range names {
		w.bound("leaked", names[i], gone)
		w.retained("leaked", kept[i], "nobodys", i)
	}
	living := w.bound("leaked", "10.31.0.9", w.runningPod("living-0", "n1"))
	program := w.build()
	kubeconfig := w.kubeconfig(w.chartRights(server))
	both := []*exec.Cmd{w.start(program, kubeconfig, "--leader-elect=false"), w.start(program, kubeconfig, "--leader-elect=false")}
	w.waitQuarantines(len(names))
	for _, name := range kept {
		w.waitGone(name)
	}
	w.untouched(living)
	w.eventually("an audit line of each address", func() error { // after the write
		for address, n := range told(append(names, kept...), both...) {
			if n == 0 {
				return fmt.Errorf("none tells of %s", address)
			}
		}
		return nil
	})
	for _, controller := range both {
		check.OK(t, controller.Process.Signal(syscall.SIGTERM))
		check.Is(t, controller.Wait(), nil, "the controller ended with")
	}
	for _, name := range names {
		w.takenOnce(name)
	}
	for address, n := range told(append(names, kept...), both...) {
		check.That(t, n == 1, "%d audit lines tell of %s, want 1", n, address)
	}
}

// told counts the audit lines of controllers about each address.
func told(addresses []string, controllers ...*exec.Cmd) map[string]int {
	lines := map[string]int{}
	for _, address := range addresses {
		for _, c := range controllers {
			lines[address] += strings.Count(c.Stderr.(*output).String(), `"address":"`+address+`"`)
		}
	}
	return lines
}

// untouched reports an error if anybody has written a lease since it was made.
func (w world) untouched(lease *v1alpha1.IPLease) {
	w.Helper()
	now := w.lease(lease.Name)
	check.That(w, now != nil && now.UID == lease.UID && now.ResourceVersion == lease.ResourceVersion, "the lease of a living pod is %+v", now)
}

// TestAllNodesAreReplacedWhileNoControllerIsInstalled: leases stay as they are without a controller;
// one that is installed again goes on from them, on nodes that have never seen any of it.
func TestAllNodesAreReplacedWhileNoControllerIsInstalled(t *testing.T) {
	w, server := newWorld(t)
	old, young := []string{"old-1", "old-2"}, []string{"new-1", "new-2"}
	for _, node := range old {
		w.readyNode(node)
	}
	uninstall := w.runController(server.Admin(), policy(), clock.RealClock{})
	w.pool("replaced", "10.70.0.0/24")
	w.statefulSet("db", 2)
	pods := make([]*corev1.Pod, len(old))
	for i, node := range old {
		pods[i] = w.runningPod(fmt.Sprintf("db-%d", i), node)
		w.bound("replaced", fmt.Sprintf("10.70.0.%d", 2+i), pods[i], func(h *v1alpha1.Holder) { h.OwnerKind, h.OwnerName = "StatefulSet", "db" })
	}
	w.retained("replaced", "10.70.0.9", "gone", 0, forever)
	w.barrier("replaced", "10.70.0.10")
	uninstall()

	for i, node := range old {
		for _, o := range []client.Object{
			&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}},
			&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: system, Name: "agent-" + node}},
			pods[i],
		} {
			check.OK(t, w.client.Delete(w.ctx, o, client.GracePeriodSeconds(0)))
		}
	}
	for _, node := range young {
		w.readyNode(node)
	}
	// Became due while nobody looked.
	w.retained("replaced", "10.70.0.8", "gone", 1)
	next := w.runningPod("db-0", young[0])
	for _, name := range []string{"10.70.0.2", "10.70.0.3"} {
		l := w.lease(name)
		check.Must(t, l != nil && l.Spec.State == v1alpha1.StateBound, "without a controller lease %s became %+v", name, l)
	}

	w.runController(server.Admin(), policy(), clock.RealClock{})
	for i, name := range []string{"10.70.0.2", "10.70.0.3"} {
		lease := w.waitQuarantined(name, v1alpha1.ReasonNodeGone)
		check.That(t, slices.Contains(young, lease.Spec.NodeName), "lease %s: %s verifies, want one of %v", name, lease.Spec.NodeName, young)
		h := lease.Spec.Holder
		check.That(t, h != nil && h.Pod == pods[i].Name && h.OwnerName == "db", "lease %s: the next %s would not find its address: %+v", name, pods[i].Name, h)
	}
	w.waitGone("10.70.0.8")
	check.That(t, w.lease("10.70.0.9") != nil, "an address kept for ever was freed")
	// The agent of a new node takes the address over for the pod of that name.
	mine := w.getsBack("10.70.0.2", next)
	w.barrier("replaced", "10.70.0.11")
	l := w.lease("10.70.0.2")
	check.That(t, l != nil && l.UID == mine.UID && l.Spec.State == v1alpha1.StateBound, "the lease of the new db-0 became %+v", l)
}

// getsBack binds a Quarantined lease for the pod, again if the controller wrote
// meanwhile, as it does when it names another verifier.
func (w world) getsBack(name string, pod *corev1.Pod) (mine *v1alpha1.IPLease) {
	w.Helper()
	w.eventually(pod.Name+" gets its address back", func() error {
		mine = w.takeOver(w.lease(name), pod)
		return unless(mine != nil, "somebody else wrote")
	})
	return mine
}

// TestSwitchedOffThenAwayThenOn runs three controllers after one another: one
// that may take nothing, none at all while the cluster changes, and one that
// finds everything at its start, although no watch told it of any change.
func TestSwitchedOffThenAwayThenOn(t *testing.T) {
	w, server := newWorld(t)
	w.readyNode("n1")
	w.readyNode("n2")
	w.readyNode("leaves")

	w.pool("off", "10.40.0.0/24")
	gone := w.goneHolder("gone-0")
	w.bound("off", "10.40.0.2", gone)
	w.retained("off", "10.40.0.3", "nobodys", 0)
	running := w.runningPod("running-0", "n1")
	w.bound("off", "10.40.0.4", running)
	leaving := w.runningPod("leaving-0", "leaves")
	w.bound("off", "10.40.0.5", leaving)
	set := w.statefulSet("web", 1)
	w.retained("off", "10.40.0.6", "web", 0)
	change(w, w.bound("off", "10.40.0.7", gone), func(l *v1alpha1.IPLease) {
		l.Spec.State, l.Spec.Reason, l.Spec.NodeName = v1alpha1.StateQuarantined, v1alpha1.ReasonPodGone, "nobody"
		l.Spec.Previous = &v1alpha1.PreviousHolder{Node: "n1"}
	})

	off := policy()
	off.Enabled = false
	stop := w.runController(server.Admin(), off, clock.RealClock{})
	w.waitMessage("10.40.0.2", "", "due, but reclaim is switched off: pod default/gone-0 does not exist")
	w.waitMessage("10.40.0.3", "", "due, but reclaim is switched off: StatefulSet default/nobodys does not exist")
	w.waitEvent("default", "ReclaimOff", "10.40.0.2", "PodGone")
	w.waitEvent("default", "ReclaimOff", "10.40.0.3", "RetentionEnded")
	w.waitEvent("default", "ReclaimOff", "off", "reclaim is switched off")
	w.waitMetric("fenceline_reclaim_enabled", func(v float64) bool { return v == 0 })
	w.waitMetric("fenceline_reclaims_withheld_total reason=PodGone", func(v float64) bool { return v == 1 })
	w.eventually("a verifier of what is Quarantined already", func() error {
		node := w.lease("10.40.0.7").Spec.NodeName
		return unless(node != "nobody", "it is %s", node)
	})
	check.Equal(t, w.lease("10.40.0.2").Spec.State, v1alpha1.StateBound, "with reclaim switched off, the lease is")
	stop()

	w.remove(running, client.GracePeriodSeconds(0))
	w.remove(leaving, client.GracePeriodSeconds(0))
	check.OK(t, w.client.Delete(w.ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "leaves"}}))
	change(w, set, func(s *appsv1.StatefulSet) { s.Spec.Replicas = ptr.To[int32](0) })

	w.runController(server.Admin(), policy(), clock.RealClock{})
	w.waitQuarantined("10.40.0.2", v1alpha1.ReasonPodGone)
	w.waitGone("10.40.0.3")
	w.waitQuarantined("10.40.0.4", v1alpha1.ReasonPodGone)
	w.waitQuarantined("10.40.0.5", v1alpha1.ReasonNodeGone)
	w.waitGone("10.40.0.6")
	w.waitMetric("fenceline_reclaim_enabled", func(v float64) bool { return v == 1 })

	w.setReady("n1", corev1.ConditionUnknown)
	w.setReady("n2", corev1.ConditionUnknown)
	w.barrier("off", "10.40.0.20")
	w.readyNode("appears")
	w.eventually("a verifier of what no node could verify", func() error {
		node := w.lease("10.40.0.2").Spec.NodeName
		return unless(node == "appears", "it is %s", node)
	})
}

// skewed is a machine's clock that is off.
type skewed struct {
	clock.WithTicker
	by time.Duration
}

func (s skewed) Now() time.Time                  { return s.WithTicker.Now().Add(s.by) }
func (s skewed) Since(t time.Time) time.Duration { return s.Now().Sub(t) }

func TestAControllerWhoseClockIsAnHourAhead(t *testing.T) {
	w, server := newWorld(t)
	w.readyNode("n1")
	w.pool("clock", "10.44.0.0/24")
	w.runController(server.Admin(), policy(), skewed{clock.RealClock{}, time.Hour})
	pod := w.podObject("default", "clock-0", "n1")
	pod.Spec.TerminationGracePeriodSeconds = ptr.To[int64](3)
	w.create(pod)
	w.bound("clock", "10.44.0.2", pod)
	w.remove(pod)
	check.OK(t, w.client.Get(w.ctx, client.ObjectKeyFromObject(pod), pod))
	due := pod.DeletionTimestamp.Add(extraGrace)
	w.waitQuarantined("10.44.0.2", v1alpha1.ReasonPodTerminating)
	early := time.Until(due)
	check.That(t, early <= time.Second, "the address was taken %s too early", early)
}
