// SPDX-License-Identifier: Apache-2.0

//go:build api

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fenceline/fenceline/agent/ipam"
	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/test/check"
)

// ofFenceline is a definition of Fenceline.
const ofFenceline = `{"cniVersion":"1.0.0","name":"vlan100","plugins":[
	{"type":"macvlan","master":"eth1","ipam":{"type":"fenceline","default_ipv4_ippool":["floor"],"routes":[{"dst":"172.16.0.0/12"}]}},{"type":"fenceline"}]}`

// outNetwork is a network of Fenceline with a pod that it gave 10.100.0.7.
type outNetwork struct{ *network }

func newOutNetwork(t *testing.T) outNetwork {
	n := outNetwork{newNetworkOf(t, ofFenceline)}
	n.make(&v1alpha1.ReservedIP{ObjectMeta: metav1.ObjectMeta{Name: "kept"}, Spec: v1alpha1.ReservedIPSpec{IPs: []v1alpha1.IPRange{"10.100.0.11"}}})
	n.begins()
	return n
}

// begins makes everything as it is before a move.
func (n outNetwork) begins() {
	n.Helper()
	check.OK(n, n.client.DeleteAllOf(n.Context(), &v1alpha1.Move{}))
	check.OK(n, n.client.DeleteAllOf(n.Context(), &v1alpha1.IPPool{}))
	check.OK(n, n.client.DeleteAllOf(n.Context(), &v1alpha1.IPLease{}))
	for _, kind := range []schema.GroupVersionKind{whereaboutsRecords, reservations} {
		check.OK(n, n.client.DeleteAllOf(n.Context(), other(kind, "", nil), client.InNamespace("kube-system")))
	}
	n.define(other(definitions, "vlan100", nil).(*unstructured.Unstructured), ofFenceline)
	n.make(pool("floor", "10.100.0.0/24", func(p *v1alpha1.IPPool) {
		p.Spec.IPs, p.Spec.Gateway = []v1alpha1.IPRange{"10.100.0.5-10.100.0.12", "10.100.0.20"}, ptr.To("10.100.0.1")
	}))
	n.leases("moves-0", "10.100.0.7")
}

// leases gives a pod an address.
func (n outNetwork) leases(name, address string) *v1alpha1.IPLease {
	n.Helper()
	p := pod(name, "n1")
	p.Annotations = map[string]string{ipam.AnnotationNetworkStatus: fmt.Sprintf(`[{"name":"default/vlan100","interface":"net1","ips":[%q]}]`, address)}
	if name != "moves-0" {
		n.make(p)
	}
	check.OK(n, n.client.Get(n.Context(), client.ObjectKeyFromObject(p), p))
	l := lease(address, p, func(s *v1alpha1.IPLeaseSpec) {
		s.Pool, s.Holder.Interface, s.Holder.ContainerID = "floor", "net1", "c-"+name
	})
	n.make(l)
	return l
}

// statusOf writes the network-status of a pod, and returns what it was.
func (n outNetwork) statusOf(name, status string) (was string) {
	n.Helper()
	p := pod(name, "")
	check.OK(n, n.client.Get(n.Context(), client.ObjectKeyFromObject(p), p))
	was, p.Annotations[ipam.AnnotationNetworkStatus] = p.Annotations[ipam.AnnotationNetworkStatus], status
	check.OK(n, n.client.Update(n.Context(), p))
	return was
}

// record returns the record of whereabouts of an address, or nil.
func (n outNetwork) record(offset string) map[string]any {
	n.Helper()
	all := other(whereaboutsRecords, "10.100.0.0-24", nil).(*unstructured.Unstructured)
	all.SetNamespace("kube-system")
	if err := n.client.Get(n.Context(), client.ObjectKeyFromObject(all), all); apierrors.IsNotFound(err) {
		return nil
	} else if err != nil {
		n.Fatal(err)
	}
	one, _, err := unstructured.NestedMap(all.Object, "spec", "allocations", offset)
	check.OK(n, err)
	return one
}

// gives reports whether whereabouts would give an address.
func (n outNetwork) gives(last int) bool {
	n.Helper()
	var c struct {
		Plugins []struct {
			IPAM struct {
				Type       string
				Exclude    []netip.Prefix
				RangeStart netip.Addr `json:"range_start"`
				RangeEnd   netip.Addr `json:"range_end"`
			}
		}
	}
	check.OK(n, json.Unmarshal([]byte(n.config()), &c))
	a, of := netip.AddrFrom4([4]byte{10, 100, 0, byte(last)}), c.Plugins[0].IPAM
	isExcluded := slices.ContainsFunc(of.Exclude, func(p netip.Prefix) bool { return p.Contains(a) })
	return of.Type == "whereabouts" && !a.Less(of.RangeStart) && !of.RangeEnd.Less(a) && !isExcluded && n.record(fmt.Sprint(last)) == nil
}

