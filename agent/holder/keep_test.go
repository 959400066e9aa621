// SPDX-License-Identifier: Apache-2.0

package holder_test

import (
	"context"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fenceline/fenceline/agent/attachment"
	"github.com/fenceline/fenceline/agent/lease"
	"github.com/fenceline/fenceline/agent/segment"
	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/cni/agentapi"
	"github.com/fenceline/fenceline/test/check"
	"github.com/fenceline/fenceline/test/fakenode"
)

func TestAStatefulSetPodTakesItsAddressOver(t *testing.T) {
	byNode := func(s *v1alpha1.IPLeaseSpec) {
		s.Previous.Node, s.Previous.Session = fakenode.ThisNode, fakenode.ThisSession
	}
	rebooted := func(s *v1alpha1.IPLeaseSpec) {
		s.Previous.Node, s.Previous.Session = fakenode.ThisNode, "node-1/boot-0"
	}
	gone := func(s *v1alpha1.IPLeaseSpec) {
		s.Previous.Reason, s.Reason = v1alpha1.ReasonNodeGone, v1alpha1.ReasonUnverified
	}
	successorGone := func(s *v1alpha1.IPLeaseSpec) { s.Reason = v1alpha1.ReasonNodeGone }
	unguarded := func(s *v1alpha1.IPLeaseSpec) { s.Previous.Guarded = false }
	aside := fakenode.Quarantined(v1alpha1.ReasonPodTerminating)
	for _, test := range []struct {
		name    string
		lease   *v1alpha1.IPLease
		verdict segment.Verdict
		// safe: the pod gets the address. Otherwise code 11 and Quarantined again.
		safe bool
	}{
		{"retained, and nobody can be heard", fakenode.Held("10.0.0.2", fakenode.Retained), segment.Unknown, true},
		{"retained, and answered", fakenode.Held("10.0.0.2", fakenode.Retained), segment.Answered, false},
		{"quarantined and fenced", fakenode.Held("10.0.0.2", aside), segment.Fenced, true},
		{"quarantined and silent", fakenode.Held("10.0.0.2", aside), segment.Silent, true},
		{"quarantined and silent, of a holder without a guard (R1)", fakenode.Held("10.0.0.2", aside, unguarded), segment.Silent, false},
		{"quarantined and unknown (R2)", fakenode.Held("10.0.0.2", aside), segment.Unknown, false},
		{"quarantined and answered", fakenode.Held("10.0.0.2", aside), segment.Answered, false},
		{"quarantined, of this session", fakenode.Held("10.0.0.2", aside, byNode), segment.Unknown, true},
		{"quarantined, of this node's last boot (R8)", fakenode.Held("10.0.0.2", aside, rebooted), segment.Unknown, false},
		{"quarantined, and only the end of another take-over's node asserted", fakenode.Held("10.0.0.2", aside, successorGone), segment.Unknown, false},
		{"unverified, and the node's end asserted before", fakenode.Held("10.0.0.2", aside, gone), segment.Unknown, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			r := fakenode.New(t, fakenode.V4("10.0.0.2-10.0.0.9"))
			r.API.Put(test.lease)
			r.Wire.Verdicts[fakenode.Two] = test.verdict
			web := r.Pod("web-0", "u1", fakenode.OfStatefulSet)
			if !test.safe {
				r.Refused(agentapi.CodeTryAgainLater, web)
				l := r.Lease("10.0.0.2", v1alpha1.StateQuarantined)
				check.That(t, l.Spec.Reason == v1alpha1.ReasonUnverified && l.Spec.Message != "" && l.Spec.NodeName == fakenode.ThisNode,
					"lease %+v", l.Spec)
				p := test.lease.Spec.Previous
				check.That(t, p == nil || l.Spec.Previous != nil && l.Spec.Previous.Node == p.Node, "previous %v, want %v", l.Spec.Previous, p)
				r.Want("10.0.0.2 Quarantined") // never another address
				return
			}
			r.Gets(web, "10.0.0.2")
			l := r.Lease("10.0.0.2", v1alpha1.StateBound)
			check.That(t, l.Spec.Previous == nil && l.Spec.Holder.PodUID == "u1" && l.Spec.NodeName == fakenode.ThisNode, "lease %+v", l.Spec)
			c := r.Wire.Verification.Claim
			check.That(t, c.PreviousMAC.String() == "02:00:00:00:02:01" && c.Token != 0, "claimed as %+v", c)
			check.That(t, test.lease.Spec.Previous == nil || c.PreviousToken == fakenode.LastToken, "asks the holder with token %d", c.PreviousToken)
			check.That(t, r.Speaks(web, "10.0.0.2"), "the pod is mute")
		})
	}
}

