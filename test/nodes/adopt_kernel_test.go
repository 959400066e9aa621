// SPDX-License-Identifier: Apache-2.0

//go:build kernel

package nodes_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os/exec"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fenceline/fenceline/agent/attachment"
	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/test/check"
	"github.com/fenceline/fenceline/test/namespaces"
	"github.com/fenceline/fenceline/test/nodes"
)

// moving is a network whose pods have their addresses from host-local.
type moving struct {
	*nodes.Cluster
	t    *testing.T
	data string
	host *namespaces.Host
}

func newMoving(t *testing.T, count int) (context.Context, *moving) {
	ctx, c := cluster(t, 2*nodes.Limit, count)
	pool := c.Pool("v4", "10.66.0.0/24", "10.66.0.2-10.66.0.99")
	pool.Spec.Parents = []string{namespaces.Parent}
	change(ctx, t, c, pool)
	m := &moving{Cluster: c, t: t, data: t.TempDir(), host: c.Host(netip.MustParsePrefix("10.66.0.1/24"))}
	c.StartChartsController()
	return ctx, m
}

// runs starts a pod by macvlan and host-local, and reports it as a kubelet does.
func (m *moving) runs(ctx context.Context, n *nodes.Node, name, addr string) *nodes.Sandbox {
	m.t.Helper()
	s := m.starts(n, name, m.local(m.data, addr, addr))
	m.reported(ctx, s)
	check.Equal(m.t, s.Addr.String(), addr, "host-local gives")
	return s
}

// local is the configuration of macvlan and host-local with a range.
func (m *moving) local(data, from, to string) string {
	return fmt.Sprintf(`{"cniVersion":"1.0.0","name":"old","plugins":[{"type":"macvlan","master":%q,"mode":"bridge","ipam":{
		"type":"host-local","dataDir":%q,"ranges":[[{"subnet":"10.66.0.0/24","rangeStart":%q,"rangeEnd":%q}]]}}]}`, namespaces.Parent, data, from, to)
}

// starts makes a pod with an empty sandbox of a network.
func (m *moving) starts(n *nodes.Node, name, network string) *nodes.Sandbox {
	m.t.Helper()
	pod := check.Value(n.NewPod(m.t.Context(), name, nil))(m.t)
	return check.Value(n.NewSandboxOf(pod, []byte(network), nil))(m.t)
}

// reported has a sandbox get its address, and reports it as a kubelet does.
func (m *moving) reported(ctx context.Context, s *nodes.Sandbox) {
	m.t.Helper()
	check.OK(m.t, s.Add(ctx))
	addr := s.Addr.String()
	s.Pod.Status = corev1.PodStatus{Phase: corev1.PodRunning, PodIP: addr, PodIPs: []corev1.PodIP{{IP: addr}}}
	check.OK(m.t, m.Status().Update(ctx, s.Pod))
}

// record is the record of a sandbox, as host-local and the pod have it.
func record(s *nodes.Sandbox) v1alpha1.MoveRecord {
	return v1alpha1.MoveRecord{
		Address: s.Addr.String(), Node: s.Node().Name, Namespace: s.Pod.Namespace, Pod: s.Pod.Name, PodUID: string(s.Pod.UID),
		Interface: namespaces.PodInterface, ContainerID: s.ContainerID, MAC: s.MAC.String(), Record: "old/" + s.Addr.String(),
	}
}

// move makes the object of a move with these records.
func (m *moving) move(ctx context.Context, records ...v1alpha1.MoveRecord) {
	m.t.Helper()
	check.OK(m.t, m.Create(ctx, &v1alpha1.Move{ObjectMeta: metav1.ObjectMeta{Name: "old"}, Spec: v1alpha1.MoveSpec{
		From: v1alpha1.MoveHostLocal, Network: "default/old", Pools: []string{"v4"}, Step: v1alpha1.MoveAdopt, Records: records,
	}}))
}

