// SPDX-License-Identifier: Apache-2.0

package holder_test

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fenceline/fenceline/agent/pod"
	"github.com/fenceline/fenceline/agent/refusal"
	"github.com/fenceline/fenceline/agent/segment"
	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/bpf"
	"github.com/fenceline/fenceline/cni/agentapi"
	"github.com/fenceline/fenceline/test/check"
	"github.com/fenceline/fenceline/test/fakenode"
)

var (
	tuned = net.HardwareAddr{0x02, 0xaa, 0, 0, 0, 1}
	faked = net.HardwareAddr{0x02, 0xaa, 0, 0, 0, 2}
)

// hasMAC reports whether kernel and journal have a MAC for the address of a pod.
func hasMAC(r *fakenode.Node, pod agentapi.AddRequest, mac net.HardwareAddr) bool {
	e, _ := r.Attachments.Get(pod.ContainerID, pod.Interface)
	l, installed, _ := r.Kernel.Lease(fakenode.Key("10.0.0.2"))
	return e.MAC == mac.String() && installed && l.MAC.String() == mac.String()
}

// chained is the ADD of the plugin at the end of the chain.
func chained(r *fakenode.Node, pod agentapi.AddRequest) {
	r.T.Helper()
	pod.Chained = true
	check.Value(r.Holders.Add(r.T.Context(), pod))(r.T)
}

func TestTheMACThatAPluginSetsIsFollowed(t *testing.T) {
	r, web := fakenode.WithPod(t, fakenode.V4("10.0.0.2"))
	r.SetMAC(web.NetNS, tuned)
	r.Eventually("kernel and journal have the MAC", func() bool { return hasMAC(r, web, tuned) })
	r.Eventually("the new MAC is announced", func() bool { return r.Wire.Times("announce 10.0.0.2") == 2 })
	r.After.Wait() // the announcer may still have the lock of the attachment
	r.Settle()
	check.Equal(t, r.Lease("10.0.0.2", v1alpha1.StateBound).Spec.Holder.MAC, tuned.String(), "the lease has")
	r.HoldsWhatTheJournalSays(web)
	r.Restart()
	check.That(t, hasMAC(r, web, tuned), "the restart has another MAC")
}

func TestTheEndOfTheChainSettlesTheMAC(t *testing.T) {
	r := fakenode.New(t, fakenode.V4("10.0.0.2"))
	web := r.Pod("web", "u1")
	check.Value(r.Holders.Add(t.Context(), web))(t)
	r.SetMAC(web.NetNS, tuned)
	chained(r, web)
	check.That(t, hasMAC(r, web, tuned), "the guard does not know the MAC at the end of the chain")
	// From now on it is the pod that changes the MAC, also for the readings after the answer, a
	// restart, and a repeated ADD of the chained plugin.
	r.SetMAC(web.NetNS, faked)
	r.After.Answered(web.Attachment)
	chained(r, web)
	r.After.Wait()
	r.Restart()
	r.After.Wait()
	check.That(t, hasMAC(r, web, tuned), "the guard follows the pod")
}

func TestTheMACOfAPodWhoseContainersHaveStartedIsNotFollowed(t *testing.T) {
	ended := func(now metav1.Time) corev1.ContainerState {
		return corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{StartedAt: now, FinishedAt: now}}
	}
	for name, status := range map[string]func(now metav1.Time) corev1.PodStatus{
		"one runs": func(now metav1.Time) corev1.PodStatus {
			running := corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: now}}
			return corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{{State: running}}}
		},
		"an init container has ended": func(now metav1.Time) corev1.PodStatus {
			return corev1.PodStatus{InitContainerStatuses: []corev1.ContainerStatus{{State: ended(now)}}}
		},
		"one has ended and is to run again": func(now metav1.Time) corev1.PodStatus {
			return corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{{LastTerminationState: ended(now)}}}
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := fakenode.New(t, fakenode.V4("10.0.0.2"))
			web := r.Pod("web", "u1")
			check.Value(r.Holders.Add(t.Context(), web))(t)
			// The kubelet reports whole seconds. They are read after the ADD, as a container starts after it.
			now := metav1.NewTime(time.Now().Truncate(time.Second))
			r.Pod("web", "u1", func(p *corev1.Pod) { p.Status = status(now) })
			r.SetMAC(web.NetNS, faked)
			r.After.Answered(web.Attachment)
			r.After.Wait()
			check.That(t, hasMAC(r, web, fakenode.MacOf(web.NetNS)), "the guard follows the pod")
		})
	}
}

