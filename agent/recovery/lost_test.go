// SPDX-License-Identifier: Apache-2.0

package recovery_test

import (
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/vishvananda/netlink"
	"k8s.io/utils/clock"

	"github.com/fenceline/fenceline/agent/attachment"
	"github.com/fenceline/fenceline/agent/lease"
	"github.com/fenceline/fenceline/agent/pod"
	"github.com/fenceline/fenceline/agent/pod/vf"
	"github.com/fenceline/fenceline/agent/watch"
	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/bpf"
	"github.com/fenceline/fenceline/cni/agentapi"
	"github.com/fenceline/fenceline/test/check"
	"github.com/fenceline/fenceline/test/fakenode"
)

// placeOf is the interface of a request in its network namespace.
func placeOf(r agentapi.AddRequest, addrs ...string) pod.Place {
	p := pod.Place{NetNS: r.NetNS, Interface: r.Interface, MAC: fakenode.MacOf(r.NetNS), Parent: pod.Parent{Index: fakenode.ParentIndex}}
	for _, a := range addrs {
		p.Addresses = append(p.Addresses, netip.MustParseAddr(a))
	}
	return p
}

// A dual-stack pod runs while the agent is down and its journal is lost.
func TestWhichEntriesThatTheJournalHasLostAreMadeAgain(t *testing.T) {
	v4, v6 := "10.0.0.2", "fd00::2"
	for _, row := range []struct {
		name string
		// change happens while no agent runs. at is the place of the pod.
		change func(r *fakenode.Node, web agentapi.AddRequest, at *pod.Place)
		lost   bool
	}{
		{"that of a living pod", func(*fakenode.Node, agentapi.AddRequest, *pod.Place) {}, false},
		{"not if the network namespace is gone", func(_ *fakenode.Node, _ agentapi.AddRequest, at *pod.Place) { *at = pod.Place{} }, true},
		{"not on another interface", func(_ *fakenode.Node, _ agentapi.AddRequest, at *pod.Place) { at.Interface = "net1" }, true},
		{"not with another MAC", func(_ *fakenode.Node, _ agentapi.AddRequest, at *pod.Place) { at.MAC = fakenode.MacOf("/x") }, true},
		{"not on another parent", func(_ *fakenode.Node, _ agentapi.AddRequest, at *pod.Place) { at.Parent.Index++ }, true},
		{"not with one of two addresses", func(_ *fakenode.Node, _ agentapi.AddRequest, at *pod.Place) { at.Addresses = at.Addresses[:1] }, true},
		{"not if two namespaces look the same", func(r *fakenode.Node, _ agentapi.AddRequest, at *pod.Place) {
			twin := *at
			twin.NetNS = "/netns/twin"
			r.Places = append(r.Places, twin)
		}, true},
		{"not if its slot was killed", func(r *fakenode.Node, web agentapi.AddRequest, _ *pod.Place) {
			check.OK(r.T, r.Kernel.Kill(r.SlotOf(web)))
		}, true},
		{"not if the kernel does not know an address", func(r *fakenode.Node, _ agentapi.AddRequest, _ *pod.Place) {
			check.OK(r.T, r.Kernel.Remove(fakenode.Key(v6)))
		}, true},
		{"not if another node has the leases", func(r *fakenode.Node, _ agentapi.AddRequest, _ *pod.Place) {
			for _, l := range r.API.Leases() {
				l.Spec.NodeName = "n2"
				r.API.Put(l)
			}
		}, true},
	} {
		t.Run(row.name, func(t *testing.T) {
			r, web := fakenode.WithPod(t, fakenode.V4(v4), fakenode.Pool("v6", "fd00::/64", v1alpha1.ModeEnforce, v6))
			r.After.Wait()
			want, _ := r.Attachments.Get(web.ContainerID, web.Interface)
			held, _, err := r.Kernel.Lease(fakenode.Key(v4))
			check.OK(t, err)
			held.Disproved, held.DisprovedBefore[0] = 7, 5
			check.OK(t, r.Kernel.Install(fakenode.Key(v4), held))
			want.Addresses[0].Disproved, want.Addresses[0].DisprovedBefore = 7, []uint64{5}
			at := placeOf(web, v4, v6)
			row.change(r, web, &at)
			r.Places = append(r.Places, at)
			check.OK(t, os.RemoveAll(filepath.Join(r.Dir, "journal")))
			r.Restart()
			check.OK(t, r.Recovery.RecoverLost(t.Context()))
			got, found := r.Attachments.Get(web.ContainerID, web.Interface)
			check.Must(t, found != row.lost, "found %v: %+v", found, got)
			if row.lost {
				return
			}
			// The name of the CNI network and the answer of the ADD are in no record. Plugins are done with the
			// interface.
			want.Network, want.Settled = "", true
			same := cmp.Options{
				cmpopts.EquateComparable(netip.Addr{}), cmpopts.IgnoreFields(attachment.Entry{}, "Created"), cmpopts.IgnoreFields(attachment.Address{}, "Given"),
			}
			check.SameBy(t, same, got, want, "entry")
			r.Settle()
			r.HoldsWhatTheJournalSays(web)
			check.That(t, !r.FreeSlots()[got.Slot], "slot %d is free", got.Slot)
			r.MustDel(web)
			r.Want()
		})
	}
}

