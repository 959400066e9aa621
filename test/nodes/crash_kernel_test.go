// SPDX-License-Identifier: Apache-2.0

//go:build kernel

package nodes_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fenceline/fenceline/agent/attachment"
	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/test/capture"
	"github.com/fenceline/fenceline/test/check"
	"github.com/fenceline/fenceline/test/namespaces"
	"github.com/fenceline/fenceline/test/nodes"
)

// One fault breaks one step of ADD or DEL, and the kubelet repeats its calls. Then the leases are
// those of the living pods, nothing is left over, and only the pods speak for their addresses.
func TestNothingIsLostWhereverADDAndDELBreakOff(t *testing.T) {
	t.Parallel()
	c := nodes.New(t, 1)
	pool := c.Pool("v4", "10.66.0.0/24", "10.66.0.2-10.66.0.9")
	w := &walk{Cluster: c, n: c.Nodes[0], host: c.Host(netip.MustParsePrefix("10.66.0.1/24"))}
	w.accounted = func(ctx context.Context) error { return c.LeasesAreLiving(ctx, v1alpha1.StateRetained) }
	t.Run("first, addresses go round over restarts of the agent", func(t *testing.T) { w.in(t).rotate() })
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

// walk visits all crash points of one node.
type walk struct {
	*nodes.Cluster
	t    *testing.T
	n    *nodes.Node
	host *namespaces.Host
	pods int
	// accounted returns an error unless each lease is a living pod's, kept for a name, or ready.
	accounted func(context.Context) error
	// once: the plugin of the pods, like host-device, fails when a DEL is repeated after its success.
	once, deleted bool
}

func (w *walk) in(t *testing.T) *walk {
	w.t = t
	return w
}

// play runs one fault at one step, and then acts as a kubelet does.
func (w *walk) play(v verb, s step, f fault) {
	t := w.t
	ctx := within(t, nodes.Limit)
	pod := w.pod(ctx, v.kept)
	if v.kept && !v.isDel {
		// An earlier pod of the name leaves the address Retained.
		earlier := check.Value(w.n.Begin(ctx, pod))(t)
		check.OK(t, earlier.Finish(ctx))
		pod = w.again(ctx, pod)
	}
	sandbox := w.broken(ctx, v, s, f, pod)
	if w.once && w.deleted {
		check.OK(t, sandbox.Remove())
	} else if !sandbox.Lives() {
		// The ADD has failed, or this is about DEL: the runtime sends DEL until it succeeds.
		check.OK(t, sandbox.End(ctx))
	}
	check.OK(t, w.n.AwaitAgent(ctx))
	if v.isDel {
		w.awaitLeases(ctx, "the DEL is carried out")
	}
	if !sandbox.Lives() {
		sandbox = check.Value(w.n.Begin(ctx, pod))(t)
	}
	w.Eventually(t, "the leases are those of the living", func() error { return w.LeasesAreLiving(ctx) })
	w.speaksAlone(ctx, sandbox)

	check.OK(t, sandbox.Finish(ctx))
	w.awaitLeases(ctx, "all is given back")
	check.OK(t, w.DeleteAllOf(ctx, &v1alpha1.IPLease{}))
}

// broken makes the call in which the fault strikes, and waits for the undo. A frame does not wait for
// the test, so on a busy machine a call may have gone on when the test sees its probe or claim. Then
// the pod gets another sandbox.
func (w *walk) broken(ctx context.Context, v verb, s step, f fault, pod *corev1.Pod) *nodes.Sandbox {
	const tries = 5
	for range tries {
		sandbox, err := w.struck(ctx, v, s, f, pod)
		if err == nil {
			err = w.undone(ctx, v, s, f, sandbox)
		}
		if !errors.Is(err, errPassed) {
			check.OK(w.t, err)
			return sandbox
		}
		w.t.Logf("%v: once more", err)
		check.OK(w.t, sandbox.End(ctx))
	}
	w.t.Fatalf("the step was passed in each of %d tries", tries)
	return nil
}

// undone waits until the agent has undone an ADD without a DEL. It returns errPassed if the ADD had
// succeeded before the fault struck.
func (w *walk) undone(ctx context.Context, v verb, s step, f fault, sandbox *nodes.Sandbox) (passed error) {
	if f.undone == byTheNext {
		check.OK(w.t, w.n.AwaitAgent(ctx))
	}
	if f.undone == byNobody || v.isDel || answered(v, s, f) {
		return nil
	}
	w.Eventually(w.t, "the ADD is undone without a DEL", func() error {
		entries, err := w.n.Entries()
		if err == nil && s.mayPass() && entries[sandbox.Attachment()].Phase == attachment.Bound {
			passed = errPassed
			return nil
		}
		return errors.Join(err, w.accounted(ctx))
	})
	return passed
}

// awaitLeases waits until each lease is accounted for.
func (w *walk) awaitLeases(ctx context.Context, what string) {
	w.t.Helper()
	w.Eventually(w.t, what, func() error { return w.accounted(ctx) })
}

// struck makes the call once. Its error wraps errPassed if the step was over and nothing broke.
func (w *walk) struck(ctx context.Context, v verb, s step, f fault, pod *corev1.Pod) (*nodes.Sandbox, error) {
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
	check.OK(t, err)
	var stands error
	met := w.n.At(s.at, s.nth, func() (err error) {
		if stands = w.stands(ctx, s, sandbox); stands == nil {
			err = f.strike(w.n)
			if f.undone == byTheAgent && isSent(s.at) {
				// A call that the agent gives up does not arrive; agent/recovery tests that it may.
				err = errors.Join(err, errCut)
			}
		}
		return err
	})
	err = call(sandbox, ctx)
	w.deleted = v.isDel && err == nil
	select {
	case <-met:
	case <-ctx.Done():
		t.Fatalf("the step has not come; the call ended with %v", err)
	}
	t.Logf("the call ended with %v", err)
	return sandbox, stands
}

var errPassed = errors.New("the step is over")

// stands returns an error unless the node keeps what the step says.
func (w *walk) stands(ctx context.Context, s step, sandbox *nodes.Sandbox) error {
	for s.guarded {
		guarded, err := sandbox.Guarded()
		if err != nil || ctx.Err() != nil {
			return fmt.Errorf("the guard is awaited: %w", errors.Join(err, ctx.Err()))
		}
		if guarded {
			break
		}
		if s.nth != 1 || s.at != nodes.CreateSent && s.at != nodes.UpdateSent { // nothing is being attached
			return errors.New("the interface is not guarded")
		}
	}
	entries, err := w.n.Entries()
	if err != nil {
		return err
	}
	got := entries[sandbox.Attachment()].Phase
	if s.mayPass() && got == attachment.Bound {
		return errPassed
	}
	if got != s.journal {
		return fmt.Errorf("at this step the journal is in phase %q, want %q", got, s.journal)
	}
	return nil
}

// speaksAlone connects to a living pod's address, and judges that only the pod answers.
func (w *walk) speaksAlone(ctx context.Context, s *nodes.Sandbox) {
	w.t.Helper()
	asked := time.Now()
	w.Eventually(w.t, s.Addr.String()+" answers", func() error {
		return w.host.Do(func() error {
			const discard = "9" // nothing listens there, and the pod says so
			conn, err := net.DialTimeout("tcp", net.JoinHostPort(s.Addr.String(), discard), time.Second)
			if errors.Is(err, unix.ECONNREFUSED) {
				return nil
			}
			if err == nil {
				err = conn.Close()
			}
			return err
		})
	})
	check.Value(w.Frames.Wait(ctx, func(f capture.Frame) bool { return f.Time.After(asked) && slices.Contains(f.Speaks, s.Addr) }))(w.t)
	frames := capture.After(w.Frames.Frames(), asked)
	if speakers := capture.Speakers(frames, s.Addr); len(speakers) != 1 || speakers[0] != s.MAC.String() {
		w.t.Errorf("%v speak for %s, which is that of %s", speakers, s.Addr, s.MAC)
	}
}

// rotate judges that each pod gets the address after its predecessor's.
func (w *walk) rotate() {
	t := w.t
	ctx := within(t, nodes.Limit)
	first, last := netip.MustParseAddr("10.66.0.2"), netip.MustParseAddr("10.66.0.9")
	var want netip.Addr
	for range 4 {
		pod := w.pod(ctx, false)
		s := check.Value(w.n.Begin(ctx, pod))(t)
		check.That(t, !want.IsValid() || s.Addr == want, "%s follows, want %s", s.Addr, want)
		if want = s.Addr.Next(); s.Addr == last {
			want = first
		}
		check.OK(t, errors.Join(s.End(ctx), w.ForgetPod(ctx, pod), w.n.StopAgent(), w.n.AwaitAgent(ctx)))
	}
}

// exhaust takes every address of the pool, which shows that none was lost, and gives them back.
func (w *walk) exhaust(pool *v1alpha1.IPPool) {
	t := w.t
	ctx := within(t, 2*nodes.Limit)
	const size = 8
	for range size {
		s := check.Value(w.n.Begin(ctx, w.pod(ctx, false)))(t)
		w.speaksAlone(ctx, s)
	}
	w.Eventually(t, "the pool is full of the living", func() error { return w.LeasesAreLiving(ctx) })
	for _, s := range w.Living() {
		check.OK(t, s.End(ctx))
	}
	w.Eventually(t, "all is given back", func() error { return w.LeasesAreLiving(ctx) })
	w.Eventually(t, "the guards are swept", func() error {
		if guards, err := w.n.Guards(); err != nil || len(guards) > 0 {
			return fmt.Errorf("guards %v are pinned: %w", guards, err)
		}
		return nil
	})
	check.OK(t, w.Delete(ctx, pool, client.GracePeriodSeconds(0)))
}

// again makes another pod of the same name.
func (w *walk) again(ctx context.Context, pod *corev1.Pod) *corev1.Pod {
	w.t.Helper()
	return check.Value(w.n.NewPod(ctx, pod.Name, func(next *corev1.Pod) { next.OwnerReferences = pod.OwnerReferences }))(w.t)
}

// pod makes a pod; a kept one is a StatefulSet's.
func (w *walk) pod(ctx context.Context, kept bool) *corev1.Pod {
	w.t.Helper()
	w.pods++
	return check.Value(w.n.NewPod(ctx, fmt.Sprintf("pod-%d", w.pods), func(pod *corev1.Pod) {
		if kept {
			pod.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "StatefulSet", Name: "pod", UID: "u", Controller: ptr.To(true)}}
		}
	}))(w.t)
}

