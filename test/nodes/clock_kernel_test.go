// SPDX-License-Identifier: Apache-2.0

//go:build kernel

package nodes_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/test/check"
	"github.com/fenceline/fenceline/test/namespaces"
	"github.com/fenceline/fenceline/test/nodes"
)

const (
	// kept is the retention of an address after its pod. It may end after keptAtLeast: records have
	// whole seconds, and a clock that is less than three seconds off counts as right.
	kept, keptAtLeast = 8 * time.Second, 4 * time.Second
	// extraGrace is the option of the rig's controller, mildness the grace of a pod's deletion.
	extraGrace, mildness = time.Second, 2 * time.Second
	// agreement is how far the times of records may be off.
	agreement = time.Minute
)

// The clock of one node is an hour ahead, and the clock of another node is an hour behind. The
// controller's is first ahead and then behind. Addresses are still given, taken and freed in time.
func TestClocksThatAreAnHourOff(t *testing.T) {
	t.Parallel()
	c := nodes.New(t, 3)
	ahead, behind := c.Nodes[0], c.Nodes[1]
	check.OK(t, errors.Join(ahead.SetClock(time.Hour), behind.SetClock(-time.Hour)))
	pool := c.Pool("v4", "10.66.0.0/24", "10.66.0.2-10.66.0.60")
	pool.Spec.Warm, pool.Spec.Parents = ptr.To[int64](1), []string{namespaces.Parent}
	check.OK(t, c.Update(t.Context(), pool))
	c.StartController()
	o := &off{Cluster: c, host: c.Host(netip.MustParsePrefix("10.66.0.1/24"))}
	for _, row := range []struct {
		controller time.Duration
		lost       *nodes.Node
	}{{time.Hour, behind}, {-time.Hour, ahead}} {
		check.OK(t, c.SetControllerClock(row.controller))
		t.Run(fmt.Sprintf("the controller's is off by %s", row.controller), func(t *testing.T) { o.play(t, row.lost) })
		if t.Failed() {
			return
		}
	}
	check.OK(t, c.SpeakersAreHolders())
}

// off is a cluster whose clocks are off.
type off struct {
	*nodes.Cluster
	t    *testing.T
	ctx  context.Context
	host *namespaces.Host
	pods int
}

func (o *off) play(t *testing.T, lost *nodes.Node) {
	ctx := within(t, 4*nodes.Limit)
	o.t, o.ctx = t, ctx
	var dues []due
	for _, n := range o.Nodes {
		dues = append(dues, o.keep(n), o.leak(n), o.terminate(n), o.finish(n))
	}
	for _, d := range dues {
		o.await(d)
		o.end(d.s)
	}
	o.lose(lost)
	o.Eventually(t, "all is given back", func() error { return o.LeasesAreLiving(ctx, v1alpha1.StateWarm) })
}

// due is an address that its holder is about to lose.
type due struct {
	why  string
	s    *nodes.Sandbox
	name string // of the lease
	uid  string
	// early is the earliest time at which the address may be taken.
	early time.Time
	// until is the state that the lease leaves then.
	until v1alpha1.LeaseState
}

// begin starts a pod on a node, and judges the time on its lease.
func (o *off) begin(n *nodes.Node, change func(*corev1.Pod)) (*nodes.Sandbox, *v1alpha1.IPLease) {
	o.t.Helper()
	o.pods++
	pod, err := n.NewPod(o.ctx, fmt.Sprintf("pod-%d", o.pods), func(pod *corev1.Pod) {
		pod.Spec.TerminationGracePeriodSeconds = ptr.To(int64(mildness / time.Second))
		if change != nil {
			change(pod)
		}
	})
	check.OK(o.t, err)
	s := check.Value(n.Begin(o.ctx, pod))(o.t)
	l := &v1alpha1.IPLease{}
	check.OK(o.t, o.Get(o.ctx, client.ObjectKey{Name: s.Addr.String()}, l))
	if age := time.Since(l.Spec.Since.Time); age.Abs() > agreement {
		o.t.Errorf("the lease of %s on %s is %s old, by what it says", s.ContainerID, n.Name, age)
	}
	return s, l
}

// keep ends a pod whose address is retained.
func (o *off) keep(n *nodes.Node) due {
	o.t.Helper()
	s, l := o.begin(n, func(pod *corev1.Pod) {
		pod.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "StatefulSet", Name: "pod", UID: "u", Controller: ptr.To(true)}}
		pod.Annotations = map[string]string{"ipam.fenceline.io/ip-retention": kept.String()}
	})
	early := time.Now().Add(keptAtLeast)
	check.OK(o.t, s.Finish(o.ctx))
	return due{"an address that is kept for " + kept.String(), s, l.Name, string(l.UID), early, v1alpha1.StateRetained}
}

