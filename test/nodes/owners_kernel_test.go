// SPDX-License-Identifier: Apache-2.0

//go:build kernel

package nodes_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/internal/owner"
	"github.com/fenceline/fenceline/test/capture"
	"github.com/fenceline/fenceline/test/check"
	"github.com/fenceline/fenceline/test/namespaces"
	"github.com/fenceline/fenceline/test/nodes"
	"github.com/fenceline/fenceline/test/owners"
)

// The identity of a virtual machine is the machine, not the name of its pod. The StatefulSet of
// another project reuses its pod names. The address comes back after a restart, after a stop, and on
// another node when the first one is cut off. It ends with its owner.
func TestAddressesOfOwnersOfOtherProjects(t *testing.T) {
	t.Parallel()
	p := newProjects(t, 3, "Halted")
	begin(p.ctx, t, p.Cluster, crowd(t, p.Cluster, "heard", len(p.Nodes))[1:]) // so that the silence of others counts
	first, second := p.Nodes[0], p.Nodes[1]
	p.start("first", first, first)
	p.end()
	p.start("a restart", second, second)
	p.end()
	p.start("back on the first node", first, first)
	p.cutItsCable()
	check.OK(t, p.SpeakersAreHolders())
}

// cutItsCable: the node is cut off from the API server for a time, and its pods are zombies. The
// garbage collector deletes the pods of owners that are gone.
func (p *projects) cutItsCable() {
	cut := p.Nodes[0]
	zombies := []*zombie{p.zombie(p.web), p.zombie(p.db)}
	cut.ShutAPI(true)
	check.OK(p.t, cut.Report(p.ctx, corev1.ConditionUnknown))
	since := time.Now()
	for _, z := range zombies {
		check.OK(p.t, z.Outlive(p.ctx))
	}
	p.start("the old pods are zombies", p.Nodes[1], p.Nodes[2])
	heard := []func(){p.hears(p.web.Addr), p.hears(p.db.Addr)}
	for i, s := range []*nodes.Sandbox{p.web, p.db} {
		zombies[i].passesTo(s, since)
	}

	back := time.Now()
	cut.ShutAPI(false)
	check.OK(p.t, cut.Report(p.ctx, corev1.ConditionTrue))
	for _, z := range zombies {
		check.OK(p.t, z.End(p.ctx))
	}
	p.Eventually(p.t, "the leases are those of the living", func() error { return p.LeasesAreLiving(p.ctx) })
	for i, s := range []*nodes.Sandbox{p.web, p.db} {
		heard[i]()
		zombies[i].speaksAlone(s, back)
		p.isBoundTo(s)
	}

	check.OK(p.t, p.Server.StartControllerManager())
	p.stop()
	check.OK(p.t, errors.Join(p.Delete(p.ctx, p.set), p.Delete(p.ctx, p.machine)))
	for _, s := range []*nodes.Sandbox{p.web, p.db} {
		p.Eventually(p.t, "the garbage collector deletes pod "+s.Pod.Name, func() error {
			if err := p.Get(p.ctx, client.ObjectKeyFromObject(s.Pod), s.Pod); err != nil || s.Pod.DeletionTimestamp == nil {
				return errors.Join(errors.New("it is not deleted"), client.IgnoreNotFound(err))
			}
			return nil
		})
		check.OK(p.t, s.Finish(p.ctx))
	}
	p.isFree()
}

// R15: source and target of a live migration have one address. The target is mute until KubeVirt
// reports that the machine runs there. Then it speaks, and the source is fenced, but not deleted.
func TestALiveMigrationHandsTheAddressOver(t *testing.T) {
	t.Parallel()
	p := newProjects(t, 2, "Always")
	source := p.zombie(p.launch(p.Nodes[0]))
	heard, began := p.hears(source.Addr), time.Now()
	target := p.launch(p.Nodes[1], func(pod *corev1.Pod) { pod.Labels[owner.LabelMigration] = "m" })
	check.Must(t, target.Addr == source.Addr, "the target has %s, the source %s", target.Addr, source.Addr)
	state := map[string]any{"sourcePod": source.Pod.Name, "targetPod": target.Pod.Name}
	report := func(key string, value any) {
		t.Helper()
		state[key] = value
		check.OK(t, unstructured.SetNestedMap(p.instance.Object, state, "status", "migrationState"))
		check.OK(t, p.Update(p.ctx, p.instance))
	}
	report("mode", "PreCopy")
	speaking := source.sent.Load()
	p.Eventually(t, "the source speaks on", func() error {
		if source.sent.Load() < speaking+10 {
			return errors.New("it does not")
		}
		return nil
	})
	heard()
	source.speaksAlone(source.Sandbox, began)
	p.isBoundTo(source.Sandbox)

	since := time.Now()
	report("targetNodeDomainReadyTimestamp", "2030-01-01T12:00:00Z")
	p.Eventually(t, "the target has the address", func() error { return p.boundTo(target) })
	source.passesTo(target, since)
	heard = p.hears(source.Addr)
	check.OK(t, p.Get(p.ctx, client.ObjectKeyFromObject(source.Pod), source.Pod))
	check.That(t, source.Pod.DeletionTimestamp == nil, "the source was deleted")

	ended := time.Now()
	report("completed", true)
	check.OK(t, source.Finish(p.ctx))
	heard()
	source.speaksAlone(target, ended)
	p.isBoundTo(target)
	check.OK(t, p.LeasesAreLiving(p.ctx))
}