func TestATakeOverInModeObserveOnlyReports(t *testing.T) {
	r := fakenode.New(t, fakenode.Pool("v4", "10.0.0.0/24", v1alpha1.ModeObserve, "10.0.0.2"))
	r.API.Put(fakenode.Held("10.0.0.2", fakenode.Quarantined(v1alpha1.ReasonPodTerminating)))
	r.Wire.Verdicts[fakenode.Two] = segment.Answered
	r.MustAdd(r.Pod("web-0", "u1", fakenode.OfStatefulSet))
	check.That(t, r.Lease("10.0.0.2", v1alpha1.StateBound).Spec.Previous == nil, "the last holder is still named")
}

func TestAnAddressBoundElsewhereIsWaitedFor(t *testing.T) {
	r := fakenode.New(t, fakenode.V4("10.0.0.2-10.0.0.9"))
	r.API.Put(fakenode.Held("10.0.0.2"))
	web := r.Pod("web-0", "u1", fakenode.OfStatefulSet)
	check.Says(t, r.Refused(agentapi.CodeTryAgainLater, web), "node n2")
	r.Want("10.0.0.2 Bound")

	// The controller takes it while the next ADD waits.
	looks := 0
	r.API.Before = func(verb, name string) error {
		if looks++; verb == "get" && looks == 1 {
			l := r.API.Objects[fakenode.KeyFor(fakenode.Held("10.0.0.2"), client.ObjectKey{Name: name})].DeepCopyObject().(*v1alpha1.IPLease)
			fakenode.Quarantined(v1alpha1.ReasonPodGone)(&l.Spec)
			r.API.Store(fakenode.KeyFor(l, client.ObjectKey{Name: name}), l)
		}
		return nil
	}
	r.Wire.Verdicts[fakenode.Two] = segment.Fenced
	r.Gets(web, "10.0.0.2")
}

// forAnotherNode makes a pool serve another node only.
func forAnotherNode(p *v1alpha1.IPPool) *v1alpha1.IPPool {
	p.Spec.NodeName = []string{"n2"}
	return p
}

// other is a second pool.
func other() *v1alpha1.IPPool {
	return fakenode.Pool("other", "10.1.0.0/24", v1alpha1.ModeEnforce, "10.1.0.2")
}

func TestARequiredAddressIsRefusedWhereItsPoolDoesNotServe(t *testing.T) {
	r := fakenode.New(t, forAnotherNode(fakenode.V4("10.0.0.2")), other())
	r.API.Put(fakenode.Held("10.0.0.2", fakenode.Retained))
	web := r.Pod("web-0", "u1", fakenode.OfStatefulSet, namingPools("v4", "other"), fakenode.Annotated(staticIP, "true"))
	const says = "10.0.0.2 is kept for pod shop/web-0, but its pool v4 does not serve the pod on node n1: " +
		"its nodeName [n2] does not list node n1; delete lease 10.0.0.2 to release the address"
	check.Says(t, r.Refused(agentapi.CodeNoPool, web), says)
	r.Want("10.0.0.2 Retained")
	// Only who gives the address up gets another one.
	r.API.Drop(fakenode.Held("10.0.0.2"))
	r.Gets(web, "10.1.0.2")
}

