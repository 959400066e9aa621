// SPDX-License-Identifier: Apache-2.0

package holder_test

import (
	"cmp"
	"errors"
	"net"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/fenceline/fenceline/agent/attachment"
	"github.com/fenceline/fenceline/agent/pod"
	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/bpf"
	"github.com/fenceline/fenceline/cni/agentapi"
	"github.com/fenceline/fenceline/test/check"
	"github.com/fenceline/fenceline/test/fakenode"
)

const userVF = "0000:03:10.1"

// switched are the VFs of a node whose pods drive them by themselves. It vouches for them as vf.Keeper does.
type switched struct {
	*fakenode.Node
	off     bool
	refuses error
}

func (s *switched) Release(*attachment.Entry) error { s.off = false; return nil }
func (s *switched) Wake()                           {}

func (s *switched) SwitchOff(e *attachment.Entry) error {
	stored, _ := s.Attachments.Get(e.ContainerID, e.Interface)
	check.That(s.T, stored.Mute, "the next look would switch the VF on again")
	if s.refuses != nil {
		return s.refuses
	}
	s.off = true
	return s.Guards.Leases.SetHolderSilent(e, true)
}

// withUserVF is a node with the pod web, which drives its VF by itself.
func withUserVF(t *testing.T) (*switched, agentapi.AddRequest) {
	t.Helper()
	r := &switched{Node: fakenode.New(t, fakenode.V4("10.0.0.2"))}
	namespaceOf := r.FindLink
	r.FindLink = func(netns, ifname string) (pod.Interface, error) {
		_, err := namespaceOf(netns, ifname)
		return pod.Interface{}, cmp.Or(err, pod.ErrNoInterface)
	}
	r.FindUserVF = func(device string) (pod.Interface, bool, error) {
		return pod.Interface{
			MAC: net.HardwareAddr{2, 0, 0, 0, 0, 9}, Parent: pod.Parent{Index: fakenode.ParentIndex, Name: "eth1"}, Device: device, Unguarded: true,
		}, device == userVF, nil
	}
	r.VFs = r
	web := r.Pod("web", "u1")
	web.Network.Device = userVF
	return r, web
}

// withVF is a node with the pod web, whose VF has a guard. bypasses is whether the pod may send past it.
func withVF(t *testing.T) (r *switched, web agentapi.AddRequest, bypasses *bool) {
	t.Helper()
	r = &switched{Node: fakenode.New(t, fakenode.V4("10.0.0.2"))}
	find := r.FindLink
	r.FindLink = func(netns, ifname string) (pod.Interface, error) {
		i, err := find(netns, ifname)
		i.Device = userVF
		return i, err
	}
	bypasses = &r.Kernel.Bypasses
	r.VFs = r
	web = r.Pod("web", "u1")
	r.MustAdd(web)
	r.After.Wait()
	return r, web, bypasses
}

// A pool allows such sockets to a living pod, or the node cannot refuse them. No verifier believes its silence from then on.
func TestALeaseSaysWhetherItsVFMaySendPastItsGuard(t *testing.T) {
	r, web, bypasses := withVF(t)
	for _, *bypasses = range []bool{false, true, false} {
		check.OK(t, r.Guards.Repair())
		_, err := r.Recovery.Resume(t.Context(), attachment.AskTimeout)
		check.OK(t, err)
		l := r.Lease("10.0.0.2", v1alpha1.StateBound)
		check.Equal(t, l.Spec.Holder.Guarded, !*bypasses, "may send past it %v: guarded", *bypasses)
		e, _ := r.Attachments.Get(web.ContainerID, web.Interface)
		check.Equal(t, e.Bypasses, *bypasses, "journalled:")
		check.OK(t, r.Guards.Leases.SetHolderSilent(&e, false))
		check.Equal(t, r.acked(), !*bypasses, "acked while its VF is on:")
		r.Kernel.Claimed(fakenode.Key("10.0.0.2"), 1<<40)
		is := check.Value(r.Guards.Silenced(&e))(t)
		check.That(t, is, "it is on, and fenced")
		delete(r.Kernel.Claims, fakenode.Key("10.0.0.2"))
	}
}