// ruleHolds: no address is free in both IPAMs, and none that a pod has is free in one.
func (n outNetwork) ruleHolds(when string) {
	n.Helper()
	p := &v1alpha1.IPPool{}
	err := n.client.Get(n.Context(), client.ObjectKey{Name: "floor"}, p)
	check.That(n, client.IgnoreNotFound(err) == nil, "read the pool: %v", err)
	isOpen := err == nil && !ptr.Deref(p.Spec.Disable, false)
	for _, last := range []int{4, 5, 7, 8, 11, 12, 13, 20} {
		err := n.client.Get(n.Context(), client.ObjectKey{Name: fmt.Sprintf("10.100.0.%d", last)}, &v1alpha1.IPLease{})
		check.That(n, client.IgnoreNotFound(err) == nil, "read the lease: %v", err)
		hasLease := err == nil
		check.That(n, !n.gives(last) || !isOpen && !hasLease, "%s: whereabouts gives .%d, and Fenceline has it or gives it too", when, last)
		check.That(n, last != 7 || hasLease || n.record("7") != nil, "%s: nobody knows the address of a running pod", when)
	}
}

func TestANetworkMovesOut(t *testing.T) {
	n := newOutNetwork(t)
	out, err := n.run("", "move-out", "plan", "whereabouts", "default/vlan100")
	check.That(t, errors.Is(err, errBlocked) && strings.Contains(out, "their namespace is not known"), "plan: %v\n%s", err, out)
	_, err = n.run("", "move-out", "plan", "host-local", "default/vlan100")
	check.Says(t, err, `"host-local" is no IPAM of a move-out: want whereabouts`, "Each node of host-local gives addresses alone")
	// A pod has chosen the pool by another definition, which would ask for it again.
	status := n.statusOf("moves-0", `[{"name":"default/elsewhere","interface":"net1","ips":["10.100.0.7"]}]`)
	out, err = n.run("", "move-out", "start", "--records-in=kube-system", "whereabouts", "default/vlan100")
	check.That(t, errors.Is(err, errBlocked) && strings.Contains(out, "pod default/moves-0 has 10.100.0.7, and its definition does not move: default/elsewhere"), "start: %v\n%s", err, out)
	n.statusOf("moves-0", status)
	// Whereabouts has a record of another pod for an address of Fenceline, and another definition with addresses of the pool.
	held := n.leases("held-0", "10.100.0.8")
	theirs := other(whereaboutsRecords, "10.100.0.0-24", map[string]any{"range": "10.100.0.0/24", "allocations": map[string]any{
		"8": map[string]any{"id": "c9", "podref": "default/gone", "ifname": "net1"}}})
	theirs.SetNamespace("kube-system")
	twin := other(definitions, "twin", map[string]any{"config": asWritten})
	n.make(theirs, twin)
	out, err = n.run("", "move-out", "start", "--settle=50ms", "whereabouts", "default/vlan100")
	check.That(t, errors.Is(err, errBlocked) && strings.Contains(out, "10.100.0.8 has a lease of Fenceline, and the other IPAM would give it to pod default/gone again"), "start: %v\n%s", err, out)
	check.That(t, errors.Is(err, errBlocked) && strings.Contains(out, "definition default/twin of whereabouts has addresses of the pools already"), "start: %v\n%s", err, out)
	check.OK(t, n.client.Delete(t.Context(), twin))
	check.OK(t, n.client.Get(t.Context(), client.ObjectKeyFromObject(theirs), theirs))
	unstructured.RemoveNestedField(theirs.(*unstructured.Unstructured).Object, "spec", "allocations", "8")
	check.OK(t, n.client.Update(t.Context(), theirs))
	status = n.statusOf("held-0", "")
	kept := n.leases("kept-0", "10.100.0.12")
	check.OK(t, n.client.Delete(t.Context(), pod("kept-0", ""), client.GracePeriodSeconds(0)))
	kept.Spec.State, kept.Spec.Reason = v1alpha1.StateRetained, ""
	check.OK(t, n.client.Update(t.Context(), kept))

	// Whereabouts has records in a second namespace, so the person names the one of its kubeconfig.
	second := other(whereaboutsRecords, "10.200.0.0-24", map[string]any{"range": "10.200.0.0/24", "allocations": map[string]any{}})
	n.make(second)
	for _, flag := range []string{"--records-in=", "--records-in=shop"} {
		out, err = n.run("", "move-out", "start", flag, "whereabouts", "default/vlan100")
		check.That(t, errors.Is(err, errBlocked) && strings.Contains(out, "whereabouts has records in the namespaces default, kube-system: name by --records-in"), "%s: %v\n%s", flag, err, out)
	}
	n.says("move-out plan --records-in=kube-system whereabouts default/vlan100", "which move: 1")
	check.That(t, n.theMove() == nil, "move %v", n.theMove())
	check.OK(t, n.client.Delete(t.Context(), second))

	n.says("move-out plan whereabouts default/vlan100", "Addresses: 3, of which move: 1", `"range_start": "10.100.0.5"`, "network-status of its pod does not have it", "is kept for a name")
	check.That(t, n.theMove() == nil && n.config() == ofFenceline, "plan has written: move %v, definition %s", n.theMove(), n.config())
	n.says("move-out start --settle=50ms whereabouts default/vlan100", "whereabouts has records of 1 pods", "10.100.0.8 on node n1: Bound", "switched to whereabouts, with other exclusions", "Not done")
	n.ruleHolds("after the start")
	check.Equal(t, fmt.Sprint(n.record("7")), "map[id:c-moves-0 ifname:net1 podref:default/moves-0]", "the record of 10.100.0.7")
	reserved := other(reservations, "10.100.0.7", nil).(*unstructured.Unstructured)
	reserved.SetNamespace("kube-system")
	check.OK(t, n.client.Get(t.Context(), client.ObjectKeyFromObject(reserved), reserved))
	for _, last := range []int{5, 6, 9, 10, 12, 20} { // not the reserved .11, nor the gap
		check.That(t, n.gives(last), "whereabouts does not give .%d by %s", last, n.config())
	}

	// Another person is refused, and so is a move in.
	_, err = n.run("", "move-in", "back", "whereabouts", "default/vlan100")
	check.Says(t, err, "goes the other way")
	_, err = n.run("", "move-out", "finish", "--settle=50ms", "whereabouts", "default/vlan100")
	check.Says(t, err, "1 addresses are left")
	check.That(t, n.gives(5), "finish froze the network: %s", n.config())
	n.edits(func(m *v1alpha1.Move) { m.Spec.Holder = "ann@desk" })
	_, err = n.run("", "move-out", "finish", "whereabouts", "default/vlan100")
	check.Says(t, err, "ann@desk moves the network since", "--take-over")

	// The pod gets its network-status, and can go.
	n.statusOf("held-0", status)
	n.says("move-out start --settle=50ms --take-over whereabouts default/vlan100", "All pods have moved", "ip-control-loop of whereabouts frees the address")
	err = n.client.Get(t.Context(), client.ObjectKeyFromObject(held), held)
	check.That(t, apierrors.IsNotFound(err) && n.record("8")["podref"] == "default/held-0", "lease %v, record %v", err, n.record("8"))
	n.says("move-out finish --settle=50ms whereabouts default/vlan100", "has moved to whereabouts", "see that it runs on each node")
	check.That(t, n.theMove() == nil && !strings.Contains(n.config(), "fenceline") && strings.Contains(n.config(), `"172.16.0.0/12"`), "move %v, definition %s", n.theMove(), n.config())
	n.ruleHolds("after the end")

	// Now whereabouts has the network, and it moves in.
	n.says("move-in start --settle=50ms whereabouts default/vlan100", "Adopted: 2, held: 0")
}