// inNamespace makes the namespace name a pool.
func inNamespace(r *fakenode.Node, pool string) {
	annotations := map[string]string{"ipam.fenceline.io/default-ipv4-ippool": `["` + pool + `"]`}
	r.API.Put(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop", Annotations: annotations}})
}

func TestAKeptAddressStaysWhicheverPoolsAreNamedNow(t *testing.T) {
	r := fakenode.New(t, fakenode.V4("10.0.0.2"), other())
	inNamespace(r, "other")
	r.API.Put(fakenode.Held("10.0.0.2", fakenode.Retained))
	r.Gets(r.Pod("web-0", "u1", fakenode.OfStatefulSet), "10.0.0.2")
	r.Want("10.0.0.2 Bound")
	check.None(t, toldOf(r, "AddressLeft"), "events")
}

// The pools serve one node or rack each.
func TestAPodWhoseKeptAddressCannotLiveOnTheNodeGetsAnother(t *testing.T) {
	getsAnother(t, forAnotherNode(fakenode.V4("10.0.0.2")), "pool v4 does not serve the pod on node n1: its nodeName [n2] does not list node n1")
}

// An annotation of the pod's template that names other pools asks for another address.
func TestAPodWhoseAnnotationHasLeftAPoolGetsAnAddressOfAnother(t *testing.T) {
	getsAnother(t, fakenode.V4("10.0.0.2"), "pool v4 is no longer one of the pools of annotation ipam.fenceline.io/ippool of pod shop/web-0", namingPools("other"))
}

// The template names another network for the interface. The pool of its address is on the segment of the
// network before.
func TestAnInterfaceOfAnotherNetworkGetsAnAddressOfItsPools(t *testing.T) {
	const why = "pool v4 is no longer one of the pools of the CNI configuration, and the parent is eth1, no longer eth0"
	onParent := func(name string) (*fakenode.Node, agentapi.AddRequest) {
		r := fakenode.New(t, fakenode.V4("10.0.0.2-10.0.0.9"), other())
		r.API.Put(fakenode.Held("10.0.0.2", fakenode.Retained, func(s *v1alpha1.IPLeaseSpec) { s.Parent = name }))
		web := r.Pod("web-0", "u1", fakenode.OfStatefulSet)
		web.Network = agentapi.Network{Name: "green", Type: "macvlan", DefaultIPv4IPPool: []string{"other"}}
		return r, web
	}
	r, web := onParent("eth0")
	r.Gets(web, "10.1.0.2")
	r.Want("10.0.0.2 Retained", "10.1.0.2 Bound")
	check.List(t, toldOf(r, "AddressLeft"), []string{"Normal AddressLeft 10.1.0.2 replaces 10.0.0.2: " + why}, "events")
	r, web = onParent("eth1")
	r.Gets(web, "10.0.0.2") // only the pools of the network were changed
}

// A controller has plugged the interface of a running pod into another network. DEL comes later.
func TestAnInterfaceThatIsPluggedIntoAnotherNetworkLeavesItsAddress(t *testing.T) {
	r := fakenode.New(t, fakenode.V4("10.0.0.2-10.0.0.9"), other())
	net1 := second(r.Pod("web", "u1"), "net1")
	net1.Network = agentapi.Network{Name: "blue", Type: "macvlan", DefaultIPv4IPPool: []string{"v4"}}
	check.List(t, r.MustAdd(net1), []string{"10.0.0.2"}, "before")
	before := r.Lease("10.0.0.2", v1alpha1.StateBound)
	before.Spec.Parent = "eth0"
	r.Replace(before)
	net1.Network = agentapi.Network{Name: "green", Type: "macvlan", DefaultIPv4IPPool: []string{"other"}}
	check.List(t, r.MustAdd(net1), []string{"10.1.0.2"}, "after")
}

func namingPools(names ...string) func(*corev1.Pod) {
	return fakenode.Annotated("ipam.fenceline.io/ippool", `{"ipv4":["`+strings.Join(names, `","`)+`"]}`)
}

// getsAnother expects that a name leaves its address of pool v4 for one of another pool, whatever the
// state of the lease, and why.
func getsAnother(t *testing.T, v4 *v1alpha1.IPPool, why string, change ...func(*corev1.Pod)) {
	t.Helper()
	change = append(change, fakenode.OfStatefulSet)
	for _, row := range []struct {
		name  string
		lease *v1alpha1.IPLease
		kept  string // with the new address
	}{
		{"retained", fakenode.Held("10.0.0.2", fakenode.Retained), "10.0.0.2 Retained"},
		{"quarantined", fakenode.Held("10.0.0.2", fakenode.Quarantined(v1alpha1.ReasonPodTerminating)), "10.0.0.2 Quarantined"},
		{"quarantined, since its node is dead", fakenode.Held("10.0.0.2", fakenode.Quarantined(v1alpha1.ReasonNodeUnreachable)), "10.0.0.2 Quarantined"},
		{"bound to the pod before, on a node that is cut off", fakenode.Held("10.0.0.2"), "10.0.0.2 Bound"},
	} {
		t.Run(row.name, func(t *testing.T) {
			r := fakenode.New(t, v4, other())
			r.API.Put(row.lease)
			web := r.Pod("web-0", "u1", change...)
			r.Gets(web, "10.1.0.2")
			r.Want(row.kept, "10.1.0.2 Bound") // its end is the verifier's and the controller's
			told, says := r.Told(), "Normal AddressLeft 10.1.0.2 replaces 10.0.0.2: "+why
			check.That(t, slices.Contains(told, says), "events %q, want %q", told, says)
			r.MustDel(web)
			r.Gets(r.Pod("web-0", "u2", change...), "10.1.0.2")
		})
	}
}

func TestOnlyTheFamilyThatCannotLiveOnTheNodeChanges(t *testing.T) {
	elsewhere, here := forAnotherNode(fakenode.Pool("v6", "fd00::/64", v1alpha1.ModeEnforce, "fd00::2")), fakenode.Pool("v6-here", "fd01::/64", v1alpha1.ModeEnforce, "fd01::2")
	r := fakenode.New(t, fakenode.V4("10.0.0.2-10.0.0.9"), elsewhere, here)
	r.API.Put(fakenode.Held("10.0.0.5", fakenode.Retained))
	r.API.Put(fakenode.Held("fd00::2", fakenode.Retained, func(s *v1alpha1.IPLeaseSpec) { s.Pool = "v6" }))
	r.Gets(r.Pod("web-0", "u1", fakenode.OfStatefulSet), "10.0.0.5", "fd01::2")
	r.Want("10.0.0.5 Bound", v1alpha1.LeaseName("", netip.MustParseAddr("fd00::2"))+" Retained",
		v1alpha1.LeaseName("", netip.MustParseAddr("fd01::2"))+" Bound")
}

// The leases of two interfaces of a pod are two names.
func TestOnlyTheInterfaceThatCannotLiveOnTheNodeChanges(t *testing.T) {
	r := fakenode.New(t, fakenode.V4("10.0.0.2-10.0.0.9"), forAnotherNode(fakenode.Pool("second", "10.2.0.0/24", v1alpha1.ModeEnforce, "10.2.0.2")))
	r.API.Put(fakenode.Held("10.0.0.5", fakenode.Retained))
	r.API.Put(fakenode.Held("10.2.0.2", fakenode.Retained, func(s *v1alpha1.IPLeaseSpec) { s.Pool, s.Holder.Interface = "second", "net1" }))
	web := r.Pod("web-0", "u1", fakenode.OfStatefulSet)
	r.Gets(web, "10.0.0.5")
	r.MustAdd(second(web, "net1"))
	r.Want("10.0.0.2 Bound", "10.0.0.5 Bound", "10.2.0.2 Retained")
}

// The kept pool has no next hop for a route that the pod asks for now.
func TestAPodWhoseRoutesRuleOutItsKeptPoolGetsAnother(t *testing.T) {
	r := fakenode.New(t, fakenode.V4("10.0.0.2"), other())
	r.API.Put(fakenode.Held("10.0.0.2", fakenode.Retained))
	routes := fakenode.Annotated("ipam.fenceline.io/routes", `[{"dst":"10.9.0.0/16","gw":"10.1.0.1"}]`)
	r.Gets(r.Pod("web-0", "u1", fakenode.OfStatefulSet, routes), "10.1.0.2")
}

func TestAPodThatKeepsNothingIsTreatedLikeOthers(t *testing.T) {
	for _, row := range []struct {
		name  string
		chart v1alpha1.StatefulSetMode
		pool  v1alpha1.StatefulSetMode
		pod   func(*corev1.Pod)
	}{
		{"statefulSet of the chart is Off", v1alpha1.StatefulSetOff, "", fakenode.OfStatefulSet},
		{"statefulSet of the pool is Off", v1alpha1.StatefulSetPrefer, v1alpha1.StatefulSetOff, fakenode.OfStatefulSet},
		{"static-ip is false", v1alpha1.StatefulSetRequire, "", fakenode.Annotated(staticIP, "false")},
		{"the alias of static-ip is false", v1alpha1.StatefulSetRequire, v1alpha1.StatefulSetRequire, fakenode.Annotated(v1alpha1.AliasStaticIP, "false")},
	} {
		t.Run(row.name, func(t *testing.T) {
			pool := fakenode.V4("10.0.0.2-10.0.0.9")
			pool.Spec.StatefulSet = row.pool
			r := fakenode.New(t, pool)
			r.Acquirer.StatefulSet = row.chart
			first := r.Pod("web-0", "u1", fakenode.OfStatefulSet, row.pod)
			r.MustAdd(first)
			check.Equal(t, describe(r.Lease("10.0.0.2", v1alpha1.StateBound).Spec.Retention), "None", "the lease records")
			r.MustDel(first)
			r.Want() // nothing is Retained
			r.End(first)
			got := r.MustAdd(r.Pod("web-0", "u2", fakenode.OfStatefulSet, row.pod))
			check.That(t, got[0] != "10.0.0.2", "the next pod got %v again", got)
		})
	}
}

func TestANewerSandboxOfAPodBindsItsAddressAgain(t *testing.T) {
	r, older := fakenode.WithPod(t, fakenode.V4("10.0.0.2-10.0.0.9"))
	newer := next(older, "c-newer")
	r.Gets(newer, "10.0.0.2")
	check.That(t, r.Kernel.IsDead(r.SlotOf(older)) && r.Speaks(newer, "10.0.0.2"), "the older sandbox may speak, or the newer may not")
	r.MustDel(older)
	check.Equal(t, r.Lease("10.0.0.2", v1alpha1.StateBound).Spec.Holder.ContainerID, "c-newer", "lease of")
	r.Settle()
	r.Want("10.0.0.2 Bound")
	r.MustDel(newer)
	r.Want()
}

func TestAVerifierDoesNotKillTheSlotOfATakeOver(t *testing.T) {
	r := fakenode.New(t, fakenode.V4("10.0.0.2"))
	r.API.Put(fakenode.Held("10.0.0.2", fakenode.Quarantined(v1alpha1.ReasonPodGone)))
	r.Wire.Verdicts[fakenode.Two] = segment.Fenced
	web := r.Pod("web-0", "u1", fakenode.OfStatefulSet)
	read, taken, killed := make(chan struct{}), make(chan struct{}), make(chan error)
	var first sync.Once
	// The verifier has read the Quarantined lease, and is slow to kill.
	r.API.Meanwhile = func(verb, _ string) {
		if verb != "get" {
			return
		}
		first.Do(func() {
			close(read)
			select {
			case <-taken:
			case <-time.After(200 * time.Millisecond): // the lock keeps the take-over waiting
			}
		})
	}
	go func() {
		_, _, err := r.Releaser.KillHolder(t.Context(), "10.0.0.2")
		killed <- err
	}()
	<-read
	r.MustAdd(web)
	close(taken)
	check.OK(t, <-killed)
	check.That(t, r.Speaks(web, "10.0.0.2"), "the verifier has killed the new holder")
}

// silent is an API server that does not answer.
type silent struct{ client.Reader }

func (silent) Get(ctx context.Context, _ client.ObjectKey, _ client.Object, _ ...client.GetOption) error {
	<-ctx.Done()
	return ctx.Err()
}

// A take-over waits for the lease that the verifier has locked.
func TestAVerifierThatGetsNoAnswerUnlocksTheLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := fakenode.New(t, fakenode.V4("10.0.0.2"))
		r.Releaser.Leases = lease.NewStore(lease.Options{Reader: silent{}})
		began := time.Now()
		_, _, err := r.Releaser.KillHolder(t.Context(), "10.0.0.2")
		check.Is(t, err, context.DeadlineExceeded, "the verifier got")
		check.That(t, time.Since(began) <= attachment.AskTimeout, "after %s", time.Since(began))
	})
}

