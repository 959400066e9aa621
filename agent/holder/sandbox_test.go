// SPDX-License-Identifier: Apache-2.0

package holder_test

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fenceline/fenceline/agent/lease"
	"github.com/fenceline/fenceline/agent/segment"
	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/cni/agentapi"
	"github.com/fenceline/fenceline/internal/owner"
	"github.com/fenceline/fenceline/test/check"
	"github.com/fenceline/fenceline/test/fakenode"
)

// static makes a pod the mirror of a static pod.
func static(p *corev1.Pod) {
	p.Annotations = map[string]string{"kubernetes.io/config.hash": "0a1b", corev1.MirrorPodAnnotationKey: "0a1b"}
}

// Anybody may write the annotation of a static pod's UID: it counts on a mirror pod only.
func TestAPodThatNamesTheUIDOfAnotherKeepsItsOwn(t *testing.T) {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "u1", Annotations: map[string]string{"kubernetes.io/config.hash": "u2"}}}
	uid := lease.HolderOf(pod, agentapi.Attachment{}, "").PodUID
	check.That(t, uid == "u1" && !owner.IsUID(pod, "u2"), "the pod is taken for %s", uid)
	static(pod)
	uid = lease.HolderOf(pod, agentapi.Attachment{}, "").PodUID
	check.That(t, uid == "0a1b" && owner.IsUID(pod, "0a1b"), "the static pod is taken for %s", uid)
}

// next is the ADD of another sandbox of the same pod.
func next(r agentapi.AddRequest, container string) agentapi.AddRequest {
	r.ContainerID, r.NetNS = container, "/netns/"+container
	return r
}

func TestAPodWhoseSandboxDiesGetsItsAddressesBack(t *testing.T) {
	for _, pod := range []struct {
		name   string
		change func(*corev1.Pod)
		uid    string
	}{
		{"of a Deployment", ownedBy("ReplicaSet", "web"), "u1"},
		{"of a DaemonSet", ownedBy("DaemonSet", "web"), "u1"},
		{"of a Job", ownedBy("Job", "web"), "u1"},
		{"of a StatefulSet", fakenode.OfStatefulSet, "u1"},
		{"without an owner", func(*corev1.Pod) {}, "u1"},
		{"static", static, "0a1b"},
		{"static, with a mirror that is being deleted", func(p *corev1.Pod) { static(p); p.DeletionTimestamp = &metav1.Time{} }, "0a1b"},
	} {
		for order, die := range map[string]func(r *fakenode.Node, old, young agentapi.AddRequest) []string{
			"DEL, then ADD": func(r *fakenode.Node, old, young agentapi.AddRequest) []string {
				r.SandboxDies(old)
				r.Want("10.0.0.2 Retained", "fd00-0000-0000-0000-0000-0000-0000-0002 Retained")
				return r.MustAdd(young)
			},
			"DEL, a restart of the agent, then ADD": func(r *fakenode.Node, old, young agentapi.AddRequest) []string {
				r.SandboxDies(old)
				r.Want("10.0.0.2 Retained", "fd00-0000-0000-0000-0000-0000-0000-0002 Retained")
				r.Restart()
				return r.MustAdd(young)
			},
			"ADD, then DEL": func(r *fakenode.Node, old, young agentapi.AddRequest) []string {
				got := r.MustAdd(young)
				r.SandboxDies(old)
				return got
			},
		} {
			t.Run(pod.name+": "+order, func(t *testing.T) {
				v4, v6 := fakenode.V4("10.0.0.2-10.0.0.9"), fakenode.Pool("v6", "fd00::/64", v1alpha1.ModeEnforce, "fd00::2-fd00::9")
				r := fakenode.New(t, v4, v6)
				web := r.Pod("web-0", "u1", pod.change)
				web.Pod.UID = pod.uid
				before := r.MustAdd(web)
				slot := r.SlotOf(web)
				check.List(t, die(r, web, next(web, "c2")), before, "has")
				check.That(t, r.Kernel.IsDead(slot), "the slot of the dead sandbox lives")
				r.HoldsWhatTheJournalSays(next(web, "c2"))
				s := r.Lease("10.0.0.2", v1alpha1.StateBound).Spec
				check.That(t, s.Reason == "" && s.Message == "", "lease %+v", s)
			})
		}
	}
}

