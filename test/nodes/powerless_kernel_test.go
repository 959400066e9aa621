// SPDX-License-Identifier: Apache-2.0

//go:build kernel

package nodes_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/fenceline/fenceline/agent/segment"
	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/test/capture"
	"github.com/fenceline/fenceline/test/check"
	"github.com/fenceline/fenceline/test/namespaces"
	"github.com/fenceline/fenceline/test/nodes"
)

// servedLimit is the longest time without service once the address of a lost pod is due. It is too
// short for help by a person.
const servedLimit = 15 * time.Second

// A node with three pods loses its power: web-0 of a StatefulSet, and two pods with a pool of one
// address each. Pods of another pool use the same parent on the other nodes. The pools have no
// spec.parents, but these nodes have heard the lost pods there, in whichever order pods started. The
// next pods get the addresses, proven by silence, and keep them when the node is back.
func TestAddressesOfANodeWithoutPowerServeOtherPods(t *testing.T) {
	ctx, c := cluster(t, 2*nodes.Limit, 3)
	c.Pool("v4", "10.66.0.0/24", "10.66.0.2-10.66.0.9")
	c.NamedPool("early", "10.66.0.0/24", "10.66.0.20")
	c.NamedPool("late", "10.66.0.0/24", "10.66.0.21")
	c.StartController()
	host := c.Host(netip.MustParsePrefix("10.66.0.1/24"))
	dark, light := c.Nodes[0], c.Nodes[1]
	web := webSet()
	check.OK(t, c.Create(ctx, web)) // it keeps the address until the next pod takes it
	all := []*powerless{
		{was: "early-1", is: "early-2", change: nodes.Wants("early")},
		{was: "web-0", is: "web-0", change: webOf(web.UID)},
		{was: "late-1", is: "late-2", change: nodes.Wants("late")},
	}
	all[0].lost = started(ctx, t, dark, all[0].was, all[0].change)
	begin(ctx, t, c, crowd(t, c, "heard", len(c.Nodes))[1:]) // so that the silence of others counts
	for _, p := range all[1:] {
		p.lost = started(ctx, t, dark, p.was, p.change)
	}

	check.OK(t, errors.Join(dark.CutUnderlay(), dark.Fall(ctx)))
	for _, p := range all {
		check.OK(t, p.lost.Remove())
	}
	cut := time.Now()
	for _, p := range all {
		check.OK(t, p.lost.Outlive(ctx))
		due := time.Now()
		soon, cancel := context.WithTimeout(ctx, nodes.Limit/3)
		defer cancel()
		p.next = started(soon, t, light, p.is, p.change)
		served := time.Since(due)
		t.Logf("%s serves %s after %s was due", p.is, served.Round(time.Millisecond), p.was)
		check.That(t, served <= servedLimit, "%s waited for %s; %s are allowed", p.is, served, servedLimit)
		check.Equal(t, p.next.Addr, p.lost.Addr, "%s had %s and %s has", p.was, p.lost.Addr, p.is)
		check.OK(t, host.Command(ctx, "ping", "-q", "-c", "1", "-w", "30", p.next.Addr.String()).Run())
	}

	check.OK(t, errors.Join(dark.HealUnderlay(), dark.Rise(ctx)))
	for _, p := range all {
		check.OK(t, p.lost.End(ctx))
	}
	c.Eventually(t, "the leases are those of the living", func() error { return c.LeasesAreLiving(ctx) })
	for _, p := range all {
		check.OK(t, host.Command(ctx, "ping", "-q", "-c", "1", "-w", "30", p.next.Addr.String()).Run())
		speakers := capture.Speakers(capture.After(c.Frames.Frames(), cut), p.next.Addr)
		check.That(t, slices.Equal(speakers, []string{p.next.MAC.String()}), "since the cut, %v speak for %s of %s", speakers, p.next.Addr, p.is)
	}
	check.OK(t, c.SpeakersAreHolders())
}

// powerless is a pod whose node has lost its power, and the next pod with its address.
type powerless struct {
	was, is    string
	change     func(*corev1.Pod)
	lost, next *nodes.Sandbox
}

// started makes a pod on a node, and a sandbox with an address for it.
func started(ctx context.Context, t *testing.T, n *nodes.Node, name string, change func(*corev1.Pod)) *nodes.Sandbox {
	t.Helper()
	pod := check.Value(n.NewPod(ctx, name, change))(t)
	return check.Value(n.Begin(ctx, pod))(t)
}

// empty makes a pod on a node, and a sandbox without an address for it.
func empty(ctx context.Context, t *testing.T, n *nodes.Node, name string, change func(*corev1.Pod)) *nodes.Sandbox {
	t.Helper()
	pod := check.Value(n.NewPod(ctx, name, change))(t)
	return check.Value(n.NewSandbox(pod))(t)
}