// A program of the pod drives its VF, so no network namespace has the interface.
func TestTheEntryOfAPodThatDrivesItsVFIsMadeAgain(t *testing.T) {
	mac := net.HardwareAddr{2, 0, 0, 0, 0, 9}
	vfOf := func(device string, mac net.HardwareAddr) vf.Function {
		return vf.Function{Device: device, Info: netlink.VfInfo{Mac: mac}}
	}
	const device = "0000:03:10.1"
	own, other := vfOf(device, mac), vfOf("0000:03:10.2", net.HardwareAddr{2, 0, 0, 0, 0, 8})
	for name, row := range map[string]struct {
		vfs   []vf.Function
		found bool
	}{
		"by its MAC":                   {[]vf.Function{other, own}, true},
		"not without it":               {[]vf.Function{other}, false},
		"not if two VFs have this MAC": {[]vf.Function{own, vfOf("0000:03:10.3", mac)}, false},
	} {
		t.Run(name, func(t *testing.T) {
			r := fakenode.New(t, fakenode.V4("10.0.0.2"))
			drives := func() {
				r.FindLink = func(string, string) (pod.Interface, error) { return pod.Interface{}, pod.ErrNoInterface }
				r.FindUserVF = func(string) (pod.Interface, bool, error) {
					return pod.Interface{MAC: mac, Parent: pod.Parent{Index: fakenode.ParentIndex, Name: "eth1"}, Device: device, Unguarded: true}, true, nil
				}
				r.UserVFs = row.vfs
			}
			drives()
			web := r.Pod("web", "u1")
			web.Network.Device = device
			r.MustAdd(web)
			check.OK(t, os.RemoveAll(filepath.Join(r.Dir, "journal")))
			r.Restart()
			drives()
			check.OK(t, r.Recovery.RecoverLost(t.Context()))
			e, found := r.Attachments.Get(web.ContainerID, web.Interface)
			check.Must(t, found == row.found, "found %v: %+v", found, e)
			if !row.found {
				check.Says(t, <-r.Recorder.Events, "RecordLost", "boot the node")
				return
			}
			check.That(t, e.Device == device && e.Unguarded && e.MAC == mac.String() && e.Phase == attachment.Bound, "entry %+v", e)
			r.MustDel(web)
			r.Skip(time.Minute) // the namespace is not known: the kubelet's word counts
			r.Settle()
			r.Want()
			_, held, _ := r.Kernel.Lease(fakenode.Key("10.0.0.2"))
			check.That(t, !held, "its slot may use the address after DEL")
		})
	}
}

// A pod that started after the loss is not touched, and the loss of a second pod is repaired beside it.
func TestALossIsRepairedBesideNewPods(t *testing.T) {
	r := fakenode.New(t, fakenode.V4("10.0.0.2-10.0.0.9"))
	old := r.Pod("old", "u1")
	addr := r.MustAdd(old)
	r.After.Wait()
	r.Places = []pod.Place{placeOf(old, addr...)}
	check.OK(t, os.RemoveAll(filepath.Join(r.Dir, "journal")))
	r.Restart()
	young := r.Pod("young", "u2")
	check.Must(t, !slices.Equal(r.MustAdd(young), addr), "both have %v", addr)
	check.OK(t, r.Recovery.RecoverLost(t.Context()))
	r.Settle()
	r.HoldsWhatTheJournalSays(old)
	r.HoldsWhatTheJournalSays(young)
}

// boundHere is a lease that an ADD of this node has bound.
func boundHere(s *v1alpha1.IPLeaseSpec) {
	s.NodeName, s.Session, s.Holder.OwnerKind = fakenode.ThisNode, fakenode.ThisSession, ""
}

func freeWithoutEntryTwice(r *fakenode.Node) {
	r.T.Helper()
	for range 2 {
		check.OK(r.T, r.Recovery.FreeWithoutEntry(r.T.Context()))
	}
}