// Each interface of a pod has a lease of its own.
func TestEachInterfaceGetsItsOwnAddressBack(t *testing.T) {
	r := fakenode.New(t, fakenode.V4("10.0.0.2-10.0.0.9"))
	first := r.Pod("web", "u1")
	net1 := second(first, "net1")
	before := append(r.MustAdd(first), r.MustAdd(net1)...)
	r.SandboxDies(net1)
	r.SandboxDies(first)
	young := next(first, "c2")
	check.List(t, append(r.MustAdd(young), r.MustAdd(second(young, "net1"))...), before, "has")
}

func TestADELFreesTheAddressOfAPodThatGetsNoOtherSandbox(t *testing.T) {
	for name, change := range map[string]func(*corev1.Pod){
		"Terminating":           func(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{} },
		"Succeeded":             func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded },
		"Failed":                func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed },
		"of another UID by now": func(p *corev1.Pod) { p.UID = "u2" },
		"never restarted":       func(p *corev1.Pod) { p.Spec.RestartPolicy = corev1.RestartPolicyNever },
		"gone":                  nil,
	} {
		t.Run(name, func(t *testing.T) {
			r, web := fakenode.WithPod(t, fakenode.V4("10.0.0.2"))
			if change == nil {
				r.API.Drop(fakenode.PodOf("web"))
			} else {
				r.API.ChangePod("web", change)
			}
			r.SandboxDies(web)
			r.Want()
		})
	}
}

func TestADELKeepsTheAddressIfThePodIsUnknown(t *testing.T) {
	r, web := fakenode.WithPod(t, fakenode.V4("10.0.0.2"))
	r.After.Wait() // the steps after the answer read the cache
	r.Cache = deafReader{r.Cache}
	r.SandboxDies(web)
	check.Equal(t, r.Lease("10.0.0.2", v1alpha1.StateRetained).Spec.Reason, v1alpha1.ReasonSandboxEnded, "reason")
}

// The address is that pod's: no other pod gets it, also not one of the same name.
func TestAKeptAddressIsNoOtherPods(t *testing.T) {
	r, web := fakenode.WithPod(t, fakenode.V4("10.0.0.2"))
	r.SandboxDies(web)
	r.Refused(agentapi.CodeExhausted, r.Pod("other", "u2"))
	r.API.Drop(fakenode.PodOf("web"))
	r.Refused(agentapi.CodeExhausted, r.Pod("web", "u3"))
	r.Want("10.0.0.2 Retained")
}

// The address of an ADD that is undone is not proven, unless it was kept before.
func TestAnUndoKeepsOnlyWhatWasKept(t *testing.T) {
	broken := func(r *fakenode.Node) {
		r.Wire.OnClaim = func(c segment.Claim) { r.Kernel.Claimed(fakenode.Key("10.0.0.2"), c.Token+1) }
	}
	r := fakenode.New(t, fakenode.V4("10.0.0.2"))
	web := r.Pod("web", "u1")
	broken(r)
	check.Must(t, fakenode.TryAdd(r, web) != nil, "ADD succeeds")
	r.Settle()
	r.Want()

	r = fakenode.New(t, fakenode.V4("10.0.0.2"))
	web = r.Pod("web", "u1")
	r.MustAdd(web)
	r.SandboxDies(web)
	broken(r)
	check.Must(t, fakenode.TryAdd(r, next(web, "c2")) != nil, "ADD succeeds")
	r.Settle()
	r.Lease("10.0.0.2", v1alpha1.StateRetained)
}

