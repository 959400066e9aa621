// SPDX-License-Identifier: Apache-2.0

//go:build kernel && !guest

package nodes_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/test/capture"
	"github.com/fenceline/fenceline/test/check"
	"github.com/fenceline/fenceline/test/namespaces"
	"github.com/fenceline/fenceline/test/nodes"
	"github.com/fenceline/fenceline/test/process"
)

// pair is keepalived in pods a and b on two nodes, which share an exclusive address. a is preferred.
type pair struct {
	*nodes.Cluster
	t           *testing.T
	a, b, third *nodes.Sandbox
	vmac        string
	ofA         process.Process
	longest     time.Duration
}

func newPair(t *testing.T, vmac string) *pair {
	t.Helper()
	p := readyPair(t, 2*nodes.Limit, vmac, true)
	p.startA()
	p.takes("a")
	keepalived(t, p.b, 100, vmac)
	return p
}

// readyPair has pods that share an address, exclusive or not, without keepalived.
func readyPair(t *testing.T, limit time.Duration, vmac string, exclusive bool) *pair {
	t.Helper()
	ctx, c := cluster(t, limit, 2)
	c.StartController()
	c.Pool("v4", "10.66.0.0/24", "10.66.0.20-10.66.0.40")
	check.OK(t, c.Create(ctx, &v1alpha1.ReservedIP{ObjectMeta: metav1.ObjectMeta{Name: "vip"}, Spec: v1alpha1.ReservedIPSpec{
		IPs: []string{vip}, Virtual: &v1alpha1.ReservedVirtual{Namespace: nodes.Shop, MatchLabels: map[string]string{"app": "ha"}, VRRPID: ptr.To[int64](51), Exclusive: exclusive},
	}}))
	ha := func(pod *corev1.Pod) { pod.Labels = map[string]string{"app": "ha"} }
	return &pair{Cluster: c, t: t, vmac: vmac, a: started(ctx, t, c.Nodes[0], "a", ha), b: started(ctx, t, c.Nodes[1], "b", ha), third: started(ctx, t, c.Nodes[1], "third", nil)}
}

func (p *pair) startA() { p.ofA = keepalived(p.t, p.a, 101, p.vmac) }

func (p *pair) record() v1alpha1.Speaker {
	p.t.Helper()
	r := &v1alpha1.ReservedIP{}
	check.OK(p.t, p.Get(context.Background(), client.ObjectKey{Name: "vip"}, r))
	if len(r.Status.Speakers) != 1 {
		return v1alpha1.Speaker{}
	}
	return r.Status.Speakers[0]
}

// spoken returns the frames of a pod's node for the address since a time: with the MAC of VRRP, the port tells the node.
func (p *pair) spoken(s *nodes.Sandbox, since time.Time) (all []capture.Frame) {
	for _, f := range capture.SpokenFor(capture.After(p.Frames.Frames(), since), netip.MustParseAddr(vip)) {
		if f.Port == port(s) {
			all = append(all, f)
		}
	}
	return all
}

func port(s *nodes.Sandbox) string { return "ul-" + s.Node().Name }

// takes waits until a pod speaks, and stays on record.
func (p *pair) takes(pod string) {
	p.t.Helper()
	of, began := map[string]*nodes.Sandbox{"a": p.a, "b": p.b}[pod], time.Now()
	p.Eventually(p.t, pod+" speaks", func() error {
		if on := p.record(); on.Pod != pod || on.Token == 0 || on.Idle {
			return fmt.Errorf("on record: %+v", on)
		}
		if len(p.spoken(of, began)) == 0 {
			return errors.New("not heard")
		}
		return nil
	})
	p.longest = max(p.longest, time.Since(began))
}

// oneSpeaker judges that no node speaks for the address before it has claimed it, or from its ack of another's claim
// on until it has claimed the address anew. It returns the number of acks.
func (p *pair) oneSpeaker() (acks int) {
	p.t.Helper()
	addr, mute := netip.MustParseAddr(vip), map[string]time.Time{}
	last := map[string]capture.Frame{} // claims
	for _, f := range p.Frames.Frames() {
		switch {
		case f.Target == addr && f.Kind == "claim":
			last[f.Port] = f
			delete(mute, f.Port)
		case f.Target == addr && f.Kind == "ack":
			acks++
			if token(f) > token(last[f.Port]) {
				mute[f.Port] = f.Time
			}
		case slices.Contains(f.Speaks, addr) && (f.Port == port(p.a) || f.Port == port(p.b)):
			since, isMute := mute[f.Port]
			check.That(p.t, !isMute || f.Time.Sub(since) < capture.InFlight, "%s after its kernel acked a claim: %s", f.Time.Sub(since), f)
			check.That(p.t, last[f.Port].Kind != "", "without a claim: %s", f)
		}
	}
	return acks
}

// token returns that of a claim or ack, 0 of no frame.
func token(f capture.Frame) uint64 {
	if len(f.Payload) < 40 {
		return 0
	}
	return binary.BigEndian.Uint64(f.Payload[32:])
}

// stays judges that nobody but the speaker has spoken.
func (p *pair) stays(pod string, since time.Time) {
	p.t.Helper()
	other := p.b
	if pod == "b" {
		other = p.a
	}
	check.Equal(p.t, p.record().Pod, pod, "on record:")
	check.None(p.t, p.spoken(other, since), "the other pod has sent")
}

// heldBack waits until the guard of a pod has dropped more frames without the turn than before.
func (p *pair) heldBack(s *nodes.Sandbox, more float64) {
	p.t.Helper()
	p.Eventually(p.t, "the announcement of "+s.Pod.Name+" is held back", func() error {
		n, err := p.held(s)
		if err == nil && n <= more {
			err = fmt.Errorf("%v frames", n)
		}
		return err
	})
}

