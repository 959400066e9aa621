// SPDX-License-Identifier: Apache-2.0

package poolset_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/internal/poolset"
	"github.com/fenceline/fenceline/test/check"
)

func packed(t testing.TB, all []v1alpha1.ReservedIP) *poolset.Packed {
	t.Helper()
	var texts []string
	for i := range all {
		texts = append(texts, check.Value(poolset.Pack(&all[i]))(t))
	}
	slices.Sort(texts)
	return poolset.NewPacked(texts)
}

// crowd returns reservations of few addresses, so that many meet.
func crowd(r *rand.Rand) (all []v1alpha1.ReservedIP) {
	entry := func() string {
		from := r.IntN(20)
		switch r.IntN(5) {
		case 0:
			return fmt.Sprintf("10.1.0.%d-10.1.0.%d", from, from+r.IntN(3))
		case 1:
			return fmt.Sprintf("fd00::%x", from)
		case 2:
			return fmt.Sprintf("10.1.0.%d/30", 4*(from/4))
		}
		return fmt.Sprintf("10.1.0.%d", from)
	}
	for i := range 1 + r.IntN(12) {
		one := reservation(entry())
		for range r.IntN(3) {
			one.Spec.IPs = append(one.Spec.IPs, entry())
		}
		one.Name = fmt.Sprint("r", i)
		namespace := []string{"shop", "bank"}[r.IntN(2)]
		one.Spec.Network = []string{"", "lab"}[r.IntN(2)]
		switch r.IntN(8) {
		case 0:
			one.Spec.For = &v1alpha1.ReservedFor{Namespace: namespace, Pod: "web-1"}
		case 1, 2:
			one.Spec.For = &v1alpha1.ReservedFor{Namespace: namespace, StatefulSet: "web"}
		case 3:
			one.Spec.For = &v1alpha1.ReservedFor{Namespace: namespace}
		case 4:
			one.Spec.For = &v1alpha1.ReservedFor{MAC: "02:00:00:00:00:01"}
		case 5:
			one.Spec.Virtual = &v1alpha1.ReservedVirtual{Namespace: namespace, MatchLabels: map[string]string{"app": "web-1"}}
		case 6:
			one.Spec.For = &v1alpha1.ReservedFor{Namespace: namespace, VirtualMachine: "web-1"}
		default:
			one.Spec.Network = ""
		}
		all = append(all, one)
	}
	return all
}

func TestPackedReservationsAnswerAsTheirList(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	pods := []v1alpha1.Holder{
		{Namespace: "shop", Pod: "web-1", OwnerKind: "StatefulSet", OwnerName: "web"}, {Namespace: "bank", Pod: "web-1"},
		{Namespace: "shop", Pod: "virt-launcher-x", OwnerKind: "VirtualMachineInstance", OwnerName: "web-1"}, {Namespace: "else", Pod: "x"},
	}
	for range 2000 {
		list := crowd(r)
		slices.SortFunc(list, func(a, b v1alpha1.ReservedIP) int { return strings.Compare(a.Name, b.Name) }) // as packed
		all := packed(t, list)
		check.Must(t, all.Set().Equal(poolset.ReservedSet(list)), "reserved are %v, want %v", all.Set().Entries(), poolset.ReservedSet(list).Entries())
		for i := range pods {
			pod := &pods[i]
			check.Same(t, poolset.Grants(all.For(pod), pod), poolset.Grants(list, pod), "of %v, pod %s/%s is granted", list, pod.Namespace, pod.Pod)
			for n := range 24 {
				addr := netip.AddrFrom4([4]byte{10, 1, 0, byte(n)})
				check.Same(t, poolset.KeptForAnother(all.At(addr), "lab", addr, pod), poolset.KeptForAnother(list, "lab", addr, pod), "%s is kept by", addr)
			}
		}
		if t.Failed() {
			return
		}
	}
}

// keeper has the reservations of api packed.
type keeper struct {
	api
	packed *poolset.Packed
}

func (k keeper) Reservations() (*poolset.Packed, error) { return k.packed, nil }

func (k keeper) List(ctx context.Context, into client.ObjectList, o ...client.ListOption) error {
	if _, ok := into.(*v1alpha1.ReservedIPList); ok {
		return fmt.Errorf("reservations are listed")
	}
	return k.api.List(ctx, into, o...)
}

func TestAServiceReservesBesidePackedReservations(t *testing.T) {
	own := keptBy("own", v1alpha1.ReservedFor{Namespace: "shop", Pod: "db"}, "10.1.0.1-10.1.0.2")
	pod := &v1alpha1.Holder{Namespace: "shop", Pod: "db"}
	k := keeper{packed: packed(t, []v1alpha1.ReservedIP{own})}
	for range 2 {
		all := check.Value(poolset.ReadReserved(t.Context(), k))(t)
		check.List(t, all.Set().Entries(), []string{"10.1.0.1-10.1.0.3", "fd00::2"}, "reserved are")
		grants := poolset.Grants(all.For(pod), pod)
		check.Must(t, len(grants) == 1, "%d grants", len(grants))
		check.List(t, grants[0].Set.Entries(), []string{"10.1.0.1"}, "the pod has")
		at := all.At(netip.MustParseAddr("10.1.0.3"))
		check.That(t, len(at) == 1 && poolset.Title(&at[0]) == "Service shop/web of type LoadBalancer", "10.1.0.3 is of %v", at)
	}
}

// BenchmarkPacked is what an ADD whose pod has one of 5 000 reservations asks of them.
func BenchmarkPacked(b *testing.B) {
	var list []v1alpha1.ReservedIP
	for i := range 5000 {
		list = append(list, keptBy(fmt.Sprint("r", i), v1alpha1.ReservedFor{Namespace: fmt.Sprint("ns", i%50), Pod: fmt.Sprint("p", i)}, fmt.Sprintf("10.1.%d.%d", i/250, i%250)))
	}
	all, pod := packed(b, list), &v1alpha1.Holder{Namespace: "ns7", Pod: "p7"}
	for b.Loop() {
		if all.Set().Len() != 5000 || len(poolset.Grants(all.For(pod), pod)) != 1 {
			b.Fatal("wrong answer")
		}
	}
}