// The runtime repeats an ADD that fails. One that succeeds would leave the pod without ARP.
func TestAChainedADDThatCannotReadTheMACFails(t *testing.T) {
	r := fakenode.New(t, fakenode.V4("10.0.0.2"))
	web := r.Pod("web", "u1")
	check.Value(r.Holders.Add(t.Context(), web))(t)
	r.SetMAC(web.NetNS, tuned)
	find := r.FindLink
	r.FindLink = func(string, string) (pod.Interface, error) { return pod.Interface{}, syscall.EMFILE }
	again := web
	again.Chained = true
	check.Is(t, check.Err(r.Holders.Add(t.Context(), again)), syscall.EMFILE, "got")
	r.FindLink = find
	chained(r, web)
	check.That(t, hasMAC(r, web, tuned), "the guard does not know the MAC")
}

func TestWhileTheAPIServerIsAwayTheKernelFollowsTheMAC(t *testing.T) {
	r := fakenode.New(t, fakenode.V4("10.0.0.2"))
	web := r.Pod("web", "u1")
	check.Value(r.Holders.Add(t.Context(), web))(t)
	r.API.SetAway(true)
	r.SetMAC(web.NetNS, tuned)
	chained(r, web)
	check.That(t, hasMAC(r, web, tuned), "the guard waits for the API server")
	// The agent ends before the record.
	r.Restart()
	r.API.SetAway(false)
	r.Settle()
	check.Equal(t, r.Lease("10.0.0.2", v1alpha1.StateBound).Spec.Holder.MAC, tuned.String(), "the lease has")
}

func TestAMACThatWasSetWhileTheAgentRestartedIsFollowed(t *testing.T) {
	r := fakenode.New(t, fakenode.V4("10.0.0.2"))
	web := r.Pod("web", "u1")
	check.Value(r.Holders.Add(t.Context(), web))(t)
	r.After.Wait()
	r.SetMAC(web.NetNS, tuned)
	r.Restart()
	r.Eventually("kernel and journal have the MAC", func() bool { return hasMAC(r, web, tuned) })
}

func TestNothingIsAnnouncedOfAnInterfaceThatWentBeforeTheAnswer(t *testing.T) {
	r := fakenode.New(t, fakenode.V4("10.0.0.2"))
	web := r.Pod("web", "u1")
	check.Value(r.Holders.Add(t.Context(), web))(t)
	check.That(t, !r.Wire.Took("announce 10.0.0.2"), "it is announced before the plugin has its answer")
	r.MustDel(web)
	r.After.Answered(web.Attachment)
	r.After.Wait()
	check.That(t, !r.Wire.Took("announce 10.0.0.2") && len(r.Kernel.Pinned) == 0, "it is announced or pinned after its DEL")
}

func TestWhatIsLeftAfterAnAnswerIsDoneOnce(t *testing.T) {
	r, web := fakenode.WithPod(t, fakenode.V4("10.0.0.2"))
	r.After.Wait()
	r.After.Answered(web.Attachment)
	r.After.Wait()
	check.Equal(t, r.Wire.Times("announce 10.0.0.2"), 1, "announced times:")
}

func TestAPinWaitsForADDsThatAreUnderWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := fakenode.New(t, fakenode.V4("10.0.0.2", "10.0.0.3"))
		web := r.Pod("web", "u1")
		check.Value(r.Holders.Add(t.Context(), web))(t)
		late := lateGuard{r.Guards.Kernel.Guards, make(chan struct{})}
		r.Guards.Kernel.Guards = late
		answered := make(chan error, 1)
		go func() {
			_, err := r.Holders.Add(t.Context(), r.Pod("api", "u2"))
			answered <- err
		}()
		r.Eventually("the second ADD is under way", func() bool { return slices.Contains(r.Names(), "10.0.0.3 Bound") })
		r.After.Answered(web.Attachment)
		r.Attachments.Calls.GiveWay(r.Background, r.Clock)
		check.That(t, !r.Kernel.IsPinned(r.SlotOf(web)), "a guard is pinned while an ADD is under way")
		close(late.enforce)
		check.OK(t, <-answered)
		r.After.Wait()
		check.That(t, r.Kernel.IsPinned(r.SlotOf(web)), "the guard is not pinned when no ADD is under way any more")
	})
}

