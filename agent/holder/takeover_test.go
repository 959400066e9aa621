// SPDX-License-Identifier: Apache-2.0

package holder_test

import (
	"context"
	"errors"
	"net/netip"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fenceline/fenceline/agent/acquire"
	"github.com/fenceline/fenceline/agent/attachment"
	"github.com/fenceline/fenceline/agent/segment"
	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/cni/agentapi"
	"github.com/fenceline/fenceline/internal/owner"
	"github.com/fenceline/fenceline/test/check"
	"github.com/fenceline/fenceline/test/fakenode"
	"github.com/fenceline/fenceline/test/owners"
)

// The host that only asks for the address may be the verifier of the quarantine that the
// take-over has just ended.
func TestATakeOverThatMeetsAProberVerifiesOnceMore(t *testing.T) {
	for _, test := range []struct {
		name    string
		probers int
		verdict segment.Verdict
		looks   int
		safe    bool
	}{
		{"nobody asks", 0, segment.Fenced, 1, true},
		{"a prober that was done then", 1, segment.Fenced, 2, true},
		{"a prober, and no proof then (R2)", 1, segment.Unknown, 2, false},
		{"a prober, and a speaker then", 1, segment.Answered, 2, false},
		{"one that keeps asking", 2, segment.Fenced, 2, false},
		{"one that speaks", 0, segment.Answered, 1, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			r := fakenode.New(t, fakenode.V4("10.0.0.2"))
			r.API.Put(fakenode.Held("10.0.0.2", fakenode.Quarantined(v1alpha1.ReasonPodTerminating)))
			r.Wire.Probers, r.Wire.Verdicts[fakenode.Two] = test.probers, test.verdict
			web := r.Pod("web-0", "u1", fakenode.OfStatefulSet)
			if test.safe {
				r.MustAdd(web)
				r.Want("10.0.0.2 Bound")
			} else {
				r.Refused(agentapi.CodeTryAgainLater, web)
				r.Want("10.0.0.2 Quarantined")
			}
			check.Equal(t, r.Wire.Times("verify 10.0.0.2"), test.looks, "verifications:")
		})
	}
}

// brokenWire cannot verify.
type brokenWire struct{ *fakenode.Wire }

func (brokenWire) Verify(context.Context, segment.Verification) (segment.Verdict, segment.Evidence, error) {
	return segment.Unknown, segment.Evidence{}, errors.New("the parent is down")
}

// An address that was proven, and that nobody answered for, is as proven as it
// was, however the take-over fails.
func TestAFailedTakeOverOfAProvenAddressLeavesItRetained(t *testing.T) {
	for _, test := range []struct {
		name  string
		fails func(*fakenode.Node)
		state string
	}{
		{"it could not be verified", func(r *fakenode.Node) {
			r.After.Wait() // the steps after the answer open the segment
			r.OpenSegment = func(int) (acquire.Segment, error) { return brokenWire{r.Wire}, nil }
		}, "Retained"},
		{"it was fenced before it spoke", func(r *fakenode.Node) {
			r.Wire.OnClaim = func(c segment.Claim) { r.Kernel.Claimed(fakenode.Key("10.0.0.2"), c.Token+1) }
		}, "Retained"},
		{"somebody answered", func(r *fakenode.Node) { r.Wire.Verdicts[fakenode.Two] = segment.Answered }, "Quarantined"},
	} {
		t.Run(test.name, func(t *testing.T) {
			r := fakenode.New(t, fakenode.V4("10.0.0.2"))
			r.API.Put(fakenode.Held("10.0.0.2", fakenode.Retained))
			test.fails(r)
			check.Must(t, fakenode.TryAdd(r, r.Pod("web-0", "u1", fakenode.OfStatefulSet)) != nil, "ADD succeeds")
			r.Settle()
			r.Want("10.0.0.2 " + test.state)
			l := r.API.Leases()["10.0.0.2"]
			check.Equal(t, l.Spec.Reason == v1alpha1.ReasonUnverified, test.state != "Retained", "reason %q: unverified", l.Spec.Reason)
			check.That(t, l.Spec.Holder != nil && l.Spec.Holder.Pod == "web-0", "kept for %+v", l.Spec.Holder)
		})
	}
}

