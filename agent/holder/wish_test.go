// SPDX-License-Identifier: Apache-2.0

package holder_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fenceline/fenceline/agent/refusal"
	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/cni/agentapi"
	"github.com/fenceline/fenceline/test/check"
	"github.com/fenceline/fenceline/test/fakenode"
)

// choosing has a pod choose addresses.
func choosing(value string) func(*corev1.Pod) {
	return fakenode.Annotated(v1alpha1.AnnotationPrefix+"ips", value)
}

// ofReplicaSet makes a ReplicaSet own the pod.
func ofReplicaSet(p *corev1.Pod) {
	yes := true
	p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "web-5d9c", UID: "r", Controller: &yes}}
}

func TestEachPodOfAStatefulSetHasItsPlaceInTheList(t *testing.T) {
	r := fakenode.New(t, fakenode.V4("10.0.0.2-10.0.0.9"))
	chosen := choosing("10.0.0.6, 10.0.0.5, 10.0.0.4")
	had := []string{"10.0.0.6", "10.0.0.5", "10.0.0.4"}
	begin := func(round, ordinal int, change func(*corev1.Pod)) agentapi.AddRequest {
		return r.Pod(fmt.Sprint("web-", ordinal), fmt.Sprint("u", round, ordinal), fakenode.OfStatefulSet, change)
	}
	for _, ordinal := range []int{2, 0, 1} {
		r.Gets(begin(0, ordinal, chosen), had[ordinal])
	}
	for ordinal, addr := range had { // it is rolled
		r.MustDel(begin(0, ordinal, chosen))
		r.Lease(addr, v1alpha1.StateRetained)
		r.Gets(begin(1, ordinal, chosen), addr)
	}
	check.None(t, slices.DeleteFunc(r.Told(), func(e string) bool { return !strings.Contains(e, "AddressLeft") }), "left addresses")

	// The list is edited: the living pod keeps its address, and the next one of its name has the new one.
	edited := choosing("10.0.0.6, 10.0.0.5, 10.0.0.8")
	last := begin(1, 2, edited)
	r.Lease("10.0.0.4", v1alpha1.StateBound)
	r.MustDel(last)
	r.Gets(begin(2, 2, edited), "10.0.0.8")
	check.That(t, slices.ContainsFunc(r.Told(), func(e string) bool {
		return strings.Contains(e, "AddressLeft 10.0.0.8 replaces 10.0.0.4: annotation ipam.fenceline.io/ips of pod shop/web-2 names another address")
	}), "no event tells of the address that was left")

	err := fakenode.TryAdd(r, begin(0, 3, edited))
	check.Says(t, err, "annotation ipam.fenceline.io/ips of pod shop/web-3", "none for ordinal 3: add addresses, or scale to 3 replicas")
	check.Equal(t, refusal.Answer(err).Code, agentapi.CodeInvalidNetworkConfig, "its code is")
}

func TestADeploymentsPodsWaitForTheAddressesOfTheirList(t *testing.T) {
	r := fakenode.New(t, fakenode.V4("10.0.0.2-10.0.0.9"))
	chosen := choosing("10.0.0.6, 10.0.0.7")
	var old []agentapi.AddRequest
	var had []string
	for _, uid := range []string{"u1", "u2"} {
		web := r.Pod("web-5d9c-"+uid, uid, ofReplicaSet, chosen)
		old, had = append(old, web), append(had, r.MustAdd(web)...)
	}
	slices.Sort(had)
	check.List(t, had, []string{"10.0.0.6", "10.0.0.7"}, "the pods have")
	r.Told()
	third := r.Pod("web-5d9c-u3", "u3", ofReplicaSet, chosen)
	end := waits(t.Context(), r, third)
	check.Says(t, <-r.Recorder.Events, "AddressAwaited waits up to 1m30s for an address",
		"pool v4: it is exhausted for this pod, 2 of the 2 addresses that annotation ipam.fenceline.io/ips of pod shop/web-5d9c-u3 names have a lease")
	r.MustAdd(r.Pod("other", "u9")) // nothing holds others back
	r.MustDel(old[0])
	r.End(old[0])
	check.OK(t, <-end)
	var free []string
	for name, l := range r.API.Leases() {
		if l.Spec.Holder.PodUID == "u3" {
			free = append(free, name)
		}
	}
	check.That(t, len(free) == 1 && slices.Contains(had, free[0]), "the third pod has %v, want one of %v", free, had)
}