// projects is a cluster with a pod of OpenKruise's StatefulSet web, and a pod of KubeVirt's virtual machine
// db. No controller of these projects runs: the test makes the pods, and an instance for each start of the
// machine.
type projects struct {
	*nodes.Cluster
	t                      *testing.T
	ctx                    context.Context
	host                   *namespaces.Host
	set, machine, instance *unstructured.Unstructured
	launched               int
	// web and db are the present sandboxes.
	web, db *nodes.Sandbox
}

// newProjects installs both projects while the controller runs with the rights of the chart.
func newProjects(t *testing.T, count int, runStrategy string) *projects {
	t.Helper()
	ctx := within(t, 2*nodes.Limit)
	c := nodes.New(t, count)
	pool := c.Pool("v4", "10.66.0.0/24", "10.66.0.2-10.66.0.29")
	c.StartChartsController()
	c.Eventually(t, "the controller runs", func() error {
		if err := c.Get(ctx, client.ObjectKeyFromObject(pool), pool); err != nil || meta.IsStatusConditionTrue(pool.Status.Conditions, v1alpha1.ConditionReady) {
			return err
		}
		return fmt.Errorf("the conditions of the pool are %v", pool.Status.Conditions)
	})
	check.OK(t, owners.Install(ctx, c.Server.Admin(), append(owners.Machines(), owners.StatefulSets())...))
	p := &projects{
		Cluster: c, t: t, ctx: ctx, host: c.Host(netip.MustParsePrefix("10.66.0.1/24")),
		set: owners.StatefulSet(nodes.Shop, "web", 1), machine: owners.Machine(nodes.Shop, "db", runStrategy), instance: owners.Instance(nodes.Shop, "db"),
	}
	check.OK(t, errors.Join(c.Create(ctx, p.set), c.Create(ctx, p.machine), c.Create(ctx, p.instance)))
	return p
}

// start starts the next pod of each owner, which has the address of the last one.
func (p *projects) start(what string, webOn, dbOn *nodes.Node) {
	p.t.Helper()
	was := []*nodes.Sandbox{p.web, p.db}
	p.stop()
	p.instance = owners.Instance(nodes.Shop, "db")
	check.OK(p.t, p.Create(p.ctx, p.instance))
	p.web, p.db = p.begin(webOn, "web-0", ownedBy(p.set, owners.OfSet)), p.launch(dbOn)
	for i, s := range []*nodes.Sandbox{p.web, p.db} {
		p.isBoundTo(s)
		if was[i] != nil && s.Addr != was[i].Addr {
			p.t.Errorf("%s: pod %s had %s, and pod %s has %s", what, was[i].Pod.Name, was[i].Addr, s.Pod.Name, s.Addr)
		}
		p.hears(s.Addr)()
	}
}

// launch starts a launcher pod of the virtual machine. Each has another name.
func (p *projects) launch(n *nodes.Node, change ...func(*corev1.Pod)) *nodes.Sandbox {
	p.t.Helper()
	p.launched++
	return p.begin(n, fmt.Sprintf("virt-launcher-db-%d", p.launched), append([]func(*corev1.Pod){ownedBy(p.instance, owners.OfMachine)}, change...)...)
}

func (p *projects) begin(n *nodes.Node, name string, changes ...func(*corev1.Pod)) *nodes.Sandbox {
	p.t.Helper()
	return started(p.ctx, p.t, n, name, func(pod *corev1.Pod) {
		for _, change := range changes {
			change(pod)
		}
	})
}

// ownedBy gives a pod an owner that exists. Kubernetes deletes a pod whose owner has another UID.
func ownedBy(o *unstructured.Unstructured, of func(string) func(*corev1.Pod)) func(*corev1.Pod) {
	return func(pod *corev1.Pod) {
		of(o.GetName())(pod)
		pod.OwnerReferences[0].UID = o.GetUID()
	}
}

// stop stops the virtual machine.
func (p *projects) stop() {
	p.t.Helper()
	check.OK(p.t, client.IgnoreNotFound(p.Delete(p.ctx, p.instance)))
}

// end ends both pods, and the machine is stopped. Their addresses stay.
func (p *projects) end() {
	p.t.Helper()
	p.stop()
	for _, s := range []*nodes.Sandbox{p.web, p.db} {
		check.OK(p.t, s.Finish(p.ctx))
		l := check.Value(p.Lease(p.ctx, s.Addr))(p.t)
		check.That(p.t, l.Spec.State == v1alpha1.StateRetained, "the address of pod %s is %s after its end", s.Pod.Name, l.Spec.State)
	}
}