// The server answers what it has begun after the agent was told to end.
func TestAnADDInTheAgentsLastMomentsIsClaimedAndAnnounced(t *testing.T) {
	r := fakenode.New(t, fakenode.Warmed(fakenode.V4("10.0.0.2-10.0.0.9")))
	r.WarmLease("10.0.0.7", true)
	ended, end := context.WithCancel(t.Context())
	end()
	r.Background = ended
	r.MustAdd(r.Pod("web-0", "u1"))
	r.After.Wait()
	for _, what := range []string{"claim 10.0.0.7", "announce 10.0.0.7"} {
		check.That(t, r.Wire.Took(what), "no %s: %v", what, r.Wire.Did())
	}
}

// unreached is the error of a call that found no API server.
var unreached = &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}

// deaf is an API server that is away, for those who read past the cache.
type deaf struct {
	client.Reader
	asked int
}

func (d *deaf) Get(context.Context, client.ObjectKey, client.Object, ...client.GetOption) error {
	d.asked++
	return unreached
}

// A runtime goes on trying for as long as an outage lasts, each time with a
// new sandbox: more often than there are slots.
func TestADDsOfALongOutageTakeNothing(t *testing.T) {
	r := fakenode.New(t, fakenode.V4("10.0.0.2-10.0.0.9"))
	r.Events = events.NewFakeRecorder(2 * int(bpf.MaxSlot))
	web := r.Pod("web", "u1")
	present, away := r.Reader, &deaf{}
	r.Reader = away
	r.Outage = func() (time.Time, bool) { return time.Time{}, away.asked > 0 || r.Calls("create") > 0 } // as the transport reports it
	r.API.Before = func(string, string) error { return unreached }
	for n := range bpf.MaxSlot + 10 {
		web.ContainerID = fmt.Sprintf("c%d", n)
		err := check.Err(r.Add(t.Context(), web))
		check.Must(t, isCode(err, agentapi.CodeTryAgainLater), "%v", err)
		left := r.Attachments.All()
		check.Must(t, len(left) == 0, "journal %v", left)
	}
	if free := len(r.FreeSlots()); free < int(bpf.MaxSlot)-1 || r.Calls("create") > 1 || away.asked != int(bpf.MaxSlot)+9 {
		t.Errorf("%d slots are free, %d creates, %d questions", free, r.Calls("create"), away.asked)
	}
	r.Reader, r.API.Before = present, nil
	r.MustAdd(web)
}

func isCode(err error, code uint) bool { return err != nil && refusal.Answer(err).Code == code }

// What was never sent needs no API server to be undone.
func TestAnADDThatReachedNobodyIsForgottenAtOnce(t *testing.T) {
	r := fakenode.New(t, fakenode.V4("10.0.0.2"))
	r.API.Before = func(verb, _ string) error {
		check.That(t, verb == "create", "%s of a lease that nobody has created", verb)
		return unreached
	}
	r.Refused(agentapi.CodeTryAgainLater, r.Pod("web", "u1"))
	check.None(t, r.Attachments.All(), "journal")
}

func fromIP(pool *v1alpha1.IPPool) *v1alpha1.IPPool {
	pool.Spec.MACPolicy = &v1alpha1.MACPolicy{Type: v1alpha1.MACFromIP, Prefix: "0a:58"}
	return pool
}

// wantMAC checks the MAC in the lease, the journal, the kernel and the pod.
func wantMAC(t *testing.T, r *fakenode.Node, web agentapi.AddRequest, addr, mac string) {
	t.Helper()
	check.Equal(t, r.Lease(addr, v1alpha1.StateBound).Spec.Holder.MAC, mac, "the lease has MAC")
	e, _ := r.Attachments.Get(web.ContainerID, web.Interface)
	check.Equal(t, e.MAC, mac, "the journal has MAC")
	l, _, err := r.Kernel.Lease(bpf.Key{Segment: fakenode.ParentIndex, Addr: netip.MustParseAddr(addr)})
	check.That(t, err == nil && l.MAC.String() == mac && l.Flags&bpf.FlagDown == 0, "the kernel has %+v, %v, want MAC %s", l, err, mac)
	link, err := r.FindLink(web.NetNS, web.Interface)
	check.That(t, err == nil && link.MAC.String() == mac, "the interface has MAC %s, %v, want %s", link.MAC, err, mac)
}