func target(pod *corev1.Pod) {
	owners.OfMachine("db")(pod)
	pod.Labels[owner.LabelMigration] = "m"
}

func ofMachine(s *v1alpha1.IPLeaseSpec) {
	s.Holder.Pod, s.Holder.OwnerGroup, s.Holder.OwnerKind, s.Holder.OwnerName = "virt-launcher-db-a", "kubevirt.io", "VirtualMachineInstance", "db"
}

// changeLease is a write of the controller, or of another node.
func changeLease(r *fakenode.Node, change func(*v1alpha1.IPLeaseSpec)) {
	l := r.API.Leases()["10.0.0.2"].DeepCopy()
	change(&l.Spec)
	check.OK(r.T, r.API.Update(r.T.Context(), l))
}

// The next pod of a virtual machine has its address again, under another name.
func TestAVirtualMachineKeepsItsAddress(t *testing.T) {
	r := fakenode.New(t, fakenode.V4("10.0.0.2-10.0.0.9"))
	first := r.Pod("virt-launcher-db-a", "a", owners.OfMachine("db"))
	had := r.MustAdd(first)
	r.MustDel(first)
	r.Want("10.0.0.2 Retained")
	got := r.MustAdd(r.Pod("virt-launcher-log-b", "b", owners.OfMachine("log")))
	check.That(t, got[0] != had[0], "another machine got %s", got[0])
	r.Gets(r.Pod("virt-launcher-db-c", "c", owners.OfMachine("db")), had[0])
}

// R15: the target of a live migration is mute until the source has handed over and is proven silent.
func TestTheTargetOfAMigrationStandsBehindTheSource(t *testing.T) {
	r := fakenode.New(t, fakenode.V4("10.0.0.2"))
	r.API.Put(fakenode.Held("10.0.0.2", ofMachine))
	pod := r.Pod("virt-launcher-db-b", "b", target)
	r.Gets(pod, "10.0.0.2")
	mute := func(when string) {
		t.Helper()
		check.That(t, !r.Speaks(pod, "10.0.0.2"), "%s, the target speaks", when)
	}
	mute("during the migration")
	check.Equal(t, r.Wire.Times("claim 10.0.0.2")+r.Wire.Times("announce 10.0.0.2"), 0, "frames that claim or announce the address of the source:")
	chained(r, pod)
	resume := func() (left int) {
		t.Helper()
		r.Recovery.LookAgain()
		left, _ = r.Recovery.Resume(t.Context(), attachment.AskTimeout)
		return left
	}
	check.That(t, resume() == 1, "recovery no longer looks")
	mute("while the source has the address")
	r.Want("10.0.0.2 Bound")
	r.Restart()
	resume()
	mute("after a restart of the agent")

	// The controller has seen that the source is paused, and the source does not answer the claim.
	changeLease(r, fakenode.Quarantined(v1alpha1.ReasonMigrated))
	r.Wire.Verdicts[fakenode.Two] = segment.Unknown
	resume()
	mute("without proof")
	r.Want("10.0.0.2 Quarantined")
	unproven := r.API.Leases()["10.0.0.2"].Spec
	check.That(t, unproven.Holder.PodUID == "b" && unproven.Previous != nil && unproven.Reason == v1alpha1.ReasonUnverified,
		"without proof, the lease is not kept for the target: %+v", unproven)
	changeLease(r, func(s *v1alpha1.IPLeaseSpec) { s.Since = metav1.NewTime(time.Now().Add(-time.Minute)) })
	r.Wire.Verdicts[fakenode.Two] = segment.Fenced
	r.API.After = func(string) error { return &fakenode.NetError{} }
	check.Equal(t, resume(), 1, "after an answer that was lost, entries are left:")
	mute("without an answer")
	r.API.After = nil
	check.Equal(t, resume(), 0, "entries are left:")
	l := r.Lease("10.0.0.2", v1alpha1.StateBound)
	installed, _, err := r.Kernel.Lease(fakenode.Key("10.0.0.2"))
	check.That(t, err == nil && installed.Token == l.LastToken(), "the kernel has token %d, the record %d: %v", installed.Token, l.LastToken(), err)
	check.That(t, l.Spec.Holder.PodUID == "b" && l.Spec.Previous == nil && r.Speaks(pod, "10.0.0.2"),
		"the target does not have the address: %+v", l.Spec)
	r.MustDel(pod)
	r.Want("10.0.0.2 Retained")
}