// The worker sees that the first has gone to the newer sandbox while the second is still the older one's.
func TestANewerSandboxBindsBothItsAddressesAgain(t *testing.T) {
	r, older := fakenode.WithPod(t, fakenode.V4("10.0.0.2-10.0.0.9"), fakenode.Pool("v6", "fd00::/64", v1alpha1.ModeEnforce, "fd00::2-fd00::9"))
	newer := next(older, "c-newer")
	r.Wire.OnClaim = func(c segment.Claim) {
		if c.Addr == fakenode.Two {
			r.Attachments.Pending.Add(older.Attachment)
			_, _ = r.Recovery.Resume(t.Context(), attachment.AskTimeout)
		}
	}
	r.Gets(newer, "10.0.0.2", "fd00::2")
	r.Settle()
	_, there := r.Attachments.Get(older.ContainerID, older.Interface)
	check.That(t, !there, "the older sandbox stays in the journal")
}

// The annotation that had the pod leave the pool is gone, and the lease is not freed yet.
func TestOfTwoKeptAddressesTheOneThatServesIsTaken(t *testing.T) {
	r := fakenode.New(t, fakenode.V4("10.0.0.2"), other())
	inNamespace(r, "other")
	r.API.Put(fakenode.Held("10.0.0.2", fakenode.Quarantined(v1alpha1.ReasonPodGone)))
	r.API.Put(fakenode.Held("10.1.0.2", fakenode.Retained, func(s *v1alpha1.IPLeaseSpec) { s.Pool = "other" }))
	r.Gets(r.Pod("web-0", "u1", fakenode.OfStatefulSet), "10.1.0.2")
}

