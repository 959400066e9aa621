//go:build kernel

package nodes_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fenceline/fenceline/agent/journal"
	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/test/capture"
	"github.com/fenceline/fenceline/test/namespaces"
	"github.com/fenceline/fenceline/test/nodes"
)

// step is a point of a verb at which something may break.
type step struct {
	name string
	// at is the moment, the nth of its kind, at which a bystander knows that the verb is there.
	at  nodes.Moment
	nth int
	// journal is what the journal holds of the sandbox by then.
	journal journal.Phase
	// guarded: the guard enforces by then; it is waited for where it is on its way beside.
	guarded bool
}

// verb is a call of the plugin with its steps in order.
type verb struct {
	name string
	// kept: the pod keeps its name and its address.
	kept  bool
	isDel bool
	steps []step
}

const none journal.Phase = ""

// verbs are the crash points.
func verbs() []verb {
	return []verb{
		{name: "ADD", steps: []step{
			{"the call arrives", nodes.AddCalled, 1, none, false},
			{"the intent is journalled", nodes.CreateSent, 1, journal.Intent, false},
			{"the guard enforces", nodes.CreateSent, 1, journal.Intent, true},
			{"the lease is created and the agent does not know", nodes.CreateDone, 1, journal.Intent, false},
			{"the address is probed", nodes.Probed, 1, journal.Intent, true},
			{"the address is claimed", nodes.Claimed, 1, journal.Intent, true},
			{"the binding is journalled and the answer written", nodes.AddAnswered, 1, journal.Bound, true},
			{"the pod speaks", nodes.Announced, 1, journal.Bound, true},
		}},
		{name: "ADD of a kept address", kept: true, steps: []step{
			{"the call arrives", nodes.AddCalled, 1, none, false},
			{"the intent is journalled", nodes.UpdateSent, 1, journal.Intent, false},
			{"the lease is taken over and the agent does not know", nodes.UpdateDone, 1, journal.Intent, false},
			{"the address is claimed", nodes.Claimed, 1, journal.Intent, true},
			{"the address is probed", nodes.Probed, 1, journal.Intent, true},
			{"the take-over is about to be confirmed", nodes.UpdateSent, 2, journal.Intent, true},
			{"the take-over is confirmed and the agent does not know", nodes.UpdateDone, 2, journal.Intent, true},
			{"the binding is journalled and the answer written", nodes.AddAnswered, 1, journal.Bound, true},
		}},
		{name: "DEL", isDel: true, steps: []step{
			{"the call arrives", nodes.DelCalled, 1, journal.Bound, true},
			{"the release is journalled", nodes.GetSent, 1, journal.Releasing, true},
			{"the lease is about to be deleted", nodes.DeleteSent, 1, journal.Releasing, true},
			{"the lease is deleted and the agent does not know", nodes.DeleteDone, 1, journal.Releasing, true},
			{"the entry is forgotten and the answer written", nodes.DelAnswered, 1, none, false},
		}},
		{name: "DEL of a kept address", kept: true, isDel: true, steps: []step{
			{"the call arrives", nodes.DelCalled, 1, journal.Bound, true},
			{"the release is journalled", nodes.GetSent, 1, journal.Releasing, true},
			{"the lease is about to be Retained", nodes.UpdateSent, 1, journal.Releasing, true},
			{"the lease is Retained and the agent does not know", nodes.UpdateDone, 1, journal.Releasing, true},
			{"the entry is forgotten and the answer written", nodes.DelAnswered, 1, none, false},
		}},
	}
}

// fault is something that breaks at a step.
type fault struct {
	name string
	// strike breaks it; an error closes the connection on which the step was seen.
	strike func(*nodes.Node) error
	// at tells where it can happen.
	at func(verb, step) bool
	// undone tells who undoes an ADD before its DEL.
	undone undoer
}

// undoer is who undoes an ADD whose answer nobody hears.
type undoer int

const (
	byNobody undoer = iota
	byTheAgent
	byTheNext
)

// answered tells whether the agent may believe that its answer is heard: a
// plugin's end takes a moment to be noticed, and nothing is waited for after the
// confirmation of a take-over.
func answered(s step) bool {
	return s.at == nodes.AddAnswered || s.at == nodes.Announced || s.at == nodes.UpdateDone && s.nth == 2
}

var errCut = errors.New("cut")