func TestAChosenAddressThatAnotherPodHas(t *testing.T) {
	r := fakenode.New(t, fakenode.V4("10.0.0.2-10.0.0.9"))
	r.API.Put(fakenode.Held("10.0.0.5", func(s *v1alpha1.IPLeaseSpec) { s.Holder.Pod = "db-0" }))
	err := fakenode.TryAdd(r, r.Pod("web", "u1", choosing("10.0.0.5")))
	check.Says(t, err, "requested address 10.0.0.5 for pod shop/web interface eth0, entry 0 of annotation ipam.fenceline.io/ips of pod shop/web: "+
		"it is taken: Bound for pod shop/db-0 on node n2; free this address, or name another one there")
	check.Equal(t, refusal.Answer(err).Code, agentapi.CodeAddressRefused, "its code is")
	r.Want("10.0.0.5 Bound")
}

// keptReady is a Warm lease of another node.
func keptReady(addr string) *v1alpha1.IPLease {
	return fakenode.Held(addr, func(s *v1alpha1.IPLeaseSpec) { s.State, s.Holder = v1alpha1.StateWarm, nil })
}

func TestAChosenAddressThatAnotherNodeKeepsReady(t *testing.T) {
	for name, change := range map[string]func(*corev1.Pod){
		"of a single pod": choosing("10.0.0.5"),
		"of a Deployment": func(p *corev1.Pod) { ofReplicaSet(p); choosing("10.0.0.5")(p) },
	} {
		t.Run(name, func(t *testing.T) {
			r := fakenode.New(t, fakenode.V4("10.0.0.2-10.0.0.9"))
			r.API.Put(keptReady("10.0.0.5"))
			end := waits(t.Context(), r, r.Pod("web", "u1", change))
			check.Same(t, r.Waiting.Waits()[0].Addresses, []string{"10.0.0.5"}, "it asks for")
			r.API.Drop(keptReady("10.0.0.5"))
			check.OK(t, <-end)
			r.Want("10.0.0.5 Bound")
		})
	}
}

func TestAChosenAddressWhoseNodeDoesNotReleaseIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := fakenode.New(t, fakenode.V4("10.0.0.2-10.0.0.9"))
		r.API.Put(keptReady("10.0.0.5"))
		began := time.Now()
		err := fakenode.TryAdd(r, r.Pod("web", "u1", choosing("10.0.0.5")))
		check.Says(t, err, "node n2 keeps it ready (Warm), and is asked to release it, but has not done so within 5s, since its agent is away or of an earlier release: start or upgrade the agent of node n2, or name another address")
		check.Equal(t, refusal.Answer(err).Code, agentapi.CodeAddressRefused, "its code is")
		check.Equal(t, time.Since(began).Round(time.Second), 5*time.Second, "it waits for")
		r.Want("10.0.0.5 Warm")
		r.Stop()
	})
}

// kept keeps addresses for somebody of namespace shop.
func kept(r *fakenode.Node, whom v1alpha1.ReservedFor, ips ...string) {
	whom.Namespace = "shop"
	r.API.Put(&v1alpha1.ReservedIP{ObjectMeta: metav1.ObjectMeta{Name: "kept"}, Spec: v1alpha1.ReservedIPSpec{IPs: ips, For: &whom}})
}

func TestAReservedAddressIsForTheOneForWhomItIsKept(t *testing.T) {
	r := fakenode.New(t, fakenode.V4("10.0.0.2-10.0.0.5"))
	kept(r, v1alpha1.ReservedFor{StatefulSet: "web"}, "10.0.0.5", "10.0.0.3")
	for _, uid := range []string{"u1", "u2"} {
		got := r.MustAdd(r.Pod("other-"+uid, uid))
		check.That(t, got[0] == "10.0.0.2" || got[0] == "10.0.0.4", "another pod has %v", got)
	}
	r.Gets(r.Pod("web-1", "u4", fakenode.OfStatefulSet), "10.0.0.3")
	web := r.Pod("web-0", "u3", fakenode.OfStatefulSet)
	r.Gets(web, "10.0.0.5")
	r.MustDel(web)
	r.Lease("10.0.0.5", v1alpha1.StateRetained)
	r.Gets(r.Pod("web-0", "u5", fakenode.OfStatefulSet), "10.0.0.5")
}