// Only a name insists on an address that its pool no longer gives on this node.
func TestAPodLeavesAKeptAddressThatCannotLiveHere(t *testing.T) {
	r := fakenode.New(t, fakenode.V4("10.0.0.2"), other())
	web := r.Pod("web", "u1", namingPools("v4", "other"))
	r.MustAdd(web)
	r.SandboxDies(web)
	r.API.Put(forAnotherNode(fakenode.V4("10.0.0.2")))
	r.Gets(next(web, "c2"), "10.1.0.2")
	r.Want("10.0.0.2 Retained", "10.1.0.2 Bound") // the controller ends the first one
	check.Says(t, strings.Join(r.Told(), "\n"), "AddressLeft 10.1.0.2 replaces 10.0.0.2")
}

// The DEL of the older sandbox may end between the reading of the lease and its take-over.
func TestADELInTheMiddleOfTheADDOfTheNextSandbox(t *testing.T) {
	r := fakenode.New(t, fakenode.V4("10.0.0.2-10.0.0.9"))
	web := r.Pod("web", "u1")
	before := r.MustAdd(web)
	deleted := false
	r.API.Meanwhile = func(verb, _ string) {
		if verb == "update" && !deleted {
			deleted = true
			r.SandboxDies(web)
		}
	}
	check.List(t, r.MustAdd(next(web, "c2")), before, "has")
}

// The API server is slow. The take-over of an ADD that was given up comes true after the next ADD has read
// the lease.
func TestATakeOverThatComesTrueLateIsTakenOver(t *testing.T) {
	r := fakenode.New(t, fakenode.V4("10.0.0.2-10.0.0.9"))
	r.API.Put(fakenode.Held("10.0.0.2", fakenode.Retained))
	web := r.Pod("web-0", "u1", fakenode.OfStatefulSet)
	late := fakenode.Held("10.0.0.2", func(s *v1alpha1.IPLeaseSpec) {
		s.NodeName, s.Session = fakenode.ThisNode, fakenode.ThisSession
		s.Holder.PodUID, s.Holder.ContainerID = "u1", "c-given-up"
	})
	late.UID = r.API.Leases()["10.0.0.2"].UID
	written := false
	r.API.Meanwhile = func(verb, _ string) {
		if verb == "update" && !written {
			written = true
			r.API.Put(late)
		}
	}
	r.Gets(web, "10.0.0.2")
	l := r.Lease("10.0.0.2", v1alpha1.StateBound)
	check.That(t, written && l.Spec.Holder.ContainerID == web.ContainerID && r.Speaks(web, "10.0.0.2"), "written %v, lease %+v", written, l.Spec)
}

// A foreign host takes the address of a pod while its sandbox is dead. Only a name insists on the
// address; any other pod would wait for that host for good.
func TestAForeignHostOnAKeptAddressKeepsNoPodFromItsNextSandbox(t *testing.T) {
	for name, die := range map[string]func(*fakenode.Node, agentapi.AddRequest){
		"DEL, then ADD": (*fakenode.Node).SandboxDies,
		"ADD, then DEL": func(*fakenode.Node, agentapi.AddRequest) {},
		"a boot": func(r *fakenode.Node, _ agentapi.AddRequest) {
			r.Life = "node-1/boot-2"
			r.Restart()
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := fakenode.New(t, fakenode.V4("10.0.0.2-10.0.0.9"))
			web := r.Pod("web", "u1", ownedBy("ReplicaSet", "web"))
			r.MustAdd(web)
			die(r, web)
			r.Wire.Verdicts[fakenode.Two] = segment.Answered
			young := next(web, "c2")
			r.Gets(young, "10.0.0.3")
			r.SandboxDies(web)
			s := r.Lease("10.0.0.2", v1alpha1.StateQuarantined).Spec
			check.That(t, s.Reason == v1alpha1.ReasonConflict && s.ConflictMAC() == fakenode.Stranger.String() && s.Holder == nil, "lease %+v", s)
			forgotten := s.Previous == nil || s.Previous.PodUID != "u1"
			check.That(t, name != "a boot" || !forgotten, "R1: the holder of the last boot is not proven, and the lease forgets it: %+v", s)
			r.HoldsWhatTheJournalSays(young)
		})
	}
}