func faults() []fault {
	waits := func(_ verb, s step) bool { return s.at != nodes.Announced }
	return []fault{
		{"the agent is killed", (*nodes.Node).KillAgent, func(v verb, _ step) bool { return !v.kept || v.isDel }, byNobody},
		{"the agent is killed and starts again before the DEL", (*nodes.Node).KillAgent, func(v verb, _ step) bool { return !v.isDel }, byTheNext},
		{"the plugin is killed", (*nodes.Node).KillPlugins, waits, byTheAgent},
		{"the connection is closed", func(n *nodes.Node) error { n.CloseConnections(); return nil }, func(v verb, s step) bool {
			return !v.kept && waits(v, s) // to the agent it is the same as the plugin's end
		}, byTheAgent},
		{"the connection to the API server is closed", func(*nodes.Node) error { return errCut }, func(_ verb, s step) bool { return ofAPI(s) }, byTheAgent},
	}
}

func ofAPI(s step) bool {
	switch s.at {
	case nodes.GetSent, nodes.CreateSent, nodes.CreateDone, nodes.UpdateSent, nodes.UpdateDone, nodes.DeleteSent, nodes.DeleteDone:
		return true
	}
	return false
}

func isSent(m nodes.Moment) bool {
	return m == nodes.CreateSent || m == nodes.UpdateSent || m == nodes.DeleteSent
}

// Whatever breaks at whatever step of ADD and DEL: once a kubelet has gone on as
// kubelets do, the leases are those of the living pods, nothing is left over, and
// nobody else speaks for their addresses.
func TestNothingIsLostWhereverADDAndDELBreakOff(t *testing.T) {
	c := nodes.New(t, 1)
	pool := c.Pool("v4", "10.66.0.0/24", "10.66.0.2-10.66.0.9")
	w := &walk{Cluster: c, n: c.Nodes[0], host: c.Host(netip.MustParsePrefix("10.66.0.1/24"))}
	for _, v := range verbs() {
		for _, s := range v.steps {
			for _, f := range faults() {
				if !f.at(v, s) {
					continue
				}
				t.Run(fmt.Sprintf("%s, %s, %s", v.name, s.name, f.name), func(t *testing.T) { w.in(t).play(v, s, f) })
				if t.Failed() {
					return // the rows share the node
				}
			}
		}
	}
	t.Run("then every address of the pool can be had, and every guard goes", func(t *testing.T) { w.in(t).exhaust(pool) })
}

// walk is the way along all crash points of one node.
type walk struct {
	*nodes.Cluster
	t    *testing.T
	n    *nodes.Node
	host *namespaces.Host
	pods int
}

func (w *walk) in(t *testing.T) *walk {
	w.t = t
	return w
}

// play has one thing break at one step, and goes on as a kubelet does.
func (w *walk) play(v verb, s step, f fault) {
	t := w.t
	ctx, cancel := context.WithTimeout(t.Context(), nodes.Limit)
	defer cancel()
	pod := w.pod(ctx, v.kept)
	if v.kept && !v.isDel {
		// The address is kept since an earlier life of the name.
		earlier, err := w.n.Begin(ctx, pod)
		check(t, err)
		check(t, earlier.End(ctx))
		check(t, w.ForgetPod(ctx, pod))
		pod = w.again(ctx, pod)
	}
	sandbox := w.broken(ctx, v, s, f, pod)
	if f.undone == byTheNext {
		check(t, w.n.AwaitAgent(ctx))
	}
	if f.undone != byNobody && !v.isDel && !answered(s) {
		w.Eventually(t, "the ADD is undone without a DEL", func() error { return w.LeasesAreLiving(ctx, v1alpha1.StateRetained) })
	}
	if !sandbox.Lives() {
		// The ADD has failed, or this is about DEL: the runtime sends DEL until it succeeds.
		check(t, sandbox.End(ctx))
	}
	check(t, w.n.AwaitAgent(ctx))
	if v.isDel {
		w.Eventually(t, "the DEL is carried out", func() error { return w.LeasesAreLiving(ctx, v1alpha1.StateRetained) })
	}
	if !sandbox.Lives() {
		var err error
		sandbox, err = w.n.Begin(ctx, pod)
		check(t, err)
	}
	w.Eventually(t, "the leases are those of the living", func() error { return w.LeasesAreLiving(ctx) })
	w.speaksAlone(ctx, sandbox)

	check(t, sandbox.End(ctx))
	check(t, w.ForgetPod(ctx, pod))
	w.Eventually(t, "all is given back", func() error { return w.LeasesAreLiving(ctx, v1alpha1.StateRetained) })
	check(t, w.DeleteAllOf(ctx, &v1alpha1.IPLease{}))
}

