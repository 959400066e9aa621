// SPDX-License-Identifier: Apache-2.0

package poolset_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/internal/poolset"
	"github.com/fenceline/fenceline/test/check"
)

func reservation(ips ...string) v1alpha1.ReservedIP {
	return v1alpha1.ReservedIP{Spec: v1alpha1.ReservedIPSpec{IPs: ips}}
}

func TestReservedSet(t *testing.T) {
	for _, row := range []struct {
		name         string
		reservations []v1alpha1.ReservedIP
		len          uint64
		in, out      []string
	}{
		{"no reservation keeps nothing back", nil, 0, nil, []string{"10.1.0.1"}},
		{"addresses, ranges and CIDRs of either family",
			[]v1alpha1.ReservedIP{reservation("10.1.0.1", "10.1.0.8-10.1.0.9", "10.2.0.0/30", "fd00::/126")}, 11,
			[]string{"10.1.0.1", "10.1.0.9", "10.2.0.3", "fd00::3"}, []string{"10.1.0.2", "10.1.0.10", "10.2.0.4", "fd00::4"}},
		{"several reservations together, what they share once",
			[]v1alpha1.ReservedIP{reservation("10.1.0.1-10.1.0.4"), reservation("10.1.0.3-10.1.0.6")}, 6,
			[]string{"10.1.0.1", "10.1.0.6"}, []string{"10.1.0.7"}},
		{"an entry that ends before it starts keeps nothing back, the others hold",
			[]v1alpha1.ReservedIP{reservation("fd00::20-fd00::10", "fd00::1"), reservation("10.1.0.1")}, 2,
			[]string{"fd00::1", "10.1.0.1"}, []string{"fd00::10", "fd00::15", "fd00::20"}},
	} {
		t.Run(row.name, func(t *testing.T) {
			set := poolset.ReservedSet(row.reservations)
			check.That(t, set.Len() == row.len, "%d addresses, want %d", set.Len(), row.len)
			for _, a := range row.in {
				check.That(t, set.Contains(netip.MustParseAddr(a)), "%s is not reserved", a)
			}
			for _, a := range row.out {
				check.That(t, !set.Contains(netip.MustParseAddr(a)), "%s is reserved", a)
			}
		})
	}
}

func TestReservedByNamesEveryBadEntry(t *testing.T) {
	r := reservation("fd00::20-fd00::10", "10.1.0.1", "ten")
	set, err := poolset.ReservedBy(&r)
	var spec *poolset.SpecError
	check.That(t, errors.As(err, &spec) && spec.Field == "spec.ips[0]", "error %v, want one of spec.ips[0]", err)
	const want = "spec.ips[0]: range fd00::20-fd00::10 ends before it starts\nspec.ips[2]: \"ten\" is not an IP address"
	check.That(t, err != nil && err.Error() == want, "error %v, want %s", err, want)
	check.That(t, set.Len() == 1, "%d addresses, want the good one", set.Len())
	good := reservation("10.1.0.1")
	check.Is(t, check.Err(poolset.ReservedBy(&good)), nil, "a good reservation:")
}

// keptBy is a reservation for somebody.
func keptBy(name string, whom v1alpha1.ReservedFor, ips ...string) v1alpha1.ReservedIP {
	r := reservation(ips...)
	r.Name, r.Spec.For = name, &whom
	return r
}