const (
	staticIP    = "ipam.fenceline.io/static-ip"
	ipRetention = "ipam.fenceline.io/ip-retention"
)

func ownedBy(kind, name string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.OwnerReferences = []metav1.OwnerReference{{Kind: kind, Name: name, UID: "o", Controller: new(true)}}
	}
}

func TestAFixedAddressIsRefusedWhereTheNameDoesNotComeBack(t *testing.T) {
	for _, row := range []struct {
		name string
		pod  []func(*corev1.Pod)
		says string
	}{
		{"a Deployment's pod", []func(*corev1.Pod){ownedBy("ReplicaSet", "web-7d4b9"), fakenode.Annotated(staticIP, "true")}, "its ReplicaSet web-7d4b9 makes pods of new names"},
		{"a Job's pod", []func(*corev1.Pod){ownedBy("Job", "import"), fakenode.Annotated(ipRetention, "48h")}, "its Job import makes pods of new names"},
		{"a DaemonSet's pod", []func(*corev1.Pod){ownedBy("DaemonSet", "probe"), fakenode.Annotated(staticIP, "true")}, "its DaemonSet probe makes pods of new names"},
		{"a bare pod", []func(*corev1.Pod){fakenode.Annotated(staticIP, "true")}, "no controller creates it again"},
		{"the other prefix", []func(*corev1.Pod){fakenode.Annotated("ipam.spidernet.io/ip-retention", "0")}, "no controller creates it again"},
	} {
		t.Run(row.name, func(t *testing.T) {
			r := fakenode.New(t, fakenode.V4("10.0.0.2"))
			said := r.Refused(agentapi.CodeInvalidNetworkConfig, r.Pod("web-0", "u", row.pod...))
			check.Says(t, said, row.says, "use a StatefulSet")
			r.Want()
		})
	}
}