func TestTheMACFollowsTheAddress(t *testing.T) {
	for name, test := range map[string]struct {
		pool      *v1alpha1.IPPool
		prepare   func(*fakenode.Node)
		addr, mac string
	}{
		"of an IPv4 pool": {fakenode.V4("10.0.0.2"), func(*fakenode.Node) {}, "10.0.0.2", "0a:58:0a:00:00:02"},
		"after a conflict, to the next address": {fakenode.V4("10.0.0.2-10.0.0.3"),
			func(r *fakenode.Node) { r.Wire.Answers[fakenode.Two] = fakenode.Stranger }, "10.0.0.3", "0a:58:0a:00:00:03"},
		"that was Warm": {fakenode.Warmed(fakenode.V4("10.0.0.2-10.0.0.9")),
			func(r *fakenode.Node) { r.WarmLease("10.0.0.7", true) }, "10.0.0.7", "0a:58:0a:00:00:07"},
		"that is taken over": {fakenode.V4("10.0.0.2"), func(r *fakenode.Node) {
			r.API.Put(fakenode.Held("10.0.0.2", fakenode.Quarantined(v1alpha1.ReasonPodTerminating)))
			r.Wire.Verdicts[fakenode.Two] = segment.Fenced
		}, "10.0.0.2", "0a:58:0a:00:00:02"},
	} {
		t.Run(name, func(t *testing.T) {
			r := fakenode.New(t, fromIP(test.pool))
			test.prepare(r)
			web := r.Pod("web-0", "u1", fakenode.OfStatefulSet)
			r.MustAdd(web)
			wantMAC(t, r, web, test.addr, test.mac)
			r.Restart()
			wantMAC(t, r, web, test.addr, test.mac)
		})
	}
}

// The pod of ordinal 1 chooses both; the pod without an annotation keeps the MAC of its plugin.
func TestAPodChoosesTheMACBesideItsAddress(t *testing.T) {
	pool := fakenode.V4("10.0.0.2-10.0.0.9")
	pool.Spec.MACPolicy = &v1alpha1.MACPolicy{Type: v1alpha1.MACChosen, Prefix: "0a:58"}
	r := fakenode.New(t, pool)
	chosen := choosing(`[{"ips": ["10.0.0.6", "10.0.0.5"], "macs": ["0a:58:00:00:00:06", "0A:58:00:00:00:05"]}]`)
	web := r.Pod("web-1", "u1", fakenode.OfStatefulSet, chosen)
	r.Gets(web, "10.0.0.5")
	wantMAC(t, r, web, "10.0.0.5", "0a:58:00:00:00:05")
	r.Restart()
	wantMAC(t, r, web, "10.0.0.5", "0a:58:00:00:00:05")
	r.MustDel(web)
	next := r.Pod("web-1", "u2", fakenode.OfStatefulSet, chosen)
	r.Gets(next, "10.0.0.5") // kept for its name
	wantMAC(t, r, next, "10.0.0.5", "0a:58:00:00:00:05")
	other := r.Pod("other", "u3")
	wantMAC(t, r, other, r.MustAdd(other)[0], fakenode.MacOf(other.NetNS).String())

	ipvlan := fakenode.New(t, pool)
	ipvlan.Kind = pod.IPVLAN
	check.Says(t, fakenode.TryAdd(ipvlan, ipvlan.Pod("web-0", "u4", fakenode.OfStatefulSet, chosen)), "pool v4: spec.macPolicy", "ipvlan")
}