// becomes waits until an address of the move is in a state for a reason.
func (m *moving) becomes(ctx context.Context, addr netip.Addr, state v1alpha1.MoveState, reason string) {
	m.t.Helper()
	m.Eventually(m.t, fmt.Sprintf("%s is %s", addr, state), func() error {
		move := &v1alpha1.Move{}
		if err := m.Get(ctx, client.ObjectKey{Name: "old"}, move); err != nil {
			return err
		}
		for _, a := range move.Status.Addresses {
			if a.Address == addr.String() && a.State == state && strings.Contains(a.Reason, reason) {
				return nil
			}
		}
		return fmt.Errorf("the status is %+v", move.Status)
	})
}

// free waits until an address has no lease.
func (m *moving) free(ctx context.Context, addr netip.Addr) {
	m.t.Helper()
	m.Eventually(m.t, addr.String()+" is free", func() error {
		l, err := m.Lease(ctx, addr)
		if apierrors.IsNotFound(err) {
			return nil
		}
		return errors.Join(fmt.Errorf("its lease is %s %s: %s", l.Spec.State, l.Spec.Reason, l.Spec.Message), err)
	})
}

// pinged pings an address every 10 ms until stop, which returns an error unless each ping was answered.
func (m *moving) pinged(ctx context.Context, addr netip.Addr) (stop func() error) {
	m.t.Helper()
	ping := m.host.Command(ctx, "sh", "-c", "ping -D -i 0.01 "+addr.String()+" & read _; kill -INT $!; wait $!")
	var out bytes.Buffer
	ping.Stdout, ping.Stderr = &out, &out
	in := check.Value(ping.StdinPipe())(m.t)
	ping.Cancel = in.Close // the shell ends its child
	check.OK(m.t, ping.Start())
	return func() error {
		_ = in.Close()
		err := ping.Wait()
		var exit *exec.ExitError
		if err != nil && !errors.As(err, &exit) {
			return err
		}
		answered, last := 0, 0 // the last ones may be under way
		for line := range strings.Lines(out.String()) {
			seq := 0
			if _, text, ok := strings.Cut(line, "icmp_seq="); ok && !strings.Contains(text, "DUP") && check.Err(fmt.Sscan(text, &seq)) == nil {
				answered, last = answered+1, max(last, seq)
			}
		}
		if answered == 0 || answered < last {
			return fmt.Errorf("%d of %d pings were answered: %s", answered, last, out.String())
		}
		m.t.Logf("%d pings were answered", answered)
		return nil
	}
}

// answers returns an error unless an address answers a ping.
func (m *moving) answers(ctx context.Context, addr netip.Addr) error {
	return m.host.Command(ctx, "ping", "-q", "-c", "1", "-w", "2", addr.String()).Run()
}

// reached waits until an address answers.
func (m *moving) reached(ctx context.Context, addr netip.Addr) {
	m.t.Helper()
	m.Eventually(m.t, addr.String()+" answers", func() error { return m.answers(ctx, addr) })
}

// A pod that runs is adopted without the loss of a frame. Afterwards it has what every pod has: it outlives a restart
// of the agent, a claim of another node fences it, and its address serves another pod.
func TestARunningPodIsAdopted(t *testing.T) {
	ctx, m := newMoving(t, 2)
	n := m.Nodes[0]
	s := m.runs(ctx, n, "web", "10.66.0.5")
	stop := m.pinged(ctx, s.Addr)
	m.move(ctx, record(s))
	m.becomes(ctx, s.Addr, v1alpha1.MoveAdopted, "")
	m.Eventually(t, "the leases are those of the living", func() error { return m.LeasesAreLiving(ctx) })
	check.OK(t, errors.Join(n.KillAgent(), n.AwaitAgent(ctx)))
	m.Eventually(t, "the pod is guarded", func() error {
		if guards, err := n.Guards(); err != nil || len(guards) != 1 {
			return fmt.Errorf("pinned guards %v: %w", guards, err)
		}
		return m.LeasesAreLiving(ctx)
	})
	check.OK(t, stop())
	l := check.Value(m.Lease(ctx, s.Addr))(t)
	check.That(t, l.Spec.Previous == nil && l.Spec.Holder.Guarded && l.Spec.Holder.MAC == s.MAC.String(), "lease %+v", l.Spec)

	begin(ctx, t, m.Cluster, crowd(t, m.Cluster, "heard", 2)[1:]) // the other node reaches the segment
	check.OK(t, errors.Join(s.Outlive(ctx), n.Fall(ctx)))
	m.free(ctx, s.Addr)
	m.Eventually(t, "the zombie is mute", func() error {
		if m.answers(ctx, s.Addr) == nil {
			return errors.New("it answers")
		}
		return nil
	})
	check.OK(t, m.SpeakersAreHolders())
}