func TestGrants(t *testing.T) {
	all := []v1alpha1.ReservedIP{
		reservation("10.1.0.200-10.1.0.250"),
		keptBy("pod", v1alpha1.ReservedFor{Namespace: "shop", Pod: "db"}, "10.1.0.1", "fd00::1"),
		keptBy("set", v1alpha1.ReservedFor{Namespace: "shop", StatefulSet: "web"}, "10.1.0.20", "fd00::20-fd00::22", "10.1.0.11-10.1.0.12"),
		keptBy("machine", v1alpha1.ReservedFor{Namespace: "shop", VirtualMachine: "vm"}, "10.1.0.30"),
		keptBy("namespace", v1alpha1.ReservedFor{Namespace: "bank"}, "10.1.0.40/30", "10.1.0.200"),
		keptBy("another", v1alpha1.ReservedFor{Namespace: "bank", Pod: "x"}, "10.1.0.41"),
	}
	all[2].Spec.Network = "lab"
	for _, row := range []struct {
		name string
		pod  v1alpha1.Holder
		want string
	}{
		{"a pod by its name", v1alpha1.Holder{Namespace: "shop", Pod: "db"}, "pod: 10.1.0.1 fd00::1"},
		{"a pod of that name elsewhere", v1alpha1.Holder{Namespace: "lab", Pod: "db"}, ""},
		{"the first ordinal", v1alpha1.Holder{Namespace: "shop", Pod: "web-0", OwnerKind: "StatefulSet", OwnerName: "web"}, "set of lab: 10.1.0.20 fd00::20"},
		{"the third ordinal, in the order of the list", v1alpha1.Holder{Namespace: "shop", Pod: "web-2", OwnerKind: "StatefulSet", OwnerName: "web"}, "set of lab: 10.1.0.12 fd00::22"},
		{"an ordinal beyond the list", v1alpha1.Holder{Namespace: "shop", Pod: "web-3", OwnerKind: "StatefulSet", OwnerName: "web"}, "set of lab: , lacks 10.1.0.11-10.1.0.12 10.1.0.20 fd00::20-fd00::22"},
		{"a bare pod with the name of an ordinal", v1alpha1.Holder{Namespace: "shop", Pod: "web-0"}, ""},
		{"a Job's pod with such a name", v1alpha1.Holder{Namespace: "shop", Pod: "web-0", OwnerKind: "Job", OwnerName: "web"}, ""},
		{"no canonical ordinal", v1alpha1.Holder{Namespace: "shop", Pod: "web-01", OwnerKind: "StatefulSet", OwnerName: "web"}, ""},
		{"a virtual machine, whatever its pod is called", v1alpha1.Holder{Namespace: "shop", Pod: "launcher-x", OwnerKind: "VirtualMachineInstance", OwnerName: "vm"}, "machine: 10.1.0.30"},
		{"a namespace, without what others have too", v1alpha1.Holder{Namespace: "bank", Pod: "y"}, "namespace, shared: 10.1.0.40 10.1.0.42-10.1.0.43"},
		{"what two reservations have is nobody's", v1alpha1.Holder{Namespace: "bank", Pod: "x"}, "namespace, shared: 10.1.0.40 10.1.0.42-10.1.0.43"},
	} {
		var got []string
		for _, g := range poolset.Grants(all, &row.pod) {
			text := g.By
			if g.Network != "" {
				text += " of " + g.Network
			}
			if g.Namespace {
				text += ", shared"
			}
			text += ": " + strings.Join(g.Set.Entries(), " ")
			if g.Lacking.Len() > 0 {
				text += ", lacks " + strings.Join(g.Lacking.Entries(), " ")
			}
			got = append(got, text)
		}
		check.Equal(t, strings.Join(got, "; "), row.want, "%s:", row.name)
	}
	check.Same(t, poolset.Contested(all), map[int]string{0: "ReservedIP namespace", 4: "ReservedIP ", 5: "ReservedIP namespace"}, "contested")
	check.Same(t, poolset.Contested([]v1alpha1.ReservedIP{reservation("10.1.0.1"), reservation("10.1.0.0/24")}), map[int]string{}, "contested, of two for nobody")

	kept := &v1alpha1.IPLease{Spec: v1alpha1.IPLeaseSpec{Holder: &v1alpha1.Holder{Namespace: "shop", Pod: "web-0", OwnerKind: "StatefulSet", OwnerName: "web"}}}
	for name, want := range map[string]bool{"lab.10.1.0.20": true, "10.1.0.20": false, "lab.10.1.0.11": false} {
		kept.Name = name
		check.Equal(t, poolset.IsKept(&all[2], kept), want, "lease %s of web-0 is its own:", name)
	}
}

func TestAnEntryThatCannotBeReadHasOnePlace(t *testing.T) {
	r := keptBy("set", v1alpha1.ReservedFor{Namespace: "shop", StatefulSet: "web"}, "10.1.0.1", "10.1.0.300", "10.1.0.3", "fd00::1", "fd00::x", "fd00::3")
	for ordinal, want := range []string{"10.1.0.1 fd00::1", "", "10.1.0.3 fd00::3", ""} {
		pod := &v1alpha1.Holder{Namespace: "shop", Pod: fmt.Sprint("web-", ordinal), OwnerKind: "StatefulSet", OwnerName: "web"}
		got := poolset.Grants([]v1alpha1.ReservedIP{r}, pod)
		check.Must(t, len(got) == 1, "%d grants of ordinal %d", len(got), ordinal)
		check.Equal(t, strings.Join(got[0].Set.Entries(), " "), want, "ordinal %d has", ordinal)
	}
}

