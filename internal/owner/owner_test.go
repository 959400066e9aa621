// SPDX-License-Identifier: Apache-2.0

package owner_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/internal/owner"
	"github.com/fenceline/fenceline/test/check"
)

func TestWhoseIdentityOutlivesThePod(t *testing.T) {
	for _, row := range []struct {
		name  string
		group string
		kind  string
		owner string
		pod   string
		want  bool
	}{
		{"a pod of a StatefulSet", "apps", "StatefulSet", "web", "web-0", true},
		{"one recorded by an earlier version", "", "StatefulSet", "web", "web-0", true},
		{"a pod of OpenKruise's StatefulSet", "apps.kruise.io", "StatefulSet", "web", "web-12", true},
		{"a StatefulSet of any other group", "example.org", "StatefulSet", "web", "web-0", true},
		{"but not if its pods have other names", "example.org", "StatefulSet", "web", "web-x7f2b", false},
		{"a pod of a virtual machine", "kubevirt.io", "VirtualMachineInstance", "db", "virt-launcher-db-x7f2b", true},
		{"an instance of another project", "example.org", "VirtualMachineInstance", "db", "db-x7f2b", false},
		{"a pod of a Deployment", "apps", "ReplicaSet", "web-5d4f", "web-5d4f-x7f2b", false},
		{"OpenKruise's CloneSet", "apps.kruise.io", "CloneSet", "web", "web-x7f2b", false},
		{"a bare pod", "", "", "", "web-0", false},
	} {
		h := &v1alpha1.Holder{Namespace: "shop", Pod: row.pod, OwnerGroup: row.group, OwnerKind: row.kind, OwnerName: row.owner}
		check.Equal(t, owner.KeepsName(h), row.want, "%s:", row.name)
	}
}

func TestTwoHoldersOfOneIdentity(t *testing.T) {
	pod := func(pod string) *v1alpha1.Holder {
		return &v1alpha1.Holder{Namespace: "shop", Pod: pod, OwnerGroup: "apps", OwnerKind: "StatefulSet", OwnerName: "web"}
	}
	machine := func(pod, name string) *v1alpha1.Holder {
		return &v1alpha1.Holder{Namespace: "shop", Pod: pod, OwnerGroup: "kubevirt.io", OwnerKind: "VirtualMachineInstance", OwnerName: name}
	}
	elsewhere := machine("b", "db")
	elsewhere.Namespace = "bank"
	for _, row := range []struct {
		name string
		a, b *v1alpha1.Holder
		want bool
	}{
		{"one pod name", pod("web-0"), pod("web-0"), true},
		{"another pod name", pod("web-0"), pod("web-1"), false},
		{"two pods of one machine", machine("a", "db"), machine("b", "db"), true},
		{"one pod name, two machines", machine("a", "db"), machine("a", "log"), false},
		{"machines of two namespaces", machine("a", "db"), elsewhere, false},
		{"a machine and a pod of its pod's name", machine("web-0", "db"), pod("web-0"), false},
		{"no holder", nil, pod("web-0"), false},
	} {
		check.Equal(t, owner.Same(row.a, row.b), row.want, "%s:", row.name)
	}
}

// The answer is that of the definition: the first ordinals from start on that are not reserved.
func TestOrdinalsWithReservedOnes(t *testing.T) {
	random := rand.New(rand.NewPCG(15, 15))
	for range 2000 {
		o := owner.Ordinals{Start: random.Int32N(6), Replicas: random.Int32N(6)}
		for range random.IntN(4) {
			first := random.Int64N(10)
			o.Reserved = append(o.Reserved, owner.Range{First: first, Last: first + random.Int64N(4)})
		}
		isReserved := map[int64]bool{}
		for _, r := range o.Reserved {
			for i := r.First; i <= r.Last; i++ {
				isReserved[i] = true
			}
		}
		want := map[int64]bool{}
		for i := int64(o.Start); len(want) < int(o.Replicas); i++ {
			if !isReserved[i] {
				want[i] = true
			}
		}
		for i := range int64(30) {
			check.Must(t, o.Want(i) == want[i], "%+v: ordinal %d is wanted: %v, want %v", o, i, o.Want(i), want[i])
		}
	}
	o := (owner.Ordinals{Start: 2147483646, Replicas: 2147483647})
	check.That(t, o.Want(2147483647), "start + replicas beyond 32 bits")
}