// The command dies after each of its writes. The rule holds, and the command goes on.
func TestTheCommandOfAMoveOutDiesAnywhere(t *testing.T) {
	t.Parallel()
	n := newOutNetwork(t)
	n.through()
	run := func(verb string) error {
		_, err := n.run("", "move-out", verb, "--settle=50ms", "--records-in=kube-system", "whereabouts", "default/vlan100")
		return err
	}
	wholes := 0
	for deaths := int64(1); wholes < 2; deaths++ {
		n.begins()
		wholes = 0
		for _, verb := range []string{"start", "finish"} {
			if n.dies(verb, deaths, run, n.ruleHolds) {
				wholes++
			}
		}
		check.That(t, n.theMove() == nil && n.record("7") != nil && !strings.Contains(n.config(), "fenceline"), "move %v, definition %s", n.theMove(), n.config())
		t.Logf("the command died after write %d of each step", deaths)
	}
}

// dies has the command of a step die after a write, and repeats it. isWhole: the step has fewer writes.
func (n *network) dies(verb string, death int64, run func(verb string) error, ruleHolds func(when string)) (isWhole bool) {
	n.Helper()
	n.door.left.Store(death)
	err := run(verb)
	isWhole = n.door.left.Load() > 0
	n.door.opens()
	ruleHolds(fmt.Sprintf("%s died after write %d", verb, death))
	check.That(n, (err == nil) == isWhole, "write %d of %s: %v", death, verb, err)
	if !isWhole && (n.theMove() != nil || verb == "start") {
		check.OK(n, run(verb))
	}
	ruleHolds(verb + " was repeated")
	return isWhole
}

// Whereabouts' ip-control-loop frees no address of a pod while the records of one of its ranges are missing.
func TestAMoveOutMakesRecordsOfARangeWithoutAPod(t *testing.T) {
	n := newOutNetwork(t)
	n.define(other(definitions, "vlan100", nil).(*unstructured.Unstructured), strings.Replace(ofFenceline, `["floor"]`, `["floor"],"default_ipv6_ippool":["floor6"]`, 1))
	n.make(pool("floor6", "fd00:1::/64", func(*v1alpha1.IPPool) {}))
	n.says("move-out start --settle=50ms --records-in=kube-system whereabouts default/vlan100", "All pods have moved")
	none := other(whereaboutsRecords, "fd00-1---64", nil).(*unstructured.Unstructured)
	none.SetNamespace("kube-system")
	check.OK(t, n.client.Get(t.Context(), client.ObjectKeyFromObject(none), none))
	of, _, _ := unstructured.NestedString(none.Object, "spec", "range")
	check.Equal(t, of, "fd00:1::/64", "the range")
}