func (p *pair) held(s *nodes.Sandbox) (float64, error) {
	return s.Node().Sum(p.t.Context(), "fenceline_source_guard_frames_total", map[string]string{"pod": s.Pod.Name, "reason": "turn"})
}

func bothMACs(t *testing.T, run func(t *testing.T, vmac string)) {
	for name, vmac := range map[string]string{"by their own MACs": "", "by the MAC of VRRP": "use_vmac vrrp51\n  vmac_xmit_base"} {
		t.Run(name, func(t *testing.T) { run(t, vmac) })
	}
}

// The network between two pods of keepalived is cut and healed at random, and the preferred one ends and starts.
// In a split network both want to speak: the newest one does.
func TestAnExclusiveAddressHasOneSpeakerInEachSplit(t *testing.T) {
	bothMACs(t, func(t *testing.T, vmac string) {
		p := newPair(t, vmac)
		runs, split := true, false
		for range 20 {
			switch {
			case split:
				check.OK(t, p.Isolate(false))
				split = false
				if runs {
					p.takes("a")
				}
			case runs && rand.N(2) == 0:
				check.OK(t, p.ofA.Stop(t.Context(), nodes.Limit))
				runs = false
				p.takes("b")
			case runs:
				check.OK(t, p.Isolate(true))
				split = true
				p.takes("b")
			default:
				p.startA()
				runs = true
				p.takes("a")
			}
		}
		acks := p.oneSpeaker()
		t.Logf("%d acks; the longest change took %s", acks, p.longest.Round(time.Millisecond))
		check.That(t, acks > 0, "no kernel has acked a claim")

		addr := netip.MustParseAddr(vip)
		check.OK(t, p.third.AddAddr(namespaces.PodInterface, netip.PrefixFrom(addr, 32)))
		check.OK(t, p.third.Command(t.Context(), "arping", "-U", "-c", "2", "-w", "3", "-I", namespaces.PodInterface, vip).Run())
		p.Eventually(t, "the frames of the third pod are counted", func() error {
			n, err := p.Nodes[1].Sum(t.Context(), "fenceline_source_guard_frames_total", map[string]string{"pod": "third"})
			if err == nil && n == 0 {
				err = errors.New("none")
			}
			return err
		})
		check.None(t, capture.SpokenFor(capture.From(p.Frames.Frames(), p.third.MAC), addr), "the third pod has sent")
		n, err := countEvents(t.Context(), p.Cluster, "ReservedIP", "vip", "AddressConflict", vip)
		check.OK(t, err)
		check.Equal(t, n, 0, "conflicts:")
	})
}

// While the API server is away, no other pod gets the turn. When it is back, a pod that has wished it meanwhile gets
// it if nobody speaks.
func TestAnExclusiveAddressKeepsItsSpeakerWhileTheAPIServerIsAway(t *testing.T) {
	bothMACs(t, func(t *testing.T, vmac string) {
		p := newPair(t, vmac)
		api := func(shut bool) {
			for _, n := range p.Nodes {
				n.ShutAPI(shut)
			}
		}
		before, cut := check.Value(p.held(p.b))(t), time.Now()
		api(true)
		check.OK(t, p.Isolate(true))
		p.heldBack(p.b, before)
		check.OK(t, p.Isolate(false))
		// Five seconds later, keepalived announces once more, and then never again.
		before = check.Value(p.held(p.b))(t)
		p.stays("a", cut)
		api(false)
		p.stays("a", cut)

		api(true)
		check.OK(t, p.ofA.Stop(t.Context(), nodes.Limit))
		p.heldBack(p.b, before)
		p.stays("a", cut)
		api(false)
		p.takes("b")
		p.oneSpeaker()
	})
}

// A node is cut off while its agent is down, and its pod speaks on. Once the network is healed, its kernel obeys the
// claim of the new speaker's node. Its pod wants to speak again, and does when its agent is back.
func TestAnExclusiveAddressIsTakenFromANodeWithoutAnAgent(t *testing.T) {
	p := newPair(t, "")
	check.OK(t, p.Nodes[0].KillAgent())
	check.OK(t, p.Isolate(true))
	p.Eventually(t, "b is on record", func() error {
		if on := p.record(); on.Pod != "b" {
			return fmt.Errorf("%+v", on)
		}
		return nil
	})
	healed := time.Now()
	check.OK(t, p.Isolate(false)) // a announces
	ctx, cancel := context.WithTimeout(t.Context(), nodes.Limit)
	defer cancel()
	claim := check.Value(p.Frames.Wait(ctx, func(f capture.Frame) bool {
		return f.Kind == "claim" && f.Port == port(p.b) && f.Target == netip.MustParseAddr(vip) && f.Time.After(healed)
	}))(t)
	p.Eventually(t, "b is a backup", func() error {
		if on := p.record(); !on.Idle {
			return fmt.Errorf("%+v", on)
		}
		return nil
	})
	host := p.Host(netip.MustParsePrefix("10.66.0.250/24"))
	// A late announcement of b's agent is no answer.
	asked := host.Command(ctx, "arping", "-q", "-c", "3", "-w", "3", "-I", namespaces.HostInterface, vip)
	check.That(t, asked.Run() != nil, "somebody answers for %s", vip)
	check.None(t, p.spoken(p.a, claim.Time.Add(capture.FenceLimit)), "after the claim, a has sent")
	check.OK(t, p.Nodes[0].AwaitAgent(ctx))
	p.takes("a")
	p.oneSpeaker()
}
