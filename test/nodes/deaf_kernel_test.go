// SPDX-License-Identifier: Apache-2.0

//go:build kernel

package nodes_test

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fenceline/fenceline/agent/segment"
	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/test/capture"
	"github.com/fenceline/fenceline/test/check"
	"github.com/fenceline/fenceline/test/namespaces"
	"github.com/fenceline/fenceline/test/nodes"
)

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
	o := &off{Cluster: c, t: t, ctx: ctx, host: host}
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
	check.OK(t, home.KillAgent())
	o.report(home, corev1.ConditionUnknown)
	cut := time.Now()
	check.OK(t, c.ForgetPod(ctx, zombie.Pod))

	const tries, why = 4, "no other node was heard on the parent for "
	c.Eventually(t, "verdicts that prove nothing", func() error {
		lease := &v1alpha1.IPLease{}
		if err := c.Get(ctx, client.ObjectKey{Name: zombie.Addr.String()}, lease); err != nil {
			t.Fatalf("the lease is gone while its pod lives: %v", err)
		}
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
	check.That(t, o.answers(zombie.Addr), "the zombie with %s does not serve its clients", zombie.Addr)

	zombie.Abandon()
	healed := time.Now()
	check.OK(t, c.Isolate(false))
	next := begin(ctx, t, c, crowd(t, c, "next", 2)[1:])[0]
	t.Logf("the address has a new holder %s after the underlay was whole", time.Since(healed).Round(time.Millisecond))
	check.Equal(t, next.Addr, zombie.Addr, "the next pod has")
	about := capture.About(capture.After(c.Frames.Frames(), healed), zombie.Addr)
	acks := slices.DeleteFunc(capture.Of(about, "ack"), func(f capture.Frame) bool { return f.Port != "ul-"+home.Name })
	check.That(t, len(acks) != 0, "the kernel of %s acknowledged no claim: %v", home.Name, about)
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