// An address that is reserved for a running machine, or chosen in its template, is for its next start: the guest keeps
// its own one over a migration.
func TestAMigrationKeepsTheAddressOfTheGuest(t *testing.T) {
	for name, change := range map[string]func(*fakenode.Node) func(*corev1.Pod){
		"another one is reserved": func(r *fakenode.Node) func(*corev1.Pod) {
			kept(r, v1alpha1.ReservedFor{VirtualMachine: "db"}, "10.0.0.7")
			return func(*corev1.Pod) {}
		},
		"its own one is reserved for another": func(r *fakenode.Node) func(*corev1.Pod) {
			kept(r, v1alpha1.ReservedFor{VirtualMachine: "log"}, "10.0.0.2")
			return func(*corev1.Pod) {}
		},
		"another one is chosen": func(*fakenode.Node) func(*corev1.Pod) { return choosing("10.0.0.7") },
	} {
		t.Run(name, func(t *testing.T) {
			r := fakenode.New(t, fakenode.V4("10.0.0.2-10.0.0.9"))
			r.API.Put(fakenode.Held("10.0.0.2", ofMachine))
			r.Gets(r.Pod("virt-launcher-db-b", "b", target, change(r)), "10.0.0.2")
		})
	}
}

// In mode Observe no host was asked, so the event must not claim a proof.
func TestTheEventOfAHandOverNamesItsProof(t *testing.T) {
	for mode, want := range map[v1alpha1.ConflictMode]segment.Verdict{
		v1alpha1.ModeEnforce: segment.Fenced, v1alpha1.ModeObserve: segment.Unverified,
	} {
		t.Run(string(mode), func(t *testing.T) {
			r := fakenode.New(t, fakenode.Pool("v4", "10.0.0.0/24", mode, "10.0.0.2"))
			r.API.Put(fakenode.Held("10.0.0.2", ofMachine))
			pod := r.Pod("virt-launcher-db-b", "b", target)
			r.MustAdd(pod)
			chained(r, pod)
			r.Told()
			changeLease(r, fakenode.Quarantined(v1alpha1.ReasonMigrated))
			r.Wire.Verdicts[fakenode.Two] = segment.Fenced
			r.Recovery.LookAgain()
			_, _ = r.Recovery.Resume(t.Context(), attachment.AskTimeout)
			told := strings.Join(r.Told(), "\n")
			check.That(t, strings.Contains(told, "AddressTakenOver") && strings.HasSuffix(told, ": "+string(want)), "told %q, want %s", told, want)
		})
	}
}