// The kernel answers for an address by each interface of a pod on the segment, which is no second speaker.
func TestAPodWithTwoInterfacesOnASegmentIsAdopted(t *testing.T) {
	ctx, m := newMoving(t, 1)
	n := m.Nodes[0]
	s := m.runs(ctx, n, "web", "10.66.0.5")
	check.OK(t, errors.Join(n.AddMacvlan(namespaces.Parent, nil, s.Namespace, "net1"), s.SetUp("net1", true),
		s.AddAddr("net1", netip.MustParsePrefix("10.67.0.5/24"))))
	asking, done := context.WithCancel(ctx)
	var group sync.WaitGroup
	group.Go(func() {
		for asking.Err() == nil { // two answers to one question are an error
			_ = m.host.Command(asking, "arping", "-q", "-b", "-c", "1", "-w", "1", "-I", namespaces.HostInterface, s.Addr.String()).Run()
		}
	})
	defer group.Wait()
	defer done()
	stop := m.pinged(ctx, s.Addr)
	m.move(ctx, record(s))
	m.becomes(ctx, s.Addr, v1alpha1.MoveAdopted, "")
	check.OK(t, stop())
}

// An adopted pod ends without a DEL, or with one of a sandbox ID that the agent does not know.
func TestTheEndOfAnAdoptedPod(t *testing.T) {
	ctx, m := newMoving(t, 1)
	n := m.Nodes[0]
	silent, deleted, ours := m.runs(ctx, n, "silent", "10.66.0.5"), m.runs(ctx, n, "deleted", "10.66.0.6"), m.runs(ctx, n, "ours", "10.66.0.7")
	var records []v1alpha1.MoveRecord
	for _, s := range []*nodes.Sandbox{silent, deleted, ours} {
		r := record(s)
		r.ContainerID = "" // no IPAM knows it
		records = append(records, r)
	}
	m.move(ctx, records...)
	for _, s := range []*nodes.Sandbox{silent, deleted, ours} {
		m.becomes(ctx, s.Addr, v1alpha1.MoveAdopted, "")
	}
	check.OK(t, silent.Remove())
	m.free(ctx, silent.Addr)
	check.OK(t, deleted.Outlive(ctx)) // its containers run on
	m.free(ctx, deleted.Addr)
	check.That(t, m.answers(ctx, deleted.Addr) != nil, "a pod that was deleted answers for a free address")
	check.OK(t, check.Value(ours.SecondOf(namespaces.PodInterface, fmt.Appendf(nil, `{"cniVersion":"1.0.0","name":"new","plugins":[{
		"type":"macvlan","master":%q,"mode":"bridge","ipam":%s}]}`, namespaces.Parent, n.IPAM())))(t).Del(ctx))
	m.free(ctx, ours.Addr)
	m.Eventually(t, "the journal is empty", func() error {
		entries, err := n.Entries()
		if len(entries) > 0 {
			return fmt.Errorf("it has %v", entries)
		}
		return err
	})
}

