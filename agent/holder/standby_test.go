// SPDX-License-Identifier: Apache-2.0

package holder_test

import (
	"net/netip"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fenceline/fenceline/agent/attachment"
	"github.com/fenceline/fenceline/agent/pod"
	"github.com/fenceline/fenceline/agent/segment"
	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/cni/agentapi"
	"github.com/fenceline/fenceline/test/check"
	"github.com/fenceline/fenceline/test/fakenode"
)

// onBridge makes the interfaces of a node's pods ports of a bridge: the target has the MAC of the machine.
func onBridge(r *fakenode.Node) {
	find := r.FindLink
	r.FindLink = func(netns, ifname string) (pod.Interface, error) {
		link, err := find(netns, ifname)
		link.NodeEnd = 7
		return link, err
	}
}

// A machine had one family when it started, and its target gets both. With the MAC of the machine, frames of the new
// family would teach the switches where it does not run yet. So the new family is mute until the other one has its
// turn, also after a restart, and whichever is the first.
func TestANewFamilyOfAMachineWaitsForTheTurnOfTheOther(t *testing.T) {
	for had, fresh := range map[string]string{"10.0.0.2": "fd00::2", "fd00::2": "10.0.0.2"} {
		t.Run(fresh+" is new", func(t *testing.T) {
			r := fakenode.New(t, fakenode.Dual()...)
			onBridge(r)
			addr := netip.MustParseAddr(had)
			r.API.Put(fakenode.Held(had, ofMachine, func(s *v1alpha1.IPLeaseSpec) {
				if addr.Is6() {
					s.Pool = "v6"
				}
			}))
			pod := r.Pod("virt-launcher-db-b", "b", target)
			r.Gets(pod, "10.0.0.2", "fd00::2")
			chained(r, pod)
			resume := func() {
				t.Helper()
				r.Recovery.LookAgain()
				_, _ = r.Recovery.Resume(t.Context(), attachment.AskTimeout)
			}
			speaks := func(when string, want bool) {
				t.Helper()
				check.Equal(t, r.Speaks(pod, had), want, "%s, the target speaks by %s:", when, had)
				check.Equal(t, r.Speaks(pod, fresh), want, "%s, the target speaks by %s:", when, fresh)
				check.Equal(t, r.Wire.Took("announce "+had), want, "%s, %s was announced:", when, had)
				check.Equal(t, r.Wire.Took("announce "+fresh), want, "%s, %s was announced:", when, fresh)
			}
			e, _ := r.Attachments.Get(pod.ContainerID, pod.Interface)
			check.Equal(t, e.MAC, "02:00:00:00:02:01", "the MAC is that of the machine:")
			speaks("after the ADD", false)
			check.OK(t, r.Holders.Check(t.Context(), agentapi.CheckRequest{Attachment: pod.Attachment}))
			resume()
			speaks("during the migration", false)
			r.Restart()
			onBridge(r)
			resume()
			speaks("after a restart of the agent", false)

			l := r.API.Leases()[v1alpha1.LeaseName("", addr)].DeepCopy()
			fakenode.Quarantined(v1alpha1.ReasonMigrated)(&l.Spec)
			l.Spec.Since = metav1.NewTime(time.Now().Add(-time.Minute))
			check.OK(t, r.API.Update(t.Context(), l))
			r.Wire.Verdicts[addr] = segment.Fenced
			resume() // takes the turn
			resume() // the new family may have been looked at before
			speaks("after the turn", true)
			for name, l := range r.API.Leases() {
				check.That(t, l.Spec.State == v1alpha1.StateBound && l.Spec.Holder.PodUID == "b", "lease %s is %+v", name, l.Spec)
			}
			r.HoldsWhatTheJournalSays(pod)
			r.Restart()
			onBridge(r)
			r.Settle()
			speaks("after another restart", true)
		})
	}
}

// On a macvlan, source and target have MACs of their own.
func TestANewFamilyWithAMACOfItsOwnSpeaksAtOnce(t *testing.T) {
	r := fakenode.New(t, fakenode.Dual()...)
	r.API.Put(fakenode.Held("10.0.0.2", ofMachine))
	pod := r.Pod("virt-launcher-db-b", "b", target)
	r.Gets(pod, "10.0.0.2", "fd00::2")
	check.That(t, r.Speaks(pod, "fd00::2") && r.Wire.Took("announce fd00::2"), "the new family is mute without need")
	check.That(t, !r.Speaks(pod, "10.0.0.2"), "the target speaks before its turn")
}