// The source of a migration is lost in the middle of the hand-over of two families. Each family becomes
// the target's by its own proof, and a restart of the agent changes nothing.
func TestBothFamiliesBecomeTheTargetsWhenTheSourceIsLost(t *testing.T) {
	six := netip.MustParseAddr("fd00::2")
	for name, lost := range map[string]func(*v1alpha1.IPLeaseSpec){
		// The controller has taken the address of a lost node, and this node verifies.
		"quarantined": func(s *v1alpha1.IPLeaseSpec) {
			fakenode.Quarantined(v1alpha1.ReasonNodeUnreachable)(s)
			s.Since = metav1.NewTime(time.Now().Add(-time.Minute))
		},
		// Another node has verified it already.
		"retained": fakenode.Retained,
	} {
		t.Run(name, func(t *testing.T) {
			r := fakenode.New(t, fakenode.Dual()...)
			r.API.Put(fakenode.Held("10.0.0.2", ofMachine))
			r.API.Put(fakenode.Held("fd00::2", ofMachine, func(s *v1alpha1.IPLeaseSpec) { s.Pool = "v6" }))
			pod := r.Pod("virt-launcher-db-b", "b", target)
			r.MustAdd(pod)
			chained(r, pod)
			resume := func() {
				t.Helper()
				r.Restart()
				r.Recovery.LookAgain()
				_, _ = r.Recovery.Resume(t.Context(), attachment.AskTimeout)
			}
			lose := func(lease string) {
				l := r.API.Leases()[lease].DeepCopy()
				lost(&l.Spec)
				r.Replace(l)
			}
			speaks := func(when string, four, other bool) {
				t.Helper()
				a, b := r.Speaks(pod, "10.0.0.2"), r.Speaks(pod, "fd00::2")
				check.That(t, a == four && b == other, "%s, the target speaks by IPv4: %v, by IPv6: %v", when, a, b)
			}
			resume()
			speaks("before the loss", false, false)
			r.Wire.Verdicts[fakenode.Two], r.Wire.Verdicts[six] = segment.Silent, segment.Silent
			lose("10.0.0.2")
			resume()
			speaks("after the loss of IPv4", true, false)
			lose(v1alpha1.LeaseName("", six))
			resume()
			speaks("after the loss of both", true, true)
			for lease, l := range r.API.Leases() {
				check.That(t, l.Spec.State == v1alpha1.StateBound && l.Spec.Holder.PodUID == "b" && l.Spec.Previous == nil,
					"lease %s is %+v", lease, l.Spec)
			}
		})
	}
}

// A pod of the machine that is no target waits, as every other pod does.
func TestOnlyTheTargetOfAMigrationStandsBehind(t *testing.T) {
	r := fakenode.New(t, fakenode.V4("10.0.0.2"))
	r.API.Put(fakenode.Held("10.0.0.2", ofMachine))
	r.Refused(agentapi.CodeTryAgainLater, r.Pod("virt-launcher-db-b", "b", owners.OfMachine("db")))
}

// Nobody proves the source silent, and the target is deleted without a DEL.
func TestATargetThatIsGoneIsReleasedWithoutProof(t *testing.T) {
	r := fakenode.New(t, fakenode.V4("10.0.0.2"))
	r.API.Put(fakenode.Held("10.0.0.2", ofMachine))
	pod := r.Pod("virt-launcher-db-b", "b", target)
	r.MustAdd(pod)
	chained(r, pod)
	changeLease(r, fakenode.Quarantined(v1alpha1.ReasonMigrated))
	r.Wire.Verdicts[fakenode.Two] = segment.Unknown
	check.OK(t, r.API.Delete(t.Context(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "virt-launcher-db-b"}}))
	r.Recovery.LookAgain()
	left, err := r.Recovery.Resume(t.Context(), attachment.AskTimeout)
	check.That(t, left == 0 && len(r.Attachments.All()) == 0, "%d entries are left: %v", left, err)
	r.Want("10.0.0.2 Quarantined")
}

// The source has handed over. KubeVirt ends its pod: after a migration by post-copy the machine still
// needs the pod's memory.
func TestTheSourceOfAMigrationIsNotDeleted(t *testing.T) {
	r := fakenode.New(t, fakenode.V4("10.0.0.2"))
	source := r.Pod("virt-launcher-db-a", "a", owners.OfMachine("db"))
	r.MustAdd(source)
	changeLease(r, func(s *v1alpha1.IPLeaseSpec) {
		s.NodeName, s.Session = "n2", "node-2/boot-1"
		s.Holder.Pod, s.Holder.PodUID, s.Holder.ContainerID = "virt-launcher-db-b", "b", "c-b"
	})
	r.Settle()
	check.That(t, !r.Speaks(source, "10.0.0.2"), "the source speaks")
	check.That(t, r.API.Get(t.Context(), types.NamespacedName{Namespace: "shop", Name: "virt-launcher-db-a"}, &corev1.Pod{}) == nil,
		"the source was deleted")
}