// The node of an adopted pod boots. A kubelet sends the old IPAM the DEL, and makes the pod another sandbox, which
// Fenceline serves by now. It has the same address, which nobody got meanwhile.
func TestANodeWithAnAdoptedPodBoots(t *testing.T) {
	for name, loses := range map[string]func(*nodes.Node) error{
		"with its journal":    func(*nodes.Node) error { return nil },
		"without its journal": (*nodes.Node).EmptyState,
	} {
		t.Run(name, func(t *testing.T) {
			ctx, m := newMoving(t, 2)
			n, other := m.Nodes[0], m.Nodes[1]
			m.patch(ctx, &v1alpha1.IPPool{}, "v4", `{"spec":{"ips":["10.66.0.5-10.66.0.6"],"warm":0}}`)
			always := func(p *corev1.Pod) { p.Spec.RestartPolicy = corev1.RestartPolicyAlways }
			pod := check.Value(n.NewPod(ctx, "web", always))(t)
			s := check.Value(n.NewSandboxOf(pod, []byte(m.local(m.data, "10.66.0.5", "10.66.0.5")), nil))(t)
			m.reported(ctx, s)
			m.move(ctx, record(s))
			m.becomes(ctx, s.Addr, v1alpha1.MoveAdopted, "")
			before := check.Value(m.Lease(ctx, s.Addr))(t)

			check.OK(t, errors.Join(n.LosePower(s), loses(n), n.AwaitAgent(ctx), s.Del(ctx)))
			rest := check.Value(other.Begin(ctx, check.Value(other.NewPod(ctx, "rest", nil))(t)))(t)
			check.Equal(t, rest.Addr.String(), "10.66.0.6", "another pod gets")
			m.Eventually(t, "the address is proven free, and kept for the pod", func() error {
				l, err := m.Lease(ctx, s.Addr)
				if err == nil && l.Spec.State != v1alpha1.StateRetained {
					err = fmt.Errorf("its lease is %s %s: %s", l.Spec.State, l.Spec.Reason, l.Spec.Message)
				}
				return err
			})
			next := check.Value(n.Begin(ctx, pod))(t)
			check.Equal(t, next.Addr, s.Addr, "the next sandbox has")
			m.becomes(ctx, s.Addr, v1alpha1.MoveEnded, "a later sandbox of the pod")
			after := check.Value(m.Lease(ctx, s.Addr))(t)
			check.That(t, after.UID == before.UID && after.Spec.Session != before.Spec.Session, "the lease was %s of %s, and is %s of %s", before.UID, before.Spec.Session, after.UID, after.Spec.Session)
			check.That(t, check.Value(next.Guarded())(t), "the next sandbox has no guard")
			m.reached(ctx, next.Addr)
			m.Eventually(t, "the leases are those of the living", func() error { return m.LeasesAreLiving(ctx) })
		})
	}
}

// What cannot be adopted is named, and held. The pods run on.
func TestWhatCannotBeAdoptedIsHeld(t *testing.T) {
	ctx, m := newMoving(t, 1)
	n := m.Nodes[0]
	mac := m.runs(ctx, n, "mac", "10.66.0.5")
	twice := m.runs(ctx, n, "twice", "10.66.0.6")
	victim := m.runs(ctx, n, "victim", "10.66.0.7")
	// The tenant's pod says that it has the address of the victim, and the record is wrong as well.
	tenant := m.runs(ctx, n, "tenant", "10.66.0.8")
	tenant.Pod.Annotations = map[string]string{"k8s.v1.cni.cncf.io/network-status": `[{"interface":"eth0","ips":["10.66.0.7"],"mac":"` + victim.MAC.String() + `"}]`}
	check.OK(t, m.Update(ctx, tenant.Pod))
	second := m.Host(netip.PrefixFrom(twice.Addr, 24))

	wrong, forged := record(mac), record(victim)
	wrong.MAC = "02:00:00:00:00:99"
	forged.Pod, forged.PodUID = tenant.Pod.Name, string(tenant.Pod.UID)
	gone := v1alpha1.MoveRecord{Address: "10.66.0.9", Node: n.Name, Namespace: nodes.Shop, Pod: "gone", PodUID: "00000000-0000-0000-0000-000000000000"}
	m.move(ctx, wrong, record(twice), forged, gone)
	m.becomes(ctx, mac.Addr, v1alpha1.MoveHeld, "and the record says 02:00:00:00:00:99")
	m.becomes(ctx, twice.Addr, v1alpha1.MoveConflict, second.MAC.String())
	m.becomes(ctx, victim.Addr, v1alpha1.MoveHeld, "which is not the pod's")
	for _, s := range []*nodes.Sandbox{mac, victim, tenant} {
		m.reached(ctx, s.Addr)
	}
	guards := check.Value(n.Guards())(t)
	check.Equal(t, len(guards), 0, "guards")
	m.free(ctx, netip.MustParseAddr(gone.Address)) // nobody has it

	// The sandbox of a held pod ends, and its next one asks Fenceline.
	check.OK(t, mac.Remove())
	next := check.Value(n.Begin(ctx, mac.Pod))(t)
	check.Equal(t, next.Addr, mac.Addr, "the next sandbox has")

	// The reason goes, and the next try adopts the pod.
	check.OK(t, second.Unplug())
	m.becomes(ctx, twice.Addr, v1alpha1.MoveAdopted, "")
}