// An agent that ends right after its ADD writes nothing more.
func TestALeaseSaysFromItsADDOnThatItsVFMaySendPastItsGuard(t *testing.T) {
	r, web, bypasses := withVF(t)
	r.MustDel(web)
	*bypasses = true
	r.MustAdd(r.Pod("next", "u2"))
	check.That(t, !r.Lease("10.0.0.2", v1alpha1.StateBound).Spec.Holder.Guarded, "a verifier would believe its silence")
}

// Its program has not run, so the VF needs no PF to be silent.
func TestAnADDOfAVFThatFailsFreesItsLease(t *testing.T) {
	r, web, bypasses := withVF(t)
	r.MustDel(web)
	*bypasses = true
	full := errors.New("no space left on device")
	r.GuardSources = func(e *attachment.Entry) error {
		if e.Phase == attachment.Bound {
			return full
		}
		return nil
	}
	check.Is(t, check.Err(r.Add(t.Context(), r.Pod("next", "u2"))), full, "got")
	r.Want()
	check.None(t, r.Attachments.All(), "journal")
}

func TestAVFThatMaySendPastItsGuardIsDeadOnceItIsOff(t *testing.T) {
	r, web, bypasses := withVF(t)
	*bypasses = true
	r.Replace(fakenode.Held("10.0.0.2", fakenode.Quarantined(v1alpha1.ReasonPodGone), ofThisNode))
	r.refuses = errors.New("operation not supported")
	_, _, err := r.Releaser.KillHolder(t.Context(), "10.0.0.2")
	check.Is(t, err, r.refuses, "got")
	r.refuses = nil
	_, dead, err := r.Releaser.KillHolder(t.Context(), "10.0.0.2")
	check.That(t, err == nil && dead && r.off && r.acked(), "dead %v, off %v, acked %v, %v", dead, r.off, r.acked(), err)
	dead, _ = r.Kernel.Dead(r.SlotOf(web))
	check.That(t, dead, "its guard lets frames pass")
	r.Terminate(web)
	r.Settle()
	check.That(t, r.off, "the VF is on again before the runtime has ended its pod")
	r.SandboxDies(web)
	check.That(t, !r.off && r.SlotOf(web) == 0, "the VF is off after DEL, or its entry is left")
	r.End(web)
	_, held, _ := r.Kernel.Lease(fakenode.Key("10.0.0.2"))
	check.That(t, !held, "its lease is left in the kernel")
}

// acked reports whether the kernel acknowledges a claim for the address of web.
func (s *switched) acked() bool {
	l, held, _ := s.Kernel.Lease(fakenode.Key("10.0.0.2"))
	return held && l.Flags&bpf.FlagUnguarded == 0
}

func TestAPodThatDrivesItsVFHasALeaseWithoutAGuard(t *testing.T) {
	r, web := withUserVF(t)
	r.MustAdd(web)
	l := r.Lease("10.0.0.2", v1alpha1.StateBound)
	check.That(t, !l.Spec.Holder.Guarded && l.Spec.Holder.MAC == "02:00:00:00:00:09" && l.Spec.Parent == "eth1", "lease %+v", l.Spec)
	check.That(t, len(r.Kernel.Guards) == 0 && !r.acked(), "guards %v, acked %v", r.Kernel.Guards, r.acked())
	chained(r.Node, web)
	check.OK(t, r.Check(t.Context(), agentapi.CheckRequest{Attachment: web.Attachment, Chained: true}))
	r.MustDel(web)
	r.Want()
	_, held, _ := r.Kernel.Lease(fakenode.Key("10.0.0.2"))
	check.That(t, !held, "its slot may use the address after DEL")

	other := r.Pod("other", "u2")
	other.Network.Device = "0000:03:00.0"
	r.Refused(agentapi.CodeTryAgainLater, other) // the kernel drives it: its interface may come yet
}

func TestAVFBehindOpenVSwitchIsRefused(t *testing.T) {
	r, web := withUserVF(t)
	web.Network.Type = "ovs"
	check.Says(t, r.Refused(agentapi.CodeInvalidNetworkConfig, web), "its VLAN is that of a port of Open vSwitch", "remove deviceID")
}