func TestWhichLeasesWithoutAnEntryAreFreed(t *testing.T) {
	for _, c := range []struct {
		rule    string
		change  func(*v1alpha1.IPLeaseSpec)
		happens func(*fakenode.Node)
		left    []string
	}{
		{"one that was bound here", nil, nil, nil},
		{"one of a pod that keeps its name is Retained", func(s *v1alpha1.IPLeaseSpec) { s.Holder.OwnerKind = "StatefulSet" }, nil, []string{"10.0.0.2 Retained"}},
		{"one whose last holder was never proven silent is set aside", func(s *v1alpha1.IPLeaseSpec) {
			s.Previous = &v1alpha1.PreviousHolder{Node: "n2", Session: "node-2/boot-1"}
		}, nil, []string{"10.0.0.2 Quarantined"}},
		{"not one of another node", func(s *v1alpha1.IPLeaseSpec) { s.NodeName = "n2" }, nil, []string{"10.0.0.2 Bound"}},
		{"not one of another session", func(s *v1alpha1.IPLeaseSpec) { s.Session = "node-1/boot-0" }, nil, []string{"10.0.0.2 Bound"}},
		{"not one that is Warm", func(s *v1alpha1.IPLeaseSpec) { s.State, s.Holder = v1alpha1.StateWarm, nil }, nil, []string{"10.0.0.2 Warm"}},
		{"not one for which a slot may speak", nil, func(r *fakenode.Node) {
			check.OK(r.T, r.Kernel.Install(fakenode.Key("10.0.0.2"), bpf.Lease{Token: 1, Slot: 9}))
		}, []string{"10.0.0.2 Bound"}},
		{"not one for which a call is under way", nil, func(r *fakenode.Node) {
			unlock, _ := r.Attachments.Calls.TryLock(agentapi.Attachment{ContainerID: "c0", Interface: "eth0"})
			r.T.Cleanup(unlock)
		}, []string{"10.0.0.2 Bound"}},
	} {
		t.Run(c.rule, func(t *testing.T) {
			r := fakenode.New(t, fakenode.V4("10.0.0.2-10.0.0.9"))
			l := fakenode.Held("10.0.0.2", boundHere)
			if c.change != nil {
				c.change(&l.Spec)
			}
			r.API.Put(l)
			if c.happens != nil {
				c.happens(r)
			}
			freeWithoutEntryTwice(r)
			r.Want(c.left...)
		})
	}
}

func TestOneLookFreesNoLease(t *testing.T) {
	r := fakenode.New(t, fakenode.V4("10.0.0.2-10.0.0.9"))
	l := fakenode.Held("10.0.0.2", boundHere)
	for range 3 {
		l = l.DeepCopy()
		l.Spec.Message += "x"
		r.API.Put(l)
		check.OK(t, r.Recovery.FreeWithoutEntry(t.Context()))
	}
	r.Want("10.0.0.2 Bound")
}

func TestALeaseWithAnEntryIsNotFreed(t *testing.T) {
	r, _ := fakenode.WithPod(t, fakenode.V4("10.0.0.2-10.0.0.9"))
	// Not for the slot's sake alone.
	check.OK(t, r.Kernel.Remove(fakenode.Key("10.0.0.2")))
	freeWithoutEntryTwice(r)
	r.Want("10.0.0.2 Bound")
}

// No watch shows a lease whose create had no answer: only its name is known.
func TestALeaseThatNoWatchShowsIsFreed(t *testing.T) {
	r := fakenode.New(t, fakenode.V4("10.0.0.2-10.0.0.9"))
	view := lease.NewView(fakenode.ThisNode)
	view.Fill()
	store := lease.NewStore(lease.Options{Client: r.API, Reader: r.API, View: view, Node: fakenode.ThisNode, Session: fakenode.ThisSession, Clock: clock.RealClock{}})
	r.Recovery.Leases, r.Releaser.Leases, r.Recovery.Cache = store, store, &watch.Client{Leases: view}
	r.API.Breaks("create")
	_, err := store.Create(t.Context(), lease.Request{Pool: "p", Addr: netip.MustParseAddr("10.0.0.2"), Holder: v1alpha1.Holder{ContainerID: "c0", Interface: "eth0"}})
	check.Is(t, err, lease.ErrUncertain, "create:")
	r.API.Before = nil
	freeWithoutEntryTwice(r)
	r.API.Put(fakenode.Held("10.0.0.2", boundHere))
	freeWithoutEntryTwice(r)
	r.Want()
}

// The write comes true after the undo's GET has shown that it has not.
func TestAWriteThatComesTrueAfterItsUndoIsFreed(t *testing.T) {
	r := fakenode.New(t, fakenode.Warmed(fakenode.V4("10.0.0.7")))
	warm := r.WarmLease("10.0.0.7", true)
	r.API.Breaks("update")
	web := r.Pod("web", "u1")
	r.Refused(agentapi.CodeTryAgainLater, web)
	r.API.Before = nil
	r.Settle()
	r.Want("10.0.0.7 Warm")
	late := warm.DeepCopy()
	late.Spec = fakenode.Held("10.0.0.7", boundHere).Spec
	late.Spec.Holder.ContainerID = web.ContainerID
	r.API.Put(late)
	r.Settle()
	freeWithoutEntryTwice(r)
	r.Want()
}