func TestALeaseRecordsWhatThePodAsksFor(t *testing.T) {
	for _, row := range []struct {
		name string
		pod  []func(*corev1.Pod)
		want string
	}{
		{"a StatefulSet's pod that asks for nothing", []func(*corev1.Pod){fakenode.OfStatefulSet}, "nothing"},
		{"a Deployment's pod that says so", []func(*corev1.Pod){ownedBy("ReplicaSet", "web-7d4b9"), fakenode.Annotated(staticIP, "false")}, "nothing"},
		{"for ever", []func(*corev1.Pod){fakenode.OfStatefulSet, fakenode.Annotated(staticIP, "true")}, "Forever"},
		{"for a time", []func(*corev1.Pod){fakenode.OfStatefulSet, fakenode.Annotated(ipRetention, "48")}, "For 48h0m0s"},
	} {
		t.Run(row.name, func(t *testing.T) {
			r := fakenode.New(t, fakenode.V4("10.0.0.2"))
			r.MustAdd(r.Pod("web-0", "u", row.pod...))
			check.Equal(t, describe(r.Lease("10.0.0.2", v1alpha1.StateBound).Spec.Retention), row.want, "the lease asks for")
		})
	}
}

// The template may have been changed between two pods of a name.
func TestATakeOverRecordsWhatTheNewPodAsksFor(t *testing.T) {
	for _, row := range []struct {
		name     string
		was, now func(*corev1.Pod)
		want     string
	}{
		{"more", func(*corev1.Pod) {}, fakenode.Annotated(staticIP, "true"), "Forever"},
		{"something else", fakenode.Annotated(staticIP, "true"), fakenode.Annotated(ipRetention, "1h"), "For 1h0m0s"},
		{"nothing any more", fakenode.Annotated(staticIP, "true"), func(*corev1.Pod) {}, "nothing"},
	} {
		t.Run(row.name, func(t *testing.T) {
			r := fakenode.New(t, fakenode.V4("10.0.0.2"))
			first := r.Pod("web-0", "u1", fakenode.OfStatefulSet, row.was)
			r.MustAdd(first)
			r.MustDel(first)
			r.Lease("10.0.0.2", v1alpha1.StateRetained)
			r.End(first)
			r.MustAdd(r.Pod("web-0", "u2", fakenode.OfStatefulSet, row.now))
			check.Equal(t, describe(r.Lease("10.0.0.2", v1alpha1.StateBound).Spec.Retention), row.want, "the lease asks for")
		})
	}
}

func describe(r *v1alpha1.LeaseRetention) string {
	switch {
	case r == nil:
		return "nothing"
	case r.Duration == nil:
		return string(r.Policy)
	default:
		return string(r.Policy) + " " + r.Duration.Round(time.Second).String()
	}
}