// The kernel gives two veths the same MAC, as the links of this node do.
func TestAMACThatAnotherPodOfTheNodeHasIsRefused(t *testing.T) {
	pool := fakenode.V4("10.0.0.2-10.0.0.9")
	pool.Spec.MACPolicy = &v1alpha1.MACPolicy{Type: v1alpha1.MACChosen, Prefix: "0a:58"}
	r := fakenode.New(t, pool)
	r.Gets(r.Pod("a", "u1", choosing(`[{"ips": ["10.0.0.5"], "macs": ["0a:58:00:00:00:05"]}]`)), "10.0.0.5")
	b := r.Pod("b", "u2", choosing(`[{"ips": ["10.0.0.6"], "macs": ["0a:58:00:00:00:05"]}]`))
	check.Says(t, fakenode.TryAdd(r, b), "another interface of parent eth1 has it until its DEL", "of pod shop/a")
}

func TestWithoutAPolicyTheInterfaceKeepsItsMAC(t *testing.T) {
	r, web := fakenode.WithPod(t, fakenode.V4("10.0.0.2"))
	wantMAC(t, r, web, "10.0.0.2", fakenode.MacOf(web.NetNS).String())
}

func TestAFailedADDGivesTheInterfaceItsMACBack(t *testing.T) {
	r := fakenode.New(t, fromIP(fakenode.V4("10.0.0.2")))
	r.Patience = 0
	r.Wire.Answers[fakenode.Two] = fakenode.Stranger
	web := r.Pod("web", "u1")
	check.Must(t, fakenode.TryAdd(r, web) != nil, "ADD succeeds")
	link, _ := r.FindLink(web.NetNS, web.Interface)
	check.That(t, link.MAC.String() == fakenode.MacOf(web.NetNS).String(), "the interface is left with %s", link.MAC)
}

func TestAMACFromTheAddressIsRefusedForIPVLAN(t *testing.T) {
	r := fakenode.New(t, fromIP(fakenode.V4("10.0.0.2")))
	r.Kind = pod.IPVLAN
	check.Says(t, fakenode.TryAdd(r, r.Pod("web", "u1")), "pool v4: spec.macPolicy", "ipvlan")
	check.None(t, r.API.Leases(), "left")
}

func TestAMACThatThePluginWouldDropIsRefused(t *testing.T) {
	r := fakenode.New(t, fromIP(fakenode.V4("10.0.0.2")))
	web := r.Pod("web", "u1")
	web.Network.MACSpoofCheck = true
	check.Says(t, fakenode.TryAdd(r, web), "0a:58:0a:00:00:02", "macspoofchk")
	check.None(t, r.API.Leases(), "left")
}

// The last holder has the MAC of the new one: the claim asks it by its token.
func TestATakeOverWithTheSameMACAsksTheLastHolderByItsToken(t *testing.T) {
	r := fakenode.New(t, fromIP(fakenode.V4("10.0.0.2")))
	l := fakenode.Held("10.0.0.2")
	l.Spec.Holder.MAC = "0a:58:0a:00:00:02"
	fakenode.Quarantined(v1alpha1.ReasonPodTerminating)(&l.Spec)
	r.API.Put(l)
	r.Wire.Verdicts[fakenode.Two] = segment.Fenced
	r.MustAdd(r.Pod("web-0", "u1", fakenode.OfStatefulSet))
	c := r.Wire.Verification.Claim
	check.That(t, c.PreviousToken == fakenode.LastToken && c.PreviousMAC.String() == "0a:58:0a:00:00:02", "claimed as %+v", c)
	k, _, err := r.Kernel.Lease(bpf.Key{Segment: fakenode.ParentIndex, Addr: fakenode.Two})
	check.That(t, err == nil && k.Flags == bpf.FlagSharedMAC, "the kernel has %+v, %v", k, err)
}

// The interface of the sandbox before is still there, and up. No two interfaces of a parent that are
// up may have one MAC.
func TestTheInterfaceOfTheLastSandboxIsSetDown(t *testing.T) {
	r := fakenode.New(t, fromIP(fakenode.V4("10.0.0.2")))
	first := r.Pod("web-0", "u1", fakenode.OfStatefulSet)
	r.MustAdd(first)
	second := next(first, "c-next")
	r.MustAdd(second)
	wantMAC(t, r, second, "10.0.0.2", "0a:58:0a:00:00:02")
	check.List(t, r.Lowered, []string{first.NetNS}, "set down")
}