func TestReservationsOfTwoNetworksDoNotMeet(t *testing.T) {
	both := []v1alpha1.ReservedIP{
		keptBy("a", v1alpha1.ReservedFor{Namespace: "shop", Pod: "db"}, "10.1.0.1"),
		keptBy("b", v1alpha1.ReservedFor{Namespace: "shop", Pod: "db"}, "10.1.0.0/24"),
	}
	pod := &v1alpha1.Holder{Namespace: "shop", Pod: "db"}
	check.Same(t, poolset.Contested(both), map[int]string{0: "ReservedIP b", 1: "ReservedIP a"}, "contested, of one network")
	both[1].Spec.Network = "lab"
	check.Same(t, poolset.Contested(both), map[int]string{}, "contested, of two networks")
	check.Equal(t, len(poolset.Grants(both, pod)), 2, "grants:")
	both = append(both, reservation("10.1.0.1"))
	check.Same(t, poolset.Contested(both), map[int]string{0: "ReservedIP ", 1: "ReservedIP ", 2: "ReservedIP a"}, "contested, with one for nobody")
	check.Equal(t, poolset.Grants(both, pod)[0].By, "b", "the first grant is of")
}

// api has one ReservedIP for somebody, one for nobody and a virtual one, and a Service.
type api struct{ client.Reader }

func (api) List(_ context.Context, into client.ObjectList, options ...client.ListOption) error {
	var o client.ListOptions
	o.ApplyOptions(options)
	switch list := into.(type) {
	case *v1alpha1.ReservedIPList:
		virtual := reservation("10.1.0.1", "10.1.0.3")
		virtual.Spec.Virtual = &v1alpha1.ReservedVirtual{Namespace: "shop"}
		list.Items = []v1alpha1.ReservedIP{keptBy("own", v1alpha1.ReservedFor{Namespace: "shop", Pod: "db"}, "10.1.0.1-10.1.0.2"), virtual, reservation("10.1.0.1")}
	case *corev1.ServiceList:
		if o.FieldSelector.String() != "spec.type=LoadBalancer" {
			return fmt.Errorf("Services with %s are listed", o.FieldSelector)
		}
		list.Items = make([]corev1.Service, 2)
		s := &list.Items[1]
		s.Namespace, s.Name = "shop", "web"
		s.Spec.ExternalIPs = []string{"10.1.0.9"}
		s.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "10.1.0.2"}, {Hostname: "web.example.com"}, {IP: "fd00::2"}, {IP: "10.1.0.3"}}
	}
	return nil
}

func TestTheAddressesOfALoadBalancerAreNobodys(t *testing.T) {
	all := check.Value(poolset.Reservations(t.Context(), api{}))(t)
	check.List(t, poolset.ReservedSet(all).Entries(), []string{"10.1.0.1-10.1.0.3", "fd00::2"}, "reserved are")
	check.None(t, poolset.Grants(all, &v1alpha1.Holder{Namespace: "shop", Pod: "db"}), "what is kept for a pod, and a Service and another reservation have:")
	check.Same(t, poolset.Contested(all[:2]), map[int]string{0: "ReservedIP ", 1: "ReservedIP own"}, "contested without the Service")
	others := []v1alpha1.ReservedIP{all[0], all[3]} // 10.1.0.1 is for the pod alone
	check.Same(t, poolset.Contested(others), map[int]string{0: "Service shop/web of type LoadBalancer", 1: "ReservedIP own"}, "contested by the Service")
	grants := poolset.Grants(others, &v1alpha1.Holder{Namespace: "shop", Pod: "db"})
	check.Must(t, len(grants) == 1, "%d grants", len(grants))
	check.List(t, grants[0].Set.Entries(), []string{"10.1.0.1"}, "the pod has")
	check.Same(t, poolset.Contested(all[1:2:2]), map[int]string{}, "contested, of one that is virtual")
	check.Same(t, poolset.Contested([]v1alpha1.ReservedIP{all[1], all[3]}), map[int]string{}, "contested, of one that is virtual and a Service")
}