// The agent is killed before and after each write of an adoption. The pod loses no frame, and is adopted in the end.
func TestAnAdoptionThatBreaksOff(t *testing.T) {
	ctx, m := newMoving(t, 1)
	n := m.Nodes[0]
	for i, at := range []struct {
		moment nodes.Moment
		nth    int
	}{{nodes.UpdateSent, 1}, {nodes.UpdateDone, 1}, {nodes.UpdateSent, 2}, {nodes.UpdateDone, 2}} {
		t.Run(fmt.Sprintf("%s, %d", at.moment, at.nth), func(t *testing.T) {
			m := &moving{Cluster: m.Cluster, t: t, data: m.data, host: m.host}
			s := m.runs(ctx, n, fmt.Sprintf("web-%d", i), fmt.Sprintf("10.66.0.%d", 20+i))
			stop := m.pinged(ctx, s.Addr)
			var before attachment.Phase
			met := n.At(at.moment, at.nth, func() error {
				entries, err := n.Entries()
				before = entries[s.Attachment()].Phase
				return errors.Join(err, n.KillAgent(), errors.New("the agent is gone"))
			})
			m.move(ctx, record(s))
			<-met
			check.Equal(t, before, attachment.Adopting, "the phase in the journal")
			check.OK(t, n.AwaitAgent(ctx))
			m.becomes(ctx, s.Addr, v1alpha1.MoveAdopted, "")
			m.Eventually(t, "the leases are those of the living", func() error { return m.LeasesAreLiving(ctx) })
			check.OK(t, stop())
			check.OK(t, m.Delete(ctx, &v1alpha1.Move{ObjectMeta: metav1.ObjectMeta{Name: "old"}}))
			check.OK(t, s.Finish(ctx))
			m.free(ctx, s.Addr)
		})
	}
}

// goesBack has the move go back, with pools that give nothing.
func (m *moving) goesBack(ctx context.Context) {
	m.t.Helper()
	m.patch(ctx, &v1alpha1.IPPool{}, "v4", `{"spec":{"disable":true}}`)
	m.patch(ctx, &v1alpha1.Move{}, "old", `{"spec":{"step":"Back"}}`)
}

// patch edits an object that the controller may write too.
func (m *moving) patch(ctx context.Context, o client.Object, name, text string) {
	m.t.Helper()
	o.SetName(name)
	check.OK(m.t, m.Patch(ctx, o, client.RawPatch(types.MergePatchType, []byte(text))))
}

// unguarded waits until no pod has a guard or an entry.
func (m *moving) unguarded(n *nodes.Node) {
	m.t.Helper()
	m.Eventually(m.t, "no pod is guarded", func() error {
		guards, err := n.Guards()
		entries, unread := n.Entries()
		if len(guards)+len(entries) > 0 {
			return fmt.Errorf("pinned guards %v, entries %v", guards, entries)
		}
		return errors.Join(err, unread)
	})
}