// broken makes the call, during which something breaks.
func (w *walk) broken(ctx context.Context, v verb, s step, f fault, pod *corev1.Pod) *nodes.Sandbox {
	t := w.t
	var sandbox *nodes.Sandbox
	var err error
	call := (*nodes.Sandbox).Add
	if v.isDel {
		sandbox, err = w.n.Begin(ctx, pod)
		call = (*nodes.Sandbox).Del
	} else {
		sandbox, err = w.n.NewSandbox(pod)
	}
	check(t, err)
	met := w.n.At(s.at, s.nth, func() error {
		if err := w.stands(ctx, s, sandbox); err != nil {
			t.Errorf("at this step %v", err)
		}
		err := f.strike(w.n)
		if f.undone == byTheAgent && isSent(s.at) {
			// What the agent gives up does not arrive after all; agent/holder tests that it may.
			err = errors.Join(err, errCut)
		}
		return err
	})
	err = call(sandbox, ctx)
	select {
	case <-met:
	case <-ctx.Done():
		t.Fatalf("the step has not come; the call ended with %v", err)
	}
	t.Logf("the call ended with %v", err)
	return sandbox
}

// stands compares the step with what the node keeps.
func (w *walk) stands(ctx context.Context, s step, sandbox *nodes.Sandbox) error {
	for s.guarded {
		guarded, err := sandbox.Guarded()
		if err != nil || ctx.Err() != nil {
			return fmt.Errorf("the guard is awaited: %w", errors.Join(err, ctx.Err()))
		}
		if guarded {
			break
		}
		if s.at != nodes.CreateSent {
			return errors.New("the interface is not guarded")
		}
	}
	entries, err := w.n.Entries()
	if err != nil {
		return err
	}
	if got := entries[sandbox.ContainerID].Phase; got != s.journal {
		return fmt.Errorf("the journal is in phase %q, want %q", got, s.journal)
	}
	return nil
}

// speaksAlone asks for a living pod's address, and judges who answers.
func (w *walk) speaksAlone(ctx context.Context, s *nodes.Sandbox) {
	w.t.Helper()
	asked := time.Now()
	w.Eventually(w.t, s.Addr.String()+" answers", func() error {
		return w.host.Command(ctx, "ping", "-q", "-c", "1", "-W", "1", s.Addr.String()).Run()
	})
	_, err := w.Frames.Wait(ctx, func(f capture.Frame) bool { return f.Time.After(asked) && slices.Contains(f.Speaks, s.Addr) })
	check(w.t, err)
	frames := capture.After(w.Frames.Frames(), asked)
	if speakers := capture.Speakers(frames, s.Addr); len(speakers) != 1 || speakers[0] != s.MAC.String() {
		w.t.Errorf("%v speak for %s, which is that of %s", speakers, s.Addr, s.MAC)
	}
}

// exhaust takes every address of the pool, so that none is lost, and gives it back.
func (w *walk) exhaust(pool *v1alpha1.IPPool) {
	t := w.t
	ctx, cancel := context.WithTimeout(t.Context(), 2*nodes.Limit)
	defer cancel()
	const size = 8
	for range size {
		s, err := w.n.Begin(ctx, w.pod(ctx, false))
		check(t, err)
		w.speaksAlone(ctx, s)
	}
	w.Eventually(t, "the pool is full of the living", func() error { return w.LeasesAreLiving(ctx) })
	for _, s := range w.Living() {
		check(t, s.End(ctx))
	}
	w.Eventually(t, "all is given back", func() error { return w.LeasesAreLiving(ctx) })
	w.Eventually(t, "the guards are swept", func() error {
		if guards, err := w.n.Guards(); err != nil || len(guards) > 0 {
			return fmt.Errorf("guards %v are pinned: %w", guards, err)
		}
		return nil
	})
	check(t, w.Delete(ctx, pool, client.GracePeriodSeconds(0)))
}

// again makes another pod of the same name.
func (w *walk) again(ctx context.Context, pod *corev1.Pod) *corev1.Pod {
	w.t.Helper()
	again, err := w.n.NewPod(ctx, pod.Name, func(next *corev1.Pod) { next.OwnerReferences = pod.OwnerReferences })
	check(w.t, err)
	return again
}

// pod makes a pod; a kept one is a StatefulSet's.
func (w *walk) pod(ctx context.Context, kept bool) *corev1.Pod {
	w.t.Helper()
	w.pods++
	pod, err := w.n.NewPod(ctx, fmt.Sprintf("pod-%d", w.pods), func(pod *corev1.Pod) {
		if kept {
			yes := true
			pod.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "StatefulSet", Name: "pod", UID: "u", Controller: &yes}}
		}
	})
	check(w.t, err)
	return pod
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