// Nobody gets the address of a machine, and a pod that has it leaves it.
func TestTheAddressOfAMachineIsForNoPod(t *testing.T) {
	all := []v1alpha1.ReservedIP{keptBy("machine", v1alpha1.ReservedFor{MAC: "02:00:00:00:00:01"}, "10.1.0.1"), keptBy("own", v1alpha1.ReservedFor{Namespace: "shop", Pod: "db"}, "10.1.0.1-10.1.0.2")}
	pod := &v1alpha1.Holder{Namespace: "shop", Pod: "db"}
	check.List(t, poolset.KeptSet(all[:1]).Entries(), nil, "kept for pods:")
	check.List(t, poolset.ReservedSet(all[:1]).Entries(), []string{"10.1.0.1"}, "reserved:")
	check.None(t, poolset.Grants(all[:1], pod), "the pod is granted:")
	check.List(t, poolset.Grants(all, pod)[0].Set.Entries(), []string{"10.1.0.2"}, "the pod has of its own:")
	check.Same(t, poolset.Contested(all), map[int]string{0: "ReservedIP own", 1: "ReservedIP machine"}, "contested")
	by := poolset.KeptForAnother(all[:1], "", netip.MustParseAddr("10.1.0.1"), pod)
	check.That(t, by != nil && by.Name == "machine", "it is kept for %+v", by)
}

func TestWhoElseAnAddressIsKeptFor(t *testing.T) {
	all := []v1alpha1.ReservedIP{
		reservation("10.1.0.9"),
		keptBy("set", v1alpha1.ReservedFor{Namespace: "shop", StatefulSet: "web"}, "10.1.0.1-10.1.0.2"),
		keptBy("namespace", v1alpha1.ReservedFor{Namespace: "shop"}, "10.1.0.2"),
	}
	web0 := v1alpha1.Holder{Namespace: "shop", Pod: "web-0", OwnerKind: "StatefulSet", OwnerName: "web"}
	web1, other := web0, v1alpha1.Holder{Namespace: "bank", Pod: "x"}
	web1.Pod = "web-1"
	for _, row := range []struct {
		name, network, addr string
		pod                 v1alpha1.Holder
		want                string
	}{
		{"its own", "", "10.1.0.1", web0, ""},
		{"that of another ordinal", "", "10.1.0.1", web1, "set"},
		{"that of another ordinal, and of its namespace", "", "10.1.0.2", web0, ""},
		{"of another namespace", "", "10.1.0.2", other, "namespace"},
		{"in another network", "lab", "10.1.0.1", web1, ""},
		{"for nobody", "", "10.1.0.9", other, ""},
		{"not reserved", "", "10.1.0.3", other, ""},
	} {
		got := ""
		if r := poolset.KeptForAnother(all, row.network, netip.MustParseAddr(row.addr), &row.pod); r != nil {
			got = r.Name
		}
		check.Equal(t, got, row.want, "%s: kept by", row.name)
	}
}

func TestManyGrantsLackWhatOthersHaveToo(t *testing.T) {
	var all []v1alpha1.ReservedIP
	for i := range 20 {
		all = append(all, keptBy(fmt.Sprint("r", i), v1alpha1.ReservedFor{Namespace: "shop"}, fmt.Sprintf("10.1.0.%d-10.1.0.%d", 10*i, 10*i+1)))
	}
	all = append(all, reservation("10.1.0.20", "10.1.0.150", "10.1.0.160-10.1.0.169"))
	var got []string
	for _, g := range poolset.Grants(all, &v1alpha1.Holder{Namespace: "shop", Pod: "web"}) {
		if g.Set.Len() != 2 {
			got = append(got, strings.Join(g.Set.Entries(), " "))
		}
	}
	check.List(t, got, []string{"10.1.0.21", "10.1.0.151"}, "those that have not two addresses have")
}

// BenchmarkGrants is what 5 000 reservations for somebody cost an ADD whose pod has one of them.
func BenchmarkGrants(b *testing.B) {
	benchmarkGrants(b, 1, func(i int) v1alpha1.ReservedFor {
		return v1alpha1.ReservedFor{Namespace: fmt.Sprint("ns", i%50), Pod: fmt.Sprint("p", i)}
	})
}

// BenchmarkGrantsOfANamespace is what they cost if all are for the namespace of the pod.
func BenchmarkGrantsOfANamespace(b *testing.B) {
	benchmarkGrants(b, 5000, func(int) v1alpha1.ReservedFor { return v1alpha1.ReservedFor{Namespace: "ns7"} })
}

func benchmarkGrants(b *testing.B, want int, whom func(i int) v1alpha1.ReservedFor) {
	b.Helper()
	var all []v1alpha1.ReservedIP
	for i := range 5000 {
		all = append(all, keptBy(fmt.Sprint("r", i), whom(i), fmt.Sprintf("10.%d.%d.%d", i>>16, i>>8&255, i&255)))
	}
	pod := &v1alpha1.Holder{Namespace: "ns7", Pod: "p7"}
	b.ReportAllocs()
	for b.Loop() {
		if len(poolset.Grants(all, pod)) != want {
			b.Fatal("other grants")
		}
	}
}
