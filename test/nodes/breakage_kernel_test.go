// SPDX-License-Identifier: Apache-2.0

//go:build kernel

package nodes_test

import (
	"context"
	"errors"
	"net/netip"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/test/await"
	"github.com/fenceline/fenceline/test/check"
	"github.com/fenceline/fenceline/test/namespaces"
	"github.com/fenceline/fenceline/test/nodes"
)

// breakage is one fault in the middle of the calls for a pod with two interfaces.
type breakage struct {
	name string
	// second: the fault strikes during the second call, not the first one.
	second bool
	// strike runs at an update of a lease. Its error closes the connection to the API server.
	strike func(*nodes.Node) error
	// hide: the plugin's binary is gone from the beginning.
	hide bool
}

func breakages() []breakage {
	shut := func(n *nodes.Node) error {
		n.ShutAPI(true)
		return errCut
	}
	return []breakage{
		{name: "nothing"},
		{name: "the plugin's binary is gone", hide: true},
		{name: "the plugin is killed in the first call", strike: (*nodes.Node).KillPlugins},
		{name: "the plugin is killed in the second call", strike: (*nodes.Node).KillPlugins, second: true},
		{name: "the API server is gone in the first call", strike: shut},
		{name: "the API server is gone in the second call", strike: shut, second: true},
		{name: "the agent is killed in the second call", strike: (*nodes.Node).KillAgent, second: true},
	}
}

// begin prepares the fault. each is the number of updates that one call makes. repair ends the
// fault, and reports whether it has struck.
func (b breakage) begin(c *nodes.Cluster, n *nodes.Node, each int) (repair func() error, err error) {
	if b.hide {
		return func() error { return c.HidePlugin(false) }, c.HidePlugin(true)
	}
	if b.strike == nil {
		return func() error { return nil }, nil
	}
	nth := 1
	if b.second {
		nth += each
	}
	met := n.At(nodes.UpdateSent, nth, func() error { return b.strike(n) })
	return func() error {
		n.ShutAPI(false)
		// The call ends with the agent, a moment before the strike has ended.
		select {
		case <-met:
			return nil
		case <-time.After(strikeLimit):
			return errors.New("it did not break")
		}
	}, nil
}

// A pod of a StatefulSet has two interfaces. It ends and starts again, each time on the other node,
// and a fault strikes in the middle. In the end, each interface has the address of its name.
func TestAStatefulSetPodKeepsBothAddressesWhateverBreaks(t *testing.T) {
	t.Parallel()
	c := nodes.New(t, 2)
	c.Pool("first", "10.66.0.0/24", "10.66.0.2-10.66.0.5")
	c.Pool("second", "10.67.0.0/24", "10.67.0.2-10.67.0.5")
	c.StartController()
	ctx := within(t, 2*nodes.Limit)
	p := &twoInterfaces{Cluster: c, on: c.Nodes[0], set: webSet(), pools: `[{"interface":"` + namespaces.PodInterface +
		`","ipv4":["first"]},{"interface":"net1","ipv4":["second"]}]`}
	check.OK(t, c.Create(ctx, p.set))
	check.OK(t, p.start(ctx, func() error { return nil }))
	had := p.addresses()
	for round, b := range breakages() {
		t.Run(b.name, func(t *testing.T) {
			repair := check.Value(b.begin(c, p.on, 1))(t)
			check.OK(t, p.stop(ctx, repair))
			c.Eventually(t, "both addresses are kept", func() error { return c.LeasesAreLiving(ctx, v1alpha1.StateRetained) })

			p.on = c.Nodes[(round+1)%2]
			repair = check.Value(b.begin(c, p.on, 2))(t)
			check.OK(t, p.start(ctx, repair))
			check.Equal(t, p.addresses(), had, "the pod had %v and has", had)
			c.Eventually(t, "the leases are those of the living", func() error { return c.LeasesAreLiving(ctx) })
		})
		if t.Failed() {
			return // the rows share the pod
		}
	}
	check.OK(t, c.SpeakersAreHolders())
}

// twoInterfaces is a pod of a StatefulSet with eth0 and net1, on one node at a time.
type twoInterfaces struct {
	*nodes.Cluster
	on    *nodes.Node
	set   *appsv1.StatefulSet
	pools string // the value of ippools
	pod   *corev1.Pod
	all   []*nodes.Sandbox
}

func (p *twoInterfaces) addresses() [2]netip.Addr { return [2]netip.Addr{p.all[0].Addr, p.all[1].Addr} }

// start makes the pod on its node and acts as a kubelet does: if one interface fails, it gives both
// back, and tries again with a new sandbox. repair is called after the first try.
func (p *twoInterfaces) start(ctx context.Context, repair func() error) error {
	var err error
	p.pod, err = p.on.NewPod(ctx, "web-0", func(pod *corev1.Pod) {
		webOf(p.set.UID)(pod)
		pod.Annotations = map[string]string{v1alpha1.AnnotationPrefix + "ippools": p.pools}
	})
	if err != nil {
		return err
	}
	err = p.try(ctx)
	if broken := repair(); broken != nil {
		return errors.Join(broken, err)
	}
	for err != nil {
		if ended := p.end(ctx); ended != nil || ctx.Err() != nil {
			return errors.Join(err, ended)
		}
		if awaited := p.on.AwaitAgent(ctx); awaited != nil {
			return errors.Join(err, awaited)
		}
		err = p.try(ctx)
	}
	return nil
}

func (p *twoInterfaces) try(ctx context.Context) error {
	first, err := p.on.NewSandbox(p.pod)
	if err != nil {
		return err
	}
	p.all = []*nodes.Sandbox{first, first.Second("net1")}
	for _, s := range p.all {
		if err := s.Add(ctx); err != nil {
			return err
		}
	}
	return nil
}

// stop ends both interfaces, the second one first, and then the pod. It calls repair after the first
// try, and then repeats a DEL that failed.
func (p *twoInterfaces) stop(ctx context.Context, repair func() error) error {
	first := errors.Join(p.all[1].Del(ctx), p.all[0].Del(ctx))
	if err := repair(); err != nil {
		return errors.Join(err, first)
	}
	if first == nil {
		if err := p.all[0].Remove(); err != nil {
			return err
		}
	} else if err := p.end(ctx); err != nil {
		return err
	}
	if err := p.on.AwaitAgent(ctx); err != nil {
		return err
	}
	return p.ForgetPod(ctx, p.pod)
}

func (p *twoInterfaces) end(ctx context.Context) error {
	if err := await.Until(ctx, nodes.Limit, "the DEL of the second interface", p.all[1].Del); err != nil {
		return err
	}
	return p.all[0].End(ctx)
}