// The network of another pod names its VF. The fence of the first would end with the ADD or the DEL of the second.
func TestAVFHasOnePodThatLives(t *testing.T) {
	r, web := withUserVF(t)
	r.API.Put(fakenode.V4("10.0.0.2-10.0.0.9"))
	r.MustAdd(web)
	thief := r.Pod("thief", "u2")
	thief.Network.Device = userVF
	check.Says(t, r.Refused(agentapi.CodeTryAgainLater, thief), userVF, "shop/web", "delete that pod")
	r.MustAdd(web) // the runtime repeats its own
	r.Terminate(web)
	r.SandboxEnds(web) // and its DEL is lost
	r.MustAdd(thief)
}

func TestAVerifierOfThisNodeHasTheVFOff(t *testing.T) {
	r, web := withUserVF(t)
	r.MustAdd(web)
	r.Replace(fakenode.Held("10.0.0.2", fakenode.Quarantined(v1alpha1.ReasonPodGone), ofThisNode))
	r.refuses = errors.New("operation not supported")
	l, _, err := r.Releaser.KillHolder(t.Context(), "10.0.0.2")
	check.That(t, l != nil && errors.Is(err, r.refuses), "lease %v, %v: the verifier cannot tell the driver's reason", l, err)
	check.That(t, !r.acked(), "it is acknowledged, and on")
	r.refuses = nil
	_, dead, err := r.Releaser.KillHolder(t.Context(), "10.0.0.2")
	check.That(t, err == nil && dead && r.off && r.acked(), "dead %v, off %v, acked %v, %v", dead, r.off, r.acked(), err)
	r.Terminate(web)
	r.Settle()
	check.That(t, r.off, "the VF is on again before the runtime has ended its pod")
	r.SandboxDies(web)
	check.That(t, !r.off && r.SlotOf(web) == 0, "the VF is off after DEL, or its entry is left")
}

func TestWithoutItsEntryAHolderWithoutAGuardIsNoProof(t *testing.T) {
	r, web := withUserVF(t)
	r.MustAdd(web)
	check.OK(t, r.Attachments.Remove(web.ContainerID, web.Interface))
	r.Replace(fakenode.Held("10.0.0.2", fakenode.Quarantined(v1alpha1.ReasonPodGone), ofThisNode))
	for range 2 {
		_, _, err := r.Releaser.KillHolder(t.Context(), "10.0.0.2")
		check.That(t, err != nil, "nobody knows the VF, and its holder is said to be dead")
		r.Guards.Slots.Leave(1)
		check.OK(t, r.Guards.Sweep())
	}
}

func TestAClaimForOneAddressSwitchesAVFOff(t *testing.T) {
	r, web := withUserVF(t)
	r.MustAdd(web)
	off := func() bool {
		e, _ := r.Attachments.Get(web.ContainerID, web.Interface)
		return check.Value(r.Guards.Silenced(&e))(t)
	}
	check.That(t, !off(), "it is to be off, and nobody claims its address")
	r.Kernel.Claimed(fakenode.Key("10.0.0.2"), 1<<40)
	check.That(t, off(), "it is to be on, and its address is fenced")
}

// Its program never ran, so the undo asks nothing of the PF.
func TestTheUndoOfAnADDNeedsNoVFOff(t *testing.T) {
	r, web := withUserVF(t)
	r.refuses = errors.New("operation not supported")
	r.Wire.Answers[fakenode.Two] = fakenode.Stranger
	r.API.Breaks("update")
	r.Refused(agentapi.CodeTryAgainLater, web)
	r.API.Before = nil
	r.Settle()
	r.WantNothing()
}

func TestADELOfTheInterfaceAloneFreesNoUnguardedAddress(t *testing.T) {
	r, web := withUserVF(t)
	r.MustAdd(web)
	r.API.ChangePod(web.Pod.Name, sandboxReady(corev1.ConditionTrue))
	check.OK(t, r.Del(t.Context(), fakenode.Del(web)))
	r.Skip(time.Hour)
	r.Attachments.Pending.Add(web.Attachment)
	_, _ = r.Recovery.Resume(t.Context(), attachment.AskTimeout)
	r.Lease("10.0.0.2", v1alpha1.StateBound)
	r.MustDel(web)
	r.Want()
}