// leak deletes a pod whose node does not notice.
func (o *off) leak(n *nodes.Node) due {
	o.t.Helper()
	s, l := o.begin(n, nil)
	early := time.Now().Add(extraGrace)
	check.OK(o.t, o.ForgetPod(o.ctx, s.Pod))
	return due{"the address of a pod that is gone", s, l.Name, string(l.UID), early, v1alpha1.StateBound}
}

// terminate deletes a pod that does not end.
func (o *off) terminate(n *nodes.Node) due {
	o.t.Helper()
	s, l := o.begin(n, nil)
	check.OK(o.t, o.Delete(o.ctx, s.Pod.DeepCopy()))
	check.OK(o.t, o.Get(o.ctx, client.ObjectKeyFromObject(s.Pod), s.Pod))
	return due{"the address of a pod that does not end", s, l.Name, string(l.UID), s.Pod.DeletionTimestamp.Add(extraGrace), v1alpha1.StateBound}
}

// finish lets a pod end by itself, at a time by its node's clock. If this clock is behind,
// the address is taken early, by an unknown time. That is harmless: the pod is silent.
func (o *off) finish(n *nodes.Node) due {
	o.t.Helper()
	s, l := o.begin(n, nil)
	s.Pod.Status.Phase = corev1.PodSucceeded
	s.Pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "c", State: corev1.ContainerState{
		Terminated: &corev1.ContainerStateTerminated{FinishedAt: metav1.NewTime(time.Now().Add(n.Clock()))},
	}}}
	check.OK(o.t, o.Status().Update(o.ctx, s.Pod))
	return due{"the address of a pod that has finished", s, l.Name, string(l.UID), time.Time{}, v1alpha1.StateBound}
}

// await waits until an address has been taken.
func (o *off) await(d due) {
	o.t.Helper()
	n := d.s.Node()
	o.Eventually(o.t, fmt.Sprintf("%s on %s is taken", d.why, n.Name), func() error {
		l := &v1alpha1.IPLease{}
		err := o.Get(o.ctx, client.ObjectKey{Name: d.name}, l)
		if err == nil && string(l.UID) == d.uid && l.Spec.State == d.until {
			return fmt.Errorf("it is %s since %s: %s", l.Spec.State, l.Spec.Since, l.Spec.Message)
		}
		return client.IgnoreNotFound(err)
	})
	d.s.Abandon()
	if early := time.Until(d.early); early > 0 {
		o.t.Errorf("%s on %s was taken %s too early", d.why, n.Name, early)
	}
}

// end removes the pod and its sandbox, as a kubelet does in the end.
func (o *off) end(s *nodes.Sandbox) {
	o.t.Helper()
	check.OK(o.t, s.Finish(o.ctx))
}

// lose makes a node silent while its pod lives on. The address goes to another node, and the node
// comes back.
func (o *off) lose(n *nodes.Node) {
	o.t.Helper()
	zombie, l := o.begin(n, nil)
	check.OK(o.t, n.KillAgent())
	o.report(n, corev1.ConditionUnknown)
	check.OK(o.t, o.ForgetPod(o.ctx, zombie.Pod))
	o.await(due{"the address of a zombie", zombie, l.Name, string(l.UID), time.Time{}, v1alpha1.StateBound})
	o.Eventually(o.t, "it is free or serves again", func() error {
		err := o.Get(o.ctx, client.ObjectKey{Name: l.Name}, l)
		if err == nil && l.Spec.State == v1alpha1.StateQuarantined {
			return fmt.Errorf("it is Quarantined, %s: %s", l.Spec.Reason, l.Spec.Message)
		}
		return client.IgnoreNotFound(err)
	})
	check.That(o.t, !o.answers(zombie.Addr), "%s answers, whose holder is a zombie", zombie.Addr)
	check.OK(o.t, errors.Join(n.StartAgent(), n.AwaitAgent(o.ctx)))
	o.report(n, corev1.ConditionTrue)
	o.end(zombie)
	again, _ := o.begin(n, nil)
	check.That(o.t, o.answers(again.Addr), "%s does not answer, which lives on a node that is back", again.Addr)
	o.end(again)
}

// answers reports whether a host of the segment reaches an address.
func (o *off) answers(addr netip.Addr) bool {
	return o.host.Command(o.ctx, "ping", "-q", "-c", "3", "-i", "0.2", "-W", "1", addr.String()).Run() == nil
}

// report sets the readiness of a node, as the control plane does.
func (o *off) report(n *nodes.Node, status corev1.ConditionStatus) {
	o.t.Helper()
	check.OK(o.t, n.Report(o.ctx, status))
}