// step is a point of a verb at which a fault may strike.
type step struct {
	name string
	// The nth moment of this kind shows a bystander that the verb has reached the step.
	at  nodes.Moment
	nth int
	// journal is the phase of the sandbox in the journal by then.
	journal attachment.Phase
	// guarded: the guard enforces by then. At the first write, the test waits for it.
	guarded bool
}

// verb is a call of the plugin with its steps in order.
type verb struct {
	name string
	// kept: the pod keeps its name and its address. warm: a Warm lease is ready.
	kept, warm bool
	isDel      bool
	steps      []step
}

const none attachment.Phase = ""

// mayPass reports whether the test sees the step by a frame, for which the ADD does not wait.
func (s step) mayPass() bool {
	return (s.at == nodes.Probed || s.at == nodes.Claimed) && s.journal == attachment.Intent
}

// verbs returns the crash points of each verb.
func verbs() []verb {
	return []verb{
		{name: "ADD", steps: []step{
			{"the call arrives", nodes.AddCalled, 1, none, false},
			{"the intent is journalled", nodes.CreateSent, 1, attachment.Intent, false},
			{"the guard enforces", nodes.CreateSent, 1, attachment.Intent, true},
			{"the lease is created and the agent does not know", nodes.CreateDone, 1, attachment.Intent, false},
			{"the address is probed", nodes.Probed, 1, attachment.Intent, true},
			{"the address is claimed", nodes.Claimed, 1, attachment.Intent, true},
			{"the binding is journalled and the answer written", nodes.AddAnswered, 1, attachment.Bound, true},
			{"the pod speaks", nodes.Announced, 1, attachment.Bound, true},
		}},
		{name: "ADD of a kept address", kept: true, steps: []step{
			{"the call arrives", nodes.AddCalled, 1, none, false},
			{"the intent is journalled", nodes.UpdateSent, 1, attachment.Intent, false},
			{"the lease is taken over and the agent does not know", nodes.UpdateDone, 1, attachment.Intent, false},
			{"the address is claimed", nodes.Claimed, 1, attachment.Intent, true},
			{"the address is probed", nodes.Probed, 1, attachment.Intent, true},
			{"the take-over is about to be confirmed", nodes.UpdateSent, 2, attachment.Intent, true},
			{"the take-over is confirmed and the agent does not know", nodes.UpdateDone, 2, attachment.Intent, true},
			{"the binding is journalled and the answer written", nodes.AddAnswered, 1, attachment.Bound, true},
		}},
		{name: "DEL", isDel: true, steps: []step{
			{"the call arrives", nodes.DelCalled, 1, attachment.Bound, true},
			{"the release is journalled", nodes.GetSent, 1, attachment.Releasing, true},
			{"the lease is about to be deleted", nodes.DeleteSent, 1, attachment.Releasing, true},
			{"the lease is deleted and the agent does not know", nodes.DeleteDone, 1, attachment.Releasing, true},
			{"the entry is forgotten and the answer written", nodes.DelAnswered, 1, none, false},
		}},
		{name: "DEL of a kept address", kept: true, isDel: true, steps: []step{
			{"the call arrives", nodes.DelCalled, 1, attachment.Bound, true},
			{"the release is journalled", nodes.GetSent, 1, attachment.Releasing, true},
			{"the lease is about to be Retained", nodes.UpdateSent, 1, attachment.Releasing, true},
			{"the lease is Retained and the agent does not know", nodes.UpdateDone, 1, attachment.Releasing, true},
			{"the entry is forgotten and the answer written", nodes.DelAnswered, 1, none, false},
		}},
	}
}