func TestReservedOrdinalsAreNumbersOrRanges(t *testing.T) {
	for text, want := range map[string]owner.Range{"3": {First: 3, Last: 3}, "3-5": {First: 3, Last: 5}} {
		got, err := owner.ParseRange(text)
		check.That(t, err == nil && got == want, "%q is %v, %v, want %v", text, got, err, want)
	}
	for _, text := range []string{"", "x", "-3", "5-3", "3-", "3-5-7", "99999999999"} {
		got, err := owner.ParseRange(text)
		check.That(t, err != nil, "%q is %v, want an error", text, got)
	}
}

func TestNeedOfAVirtualMachine(t *testing.T) {
	ref := owner.Ref{Group: "kubevirt.io", Kind: "VirtualMachine", Namespace: "shop", Name: "db"}
	for _, row := range []struct {
		name string
		view owner.View
		want owner.Standing
	}{
		{"it runs", owner.View{Exists: true, Machine: &owner.Machine{RunStrategy: "Always", HasInstance: true}}, owner.Wanted},
		{"it restarts", owner.View{Exists: true, Machine: &owner.Machine{RunStrategy: "Always"}}, owner.Wanted},
		{"it is being stopped", owner.View{Exists: true, Machine: &owner.Machine{RunStrategy: "Halted", HasInstance: true}}, owner.Wanted},
		{"it is stopped", owner.View{Exists: true, Machine: &owner.Machine{RunStrategy: "Halted"}}, owner.Stopped},
		{"it is started by hand", owner.View{Exists: true, Machine: &owner.Machine{RunStrategy: "Manual"}}, owner.Stopped},
		{"it ran once", owner.View{Exists: true, Machine: &owner.Machine{RunStrategy: "RerunOnFailure"}}, owner.Stopped},
		{"it was deleted", owner.View{}, owner.Gone},
		{"it could not be read", owner.View{Unknown: "no right"}, owner.Unknown},
	} {
		row.view.Ref = ref
		need := row.view.Need("virt-launcher-db-x7f2b")
		check.That(t, need.Standing == row.want && need.Why != "", "%s: %+v, want %v", row.name, need, row.want)
	}
	check.Equal(t, (owner.View{}).Need("web-0").Standing, owner.Unknown, "an owner that nobody knows:")
}

func TestOwnerOfAPod(t *testing.T) {
	pod := &metav1.ObjectMeta{Namespace: "shop", Name: "web-0", OwnerReferences: []metav1.OwnerReference{
		{APIVersion: "v1", Kind: "Node", Name: "n1"},
		{APIVersion: "apps.kruise.io/v1beta1", Kind: "StatefulSet", Name: "web", UID: "u", Controller: ptr.To(true)},
	}}
	want := owner.Ref{Group: "apps.kruise.io", Kind: "StatefulSet", Namespace: "shop", Name: "web", UID: "u"}
	got, ok := owner.Of(pod)
	check.That(t, ok && got == want, "%+v, %v, want %+v", got, ok, want)
	pod.OwnerReferences = pod.OwnerReferences[:1]
	got, ok = owner.Of(pod)
	check.That(t, !ok, "%+v is no controlling owner", got)
}

func TestOrdinalOfAPodName(t *testing.T) {
	for _, row := range []struct {
		pod, set string
		want     int64
		ok       bool
	}{
		{"web-0", "web", 0, true},
		{"web-12", "web", 12, true},
		{"web-1-3", "web-1", 3, true},
		{"web-1-3", "web", 0, false},
		{"web-01", "web", 0, false},
		{"web--1", "web", 0, false},
		{"web", "web", 0, false},
		{"api-1", "web", 0, false},
	} {
		got, ok := owner.Ordinal(row.pod, row.set)
		check.That(t, got == row.want && ok == row.ok, "Ordinal(%q, %q) = %d, %v, want %d, %v", row.pod, row.set, got, ok, row.want, row.ok)
	}
}