// A move goes back: the pods run on without a lost frame, whether Fenceline adopted them or started them, and so
// it goes wherever the agent is killed. Afterwards the move begins anew.
func TestAMoveGoesBackUnderRunningPods(t *testing.T) {
	ctx, m := newMoving(t, 1)
	n := m.Nodes[0]
	for i, at := range []struct {
		name string
		kill bool
		nth  int
		when nodes.Moment
	}{{name: "no crash"}, {"before the end of the lease", true, 1, nodes.DeleteSent}, {"after it", true, 1, nodes.DeleteDone}} {
		t.Run(at.name, func(t *testing.T) {
			m := &moving{Cluster: m.Cluster, t: t, data: m.data, host: m.host}
			s := m.runs(ctx, n, fmt.Sprintf("web-%d", i), fmt.Sprintf("10.66.0.%d", 20+i))
			stop := m.pinged(ctx, s.Addr)
			m.move(ctx, record(s))
			m.becomes(ctx, s.Addr, v1alpha1.MoveAdopted, "")
			met := make(<-chan struct{})
			if at.kill {
				met = n.At(at.when, at.nth, func() error { return errors.Join(n.KillAgent(), errors.New("the agent is gone")) })
			}
			m.goesBack(ctx)
			if at.kill {
				<-met
				check.OK(t, n.AwaitAgent(ctx))
			}
			m.free(ctx, s.Addr)
			m.unguarded(n)
			check.OK(t, stop())

			// In again, with the same records.
			stop = m.pinged(ctx, s.Addr)
			check.OK(t, m.Delete(ctx, &v1alpha1.Move{ObjectMeta: metav1.ObjectMeta{Name: "old"}}))
			m.patch(ctx, &v1alpha1.IPPool{}, "v4", `{"spec":{"disable":null}}`)
			m.move(ctx, record(s))
			m.becomes(ctx, s.Addr, v1alpha1.MoveAdopted, "")
			m.Eventually(t, "the leases are those of the living", func() error { return m.LeasesAreLiving(ctx) })
			check.OK(t, stop())
			check.OK(t, m.Delete(ctx, &v1alpha1.Move{ObjectMeta: metav1.ObjectMeta{Name: "old"}}))
			check.OK(t, s.Finish(ctx))
			m.free(ctx, s.Addr)
		})
	}
	t.Run("an adoption that was cut off", func(t *testing.T) {
		m := &moving{Cluster: m.Cluster, t: t, data: m.data, host: m.host}
		s := m.runs(ctx, n, "cut", "10.66.0.30")
		stop := m.pinged(ctx, s.Addr)
		met := n.At(nodes.UpdateDone, 1, func() error { return errors.Join(n.KillAgent(), errors.New("the agent is gone")) })
		m.move(ctx, record(s))
		<-met
		m.goesBack(ctx)
		check.OK(t, n.AwaitAgent(ctx))
		m.free(ctx, s.Addr)
		m.unguarded(n)
		check.OK(t, errors.Join(stop(), s.Finish(ctx), m.Delete(ctx, &v1alpha1.Move{ObjectMeta: metav1.ObjectMeta{Name: "old"}})))
		m.patch(ctx, &v1alpha1.IPPool{}, "v4", `{"spec":{"disable":null}}`)
	})
	t.Run("a pod of Fenceline", func(t *testing.T) {
		m := &moving{Cluster: m.Cluster, t: t, data: m.data, host: m.host}
		s := check.Value(n.Begin(ctx, check.Value(n.NewPod(ctx, "ours", nil))(t)))(t)
		stop := m.pinged(ctx, s.Addr)
		m.move(ctx, record(s))
		m.becomes(ctx, s.Addr, v1alpha1.MoveAdopted, "")
		// Without the Move's word, an annotation gives no pod back.
		looked := n.At(nodes.GetSent, 1, func() error { return nil })
		m.patch(ctx, &v1alpha1.IPLease{}, s.Addr.String(), `{"metadata":{"labels":{"fenceline.io/move":"old"},"annotations":{"fenceline.io/move-back":"1"}}}`)
		<-looked
		check.OK(t, m.LeasesAreLiving(ctx, v1alpha1.StateWarm))
		m.goesBack(ctx)
		m.free(ctx, s.Addr)
		m.unguarded(n)
		m.reached(ctx, s.Addr)
		check.OK(t, errors.Join(stop(), s.Finish(ctx)))
	})
}