// fault is something that breaks at a step.
type fault struct {
	name string
	// strike causes the fault. Its error closes the connection on which the step was seen.
	strike func(*nodes.Node) error
	// at reports whether the fault can strike there.
	at func(verb, step) bool
	// undone is the undoer of an ADD before its DEL.
	undone undoer
}

// undoer undoes an ADD whose answer reached nobody.
type undoer int

const (
	byNobody undoer = iota
	byTheAgent
	byTheNext
)

// answered reports whether the agent may believe that the plugin got its answer: the end of a plugin
// is noticed a moment later, and the agent waits for nothing after the confirmation of a take-over, or
// after the binding of a Warm address, which is claimed after the answer.
func answered(v verb, s step, f fault) bool {
	return s.at == nodes.AddAnswered || s.at == nodes.Announced || s.at == nodes.UpdateDone && s.nth == 2 ||
		v.warm && (s.at == nodes.Claimed || s.at == nodes.UpdateDone && f.name == pluginKilled)
}

const pluginKilled = "the plugin is killed"

var errCut = errors.New("cut")

func faults() []fault {
	waits := func(v verb, s step) bool { return s.at != nodes.Announced && !(v.warm && s.at == nodes.Claimed) }
	return []fault{
		{"the agent is killed", (*nodes.Node).KillAgent, func(v verb, _ step) bool { return !v.kept || v.isDel }, byNobody},
		{"the agent is killed and starts again before the DEL", (*nodes.Node).KillAgent, func(v verb, _ step) bool { return !v.isDel }, byTheNext},
		{pluginKilled, (*nodes.Node).KillPlugins, waits, byTheAgent},
		{"the connection is closed", func(n *nodes.Node) error { n.CloseConnections(); return nil }, func(v verb, s step) bool {
			return !v.kept && !v.warm && waits(v, s) // to the agent it is the same as the plugin's end
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