// isFree waits until both addresses have no lease.
func (p *projects) isFree() {
	p.t.Helper()
	for _, s := range []*nodes.Sandbox{p.web, p.db} {
		p.Eventually(p.t, "the address of pod "+s.Pod.Name+" is free", func() error {
			l, err := p.Lease(p.ctx, s.Addr)
			if err != nil {
				return client.IgnoreNotFound(err)
			}
			return fmt.Errorf("it is %s: %s", l.Spec.State, l.Spec.Message)
		})
	}
}

// boundTo returns an error unless the sandbox has the lease of its address, with nothing left to verify.
func (p *projects) boundTo(s *nodes.Sandbox) error {
	l, err := p.Lease(p.ctx, s.Addr)
	if err != nil {
		return err
	}
	if l.Spec.State != v1alpha1.StateBound || l.Spec.Previous != nil || l.Spec.Holder.PodUID != string(s.Pod.UID) {
		return fmt.Errorf("pod %s has %s, whose lease is %s of %+v, after %+v", s.Pod.Name, s.Addr, l.Spec.State, l.Spec.Holder, l.Spec.Previous)
	}
	return nil
}

func (p *projects) isBoundTo(s *nodes.Sandbox) {
	p.t.Helper()
	check.OK(p.t, p.boundTo(s))
}

// hears waits until the host hears an address, and pings it until stop is called. Every ping must be
// answered.
func (p *projects) hears(addr netip.Addr) (stop func()) {
	p.t.Helper()
	check.OK(p.t, p.host.Command(p.ctx, "ping", "-q", "-c", "1", "-w", "30", addr.String()).Run())
	var ended atomic.Bool
	result := make(chan error, 1)
	go func() {
		for sent := 0; sent == 0 || !ended.Load(); sent++ {
			if err := p.host.Command(p.ctx, "ping", "-q", "-c", "1", "-W", "5", addr.String()).Run(); err != nil {
				result <- fmt.Errorf("ping %d to %s: %w", sent, addr, err)
				return
			}
		}
		result <- nil
	}()
	return func() {
		p.t.Helper()
		ended.Store(true)
		check.OK(p.t, <-result)
	}
}

// zombie is a sandbox that speaks all the time.
type zombie struct {
	*nodes.Sandbox
	*projects
	// sent counts the frames that its kernel accepted, refused those that it dropped.
	sent, refused atomic.Int64
}

func (p *projects) zombie(s *nodes.Sandbox) *zombie {
	p.t.Helper()
	z := &zombie{Sandbox: s, projects: p}
	stop := check.Value(s.Cry(namespaces.PodInterface, s.Addr, &z.sent, &z.refused))(p.t)
	p.t.Cleanup(stop)
	return z
}

// passesTo judges that the address has passed to the next holder since then, by a claim and an ack
// of the zombie's node. The next holder is mute until the ack. Afterwards the zombie still tries to
// speak, and the switch hears only the next holder.
func (z *zombie) passesTo(next *nodes.Sandbox, since time.Time) {
	z.t.Helper()
	change := capture.Change{Addr: z.Addr, Old: z.MAC, New: next.MAC, OldPort: "ul-" + z.Sandbox.Node().Name}
	var p capture.Passage
	z.Eventually(z.t, "a claim, its ack, and frames of the next holder alone", func() (err error) {
		p, err = change.PassageOf(z.Frames.Frames(), since)
		return err
	})
	for _, f := range capture.From(capture.SpokenFor(capture.After(z.Frames.Frames(), since), z.Addr), next.MAC) {
		check.That(z.t, !f.Time.Before(p.Ack.Time), "the next holder of %s spoke before the ack: %s", z.Addr, f)
	}
	refused := z.refused.Load()
	z.Eventually(z.t, "the zombie tries to speak", func() error {
		if z.refused.Load() < refused+10 {
			return fmt.Errorf("its kernel has refused %d frames", z.refused.Load())
		}
		return nil
	})
	z.hears(z.Addr)()
	z.speaksAlone(next, p.Ack.Time.Add(capture.InFlight))
	z.Eventually(z.t, "a live agent has an audit line of the fence", func() error {
		for _, n := range z.Nodes {
			if n == z.Sandbox.Node() {
				continue
			}
			if said, err := n.Said("audit", `"fence"`, z.Addr.String()); err != nil || said {
				return err
			}
		}
		return errors.New("none has one for " + z.Addr.String())
	})
}

// speaksAlone judges that only this sandbox has spoken for the address since then.
func (z *zombie) speaksAlone(s *nodes.Sandbox, since time.Time) {
	z.t.Helper()
	var speakers []string
	z.Eventually(z.t, "the holder of "+z.Addr.String()+" speaks", func() error {
		spoken := capture.SpokenFor(capture.After(z.Frames.Frames(), since), z.Addr)
		speakers = capture.Speakers(spoken, z.Addr)
		if len(capture.From(spoken, s.MAC)) == 0 {
			return fmt.Errorf("only %v speak", speakers)
		}
		return nil
	})
	check.That(z.t, len(speakers) == 1, "%v speak for %s, not only its holder %s", speakers, z.Addr, s.MAC)
}