func TestAReservedAddressWhoseNodeDoesNotReleaseIt(t *testing.T) {
	for name, row := range map[string]struct {
		answers bool
		says    string
		code    uint
	}{
		"the controller is away": {false, "but the controller, by which it is asked, does not answer within 5s", agentapi.CodeTryAgainLater},
		"the other agent is away": {true, "but has not done so within 5s, since its agent is away or of an earlier release: start or upgrade the agent of node n2",
			agentapi.CodeAddressRefused},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := fakenode.New(t, fakenode.V4("10.0.0.2-10.0.0.9"))
				r.API.Mute = !row.answers
				kept(r, v1alpha1.ReservedFor{Pod: "web"}, "10.0.0.5")
				r.API.Put(keptReady("10.0.0.5"))
				err := fakenode.TryAdd(r, r.Pod("web", "u1"))
				check.Says(t, err, "ReservedIP kept: node n2 keeps it ready (Warm), and is asked to release it", row.says)
				check.That(t, !strings.Contains(err.Error(), "name another address"), "%v", err)
				check.Equal(t, refusal.Answer(err).Code, row.code, "its code is")
				r.Stop()
			})
		})
	}
}

// The 5 s are those of the Warm lease. A full pool of the other family is waited for as any other.
func TestTheTimeOfAWaitIsThatOfItsReason(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := fakenode.New(t, fakenode.Dual()...)
		r.API.Put(fakenode.Held("fd00::2", func(s *v1alpha1.IPLeaseSpec) { s.Pool = "v6" }))
		r.API.Put(keptReady("10.0.0.2"))
		began := time.Now()
		end := waits(t.Context(), r, r.Pod("web", "u1", choosing("10.0.0.2")))
		r.API.Drop(keptReady("10.0.0.2"))
		check.Says(t, <-end, "pool v6: it is exhausted")
		check.That(t, time.Since(began) > time.Minute, "it has waited for %s", time.Since(began))
		r.Stop()
	})
}

func TestAReservedAddressIsLeftByTheNextPodOfAnotherName(t *testing.T) {
	r := fakenode.New(t, fakenode.V4("10.0.0.2-10.0.0.9"))
	chosen := choosing("10.0.0.5")
	other := r.Pod("web-0", "u1", fakenode.OfStatefulSet, chosen)
	r.Gets(other, "10.0.0.5")
	kept(r, v1alpha1.ReservedFor{Pod: "db"}, "10.0.0.5")
	err := fakenode.TryAdd(r, r.Pod("db", "u2"))
	check.Says(t, err, "ReservedIP kept: it is taken: Bound for pod shop/web-0 on node n1, and leaves it at its next start: delete that pod too; "+
		"free this address, or change the ips of the ReservedIP")
	r.MustDel(other)
	got := r.MustAdd(r.Pod("web-0", "u3", fakenode.OfStatefulSet))
	check.That(t, got[0] != "10.0.0.5", "the next pod of the name has %v", got)
	check.That(t, slices.ContainsFunc(r.Told(), func(e string) bool {
		return strings.Contains(e, "replaces 10.0.0.5: ReservedIP kept keeps it for pod shop/db")
	}), "no event tells of the address that was left")
}

func TestANamespaceGetsItsReservedAddressesFirst(t *testing.T) {
	r := fakenode.New(t, fakenode.V4("10.0.0.2-10.0.0.9"))
	kept(r, v1alpha1.ReservedFor{}, "10.0.0.7")
	web := r.Pod("web", "u1")
	r.Gets(web, "10.0.0.7")
	got := r.MustAdd(r.Pod("more", "u2"))
	check.That(t, got[0] != "10.0.0.7", "the second pod has %v", got)
	// All others are taken, and the reserved one comes free: it is given to a pod that waits.
	for i := range 6 {
		r.MustAdd(r.Pod(fmt.Sprint("full-", i), fmt.Sprint("f", i)))
	}
	end := waits(t.Context(), r, r.Pod("late", "u3"))
	r.MustDel(web)
	r.End(web)
	check.OK(t, <-end)
}