func TestTheSourceOfAMigrationHandsOverOnceItIsPausedForGood(t *testing.T) {
	for _, row := range []struct {
		name  string
		state owner.Migration
		want  bool
	}{
		{"there is none", owner.Migration{}, false},
		{"the memory is copied", owner.Migration{Source: "a", Target: "b", Mode: "PreCopy"}, false},
		{"the source is paused, and may go on", owner.Migration{Source: "a", Target: "b", Mode: "Paused"}, false},
		{"the machine runs on the target, memory follows", owner.Migration{Source: "a", Target: "b", Mode: "PostCopy"}, true},
		{"the domain is active on the target", owner.Migration{Source: "a", Target: "b", TargetReady: true}, true},
		{"an older KubeVirt names no source", owner.Migration{Target: "b", TargetReady: true}, true},
		{"it is completed", owner.Migration{Source: "a", Target: "b", Completed: true}, true},
		{"it has failed", owner.Migration{Source: "a", Target: "b", Mode: "PostCopy", Completed: true, Failed: true}, false},
		{"it leads to another pod", owner.Migration{Source: "a", Target: "c", TargetReady: true}, false},
		{"it came from another pod", owner.Migration{Source: "c", Target: "b", TargetReady: true}, false},
	} {
		got, why := row.state.HandsOver("a", "b")
		check.That(t, got == row.want && why != "", "%s: %v (%s), want %v", row.name, got, why, row.want)
	}
	got, _ := (owner.Migration{Source: "a", Target: "a", Completed: true}).HandsOver("a", "a")
	check.That(t, !got, "a holder hands over to itself")
}

// FuzzReservedOrdinals: a range of ordinals that is read again from its own text, or an error.
func FuzzReservedOrdinals(f *testing.F) {
	for _, text := range []string{"", "3", "3-5", "5-3", " 3 - 5 ", "-1", "3-", "+3", "2147483648", "1-2-3"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		r, err := owner.ParseRange(text)
		if err != nil {
			return
		}
		check.That(t, r.First >= 0 && r.Last >= r.First && r.Last <= math.MaxInt32, "%q: %+v", text, r)
		again, err := owner.ParseRange(fmt.Sprintf("%d-%d", r.First, r.Last))
		check.That(t, err == nil && again == r, "%q: %+v is read as %+v, %v", text, r, again, err)
	})
}

// A number at the end of a name is an ordinal only in a StatefulSet.
func TestPlaceOf(t *testing.T) {
	for _, row := range []struct {
		what, version, kind, owner, pod string
		ordinal                         int64 // -1: none
		shares                          bool
	}{
		{"a StatefulSet's pod", "apps/v1", "StatefulSet", "web", "web-7", 7, false},
		{"one of another project's", "apps.kruise.io/v1beta1", "StatefulSet", "web", "web-10", 10, false},
		{"one whose name is no ordinal's", "apps.kruise.io/v1beta1", "StatefulSet", "web", "web-07", -1, true},
		{"a Deployment's pod", "apps/v1", "ReplicaSet", "web-5d9c", "web-5d9c-7", -1, true},
		{"a Job's pod", "batch/v1", "Job", "web", "web-7", -1, true},
		{"a DaemonSet's pod", "apps/v1", "DaemonSet", "web", "web-7", -1, true},
		{"a static pod", "v1", "Node", "web", "web-7", -1, false},
		{"a virtual machine's pod", "kubevirt.io/v1", "VirtualMachineInstance", "web", "web-7", -1, false},
		{"a pod without an owner", "", "", "", "web-7", -1, false},
	} {
		pod := &metav1.ObjectMeta{Name: row.pod}
		if row.kind != "" {
			pod.OwnerReferences = []metav1.OwnerReference{{APIVersion: row.version, Kind: row.kind, Name: row.owner, Controller: ptr.To(true)}}
		}
		ordinal, shares := owner.PlaceOf(pod)
		check.Equal(t, ptr.Deref(ordinal, -1), row.ordinal, "%s: its ordinal", row.what)
		check.Equal(t, shares, row.shares, "%s: it shares", row.what)
	}
}