// Two switches are not connected, and both have a parent of the same name. Nodes that have never heard the
// holder of an address cannot prove that it is silent, even if they hear each other in the same subnet.
func TestSilenceOnAnotherSegmentOfTheSameNameProvesNothing(t *testing.T) {
	ctx, c := cluster(t, 2*nodes.Limit, 3)
	c.Pool("v4", "10.66.0.0/24", "10.66.0.2-10.66.0.9")
	c.NamedPool("own", "10.66.0.0/24", "10.66.0.20")
	dark := c.Nodes[0]
	check.OK(t, dark.MoveElsewhere())
	c.StartController()
	begin(ctx, t, c, crowd(t, c, "heard", len(c.Nodes))[1:])
	was := started(ctx, t, dark, "app-1", nodes.Wants("own"))

	// The pod lives on behind a cut management network.
	check.OK(t, errors.Join(dark.Fall(ctx), was.Outlive(ctx)))
	var asked []string
	c.Eventually(t, "both other nodes say that they cannot tell", func() error {
		l, err := c.Lease(ctx, was.Addr)
		check.Must(t, err == nil, "the lease is gone while its pod lives: %v", err)
		if l.Spec.State == v1alpha1.StateQuarantined && l.Spec.Message != "" && !slices.Contains(asked, l.Spec.NodeName) {
			asked = append(asked, l.Spec.NodeName)
			t.Logf("%s: %s", l.Spec.NodeName, l.Spec.Message)
		}
		if len(asked) < 2 {
			return fmt.Errorf("%s %s at %s: %q", l.Spec.State, l.Spec.Reason, l.Spec.NodeName, l.Spec.Message)
		}
		return nil
	})
	check.OK(t, c.SpeakersAreHolders())
}

// Each node is alone on the underlay, and one of them is cut off from the API server. The others can
// neither fence the zombie there nor hear it. They have heard no other node for a while, so they
// know that silence proves nothing (R2), although the gateway answers them. When the underlay is
// whole again, the zombie is fenced.
func TestSilenceFreesNoAddressIfTheListenersAreDeaf(t *testing.T) {
	ctx, c := cluster(t, segment.HearingWindow+3*nodes.Limit, 3)
	pool := c.Pool("v4", "10.66.0.0/24", "10.66.0.2-10.66.0.4") // as many as pods
	pool.Spec.Gateway = ptr.To("10.66.0.1")
	change(ctx, t, c, pool)
	c.StartController()
	host := c.Host(netip.MustParsePrefix("10.66.0.1/24"))
	zombie := begin(ctx, t, c, crowd(t, c, "pod", len(c.Nodes)))[0]
	home, others := c.Nodes[0], c.Nodes[1:]
	l := &leak{Cluster: c, host: host, zombies: []*nodes.Sandbox{zombie}}
	hush := l.speak(ctx, t)

	check.OK(t, c.Isolate(true))
	parent := map[string]string{"parent": namespaces.Parent}
	c.Eventually(t, "the other agents are deaf", func() error {
		deaf, err := sum(ctx, others, "fenceline_segment_deaf", parent)
		if err == nil && int(deaf) != len(others) {
			err = fmt.Errorf("%v of %d are", deaf, len(others))
		}
		return err
	})
	unknown := map[string]string{"verdict": string(segment.Unknown)}
	before := check.Value(sum(ctx, others, "fenceline_verifications_total", unknown))(t)
	check.OK(t, home.Fall(ctx))
	cut := time.Now()
	check.OK(t, c.ForgetPod(ctx, zombie.Pod))

	const tries, why = 4, "no other node was heard on the parent for "
	c.Eventually(t, "verdicts that prove nothing", func() error {
		lease, err := c.Lease(ctx, zombie.Addr)
		check.Must(t, err == nil, "the lease is gone while its pod lives: %v", err)
		if lease.Spec.Holder != nil && lease.Spec.Holder.PodUID != string(zombie.Pod.UID) {
			t.Fatalf("the address was not to leave its quarantine: it is %s of %+v", lease.Spec.State, lease.Spec.Holder)
		}
		now, err := sum(ctx, others, "fenceline_verifications_total", unknown)
		if err == nil && (now-before < tries || lease.Spec.State != v1alpha1.StateQuarantined || !strings.Contains(lease.Spec.Message, why)) {
			err = fmt.Errorf("there are %v, and the lease is %s: %q", now-before, lease.Spec.State, lease.Spec.Message)
		}
		return err
	})
	got := capture.Speakers(capture.After(c.Frames.Frames(), cut), zombie.Addr)
	check.That(t, slices.Equal(got, []string{zombie.MAC.String()}), "%v speak for %s, not only the zombie %s", got, zombie.Addr, zombie.MAC)
	served := host.Command(ctx, "ping", "-q", "-c", "3", "-i", "0.2", "-W", "1", zombie.Addr.String()).Run()
	check.That(t, served == nil, "the zombie with %s does not serve its clients", zombie.Addr)

	zombie.Abandon()
	healed := time.Now()
	check.OK(t, c.Isolate(false))
	next := begin(ctx, t, c, crowd(t, c, "next", 2)[1:])[0]
	t.Logf("the address has a new holder %s after the underlay was whole", time.Since(healed).Round(time.Millisecond))
	check.Equal(t, next.Addr, zombie.Addr, "the next pod has")
	c.Eventually(t, "an ack of the kernel of "+home.Name+" is captured", func() error {
		about := capture.About(capture.After(c.Frames.Frames(), healed), zombie.Addr)
		if !slices.ContainsFunc(capture.Of(about, "ack"), func(f capture.Frame) bool { return f.Port == "ul-"+home.Name }) {
			return fmt.Errorf("there is none: %v", about)
		}
		return nil
	})
	l.areMute(ctx, t, next.Since)
	hush()
	check.OK(t, host.Command(ctx, "ping", "-q", "-c", "1", "-w", "30", next.Addr.String()).Run())
	check.OK(t, c.SpeakersAreHolders())
}

// sum adds up a counter or gauge of the agents of some nodes.
func sum(ctx context.Context, all []*nodes.Node, name string, labels map[string]string) (float64, error) {
	total := 0.0
	for _, n := range all {
		value, err := n.Sum(ctx, name, labels)
		if err != nil {
			return 0, err
		}
		total += value
	}
	return total, nil
}
