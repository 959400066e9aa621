// SPDX-License-Identifier: Apache-2.0

//go:build api

package main

import (
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	admission "k8s.io/api/admission/v1"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/test/check"
)

// spiderOut is a network of Fenceline in a cluster with Spiderpool.
type spiderOut struct {
	outNetwork
	their spiderNetwork
}

func newSpiderOut(t *testing.T) spiderOut {
	n := newOutNetwork(t)
	return spiderOut{n, spiderNetwork{n.network, "floor"}}
}

// gives reports whether Spiderpool would give an address to a pod that names the SpiderIPPool.
func (n spiderOut) gives(last int) bool {
	n.Helper()
	return n.their.object("SpiderIPPool", "floor") != nil && n.their.gives(fmt.Sprintf("10.100.0.%d", last)) && slices.Contains([]int{5, 6, 7, 8, 9, 10, 12, 20}, last)
}

// ruleHolds: no address is free in both IPAMs, none that a pod has is free in one, and the collector changes nothing.
func (n spiderOut) ruleHolds(when string) {
	n.Helper()
	for range 2 {
		p := &v1alpha1.IPPool{}
		err := n.client.Get(n.Context(), client.ObjectKey{Name: "floor"}, p)
		check.That(n, client.IgnoreNotFound(err) == nil, "read the pool: %v", err)
		isOpen := err == nil && !ptr.Deref(p.Spec.Disable, false)
		for _, last := range []int{4, 5, 7, 8, 11, 12, 13, 20} {
			err := n.client.Get(n.Context(), client.ObjectKey{Name: fmt.Sprintf("10.100.0.%d", last)}, &v1alpha1.IPLease{})
			check.That(n, client.IgnoreNotFound(err) == nil, "read the lease: %v", err)
			hasLease := err == nil
			check.That(n, !n.gives(last) || !isOpen && !hasLease, "%s: Spiderpool gives .%d, and Fenceline has it or gives it too", when, last)
			hasRecord := n.their.allocated()["10.100.0.7"].UID == n.their.uid("moves-0") && n.their.object("SpiderEndpoint", "moves-0") != nil
			check.That(n, last != 7 || hasLease || hasRecord, "%s: nobody knows the address of a running pod", when)
		}
		n.their.collect()
	}
}

// status returns the status of a SpiderEndpoint as JSON.
func (n spiderOut) status(name string) string {
	n.Helper()
	return string(check.Value(json.Marshal(n.their.object("SpiderEndpoint", name).Object["status"]))(n))
}

func TestANetworkMovesOutToSpiderpoolAndInAndOut(t *testing.T) {
	n := newSpiderOut(t)
	// A pod of a StatefulSet, one whose network-status lacks, and one whose SpiderEndpoint is of an earlier pod.
	n.leases("set-0", "10.100.0.9")
	set := pod("set-0", "")
	check.OK(t, n.client.Get(t.Context(), client.ObjectKeyFromObject(set), set))
	set.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "StatefulSet", Name: "set", UID: "s", Controller: ptr.To(true)}}
	check.OK(t, n.client.Update(t.Context(), set))
	n.leases("held-0", "10.100.0.8")
	status := n.statusOf("held-0", "")
	n.leases("twice-0", "10.100.0.10")
	n.their.endpoint("twice-0", "u0", "10.200.0.7", "Pod")

	// A person without rights hears of them, and a SpiderIPPool with the addresses blocks, before the first write.
	n.make(&rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "reader"}, Rules: []rbacv1.PolicyRule{{APIGroups: []string{"*"}, Resources: []string{"*"}, Verbs: []string{"get", "list"}}}},
		&rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "reader"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "reader"},
			Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: "ann"}}})
	n.reads("ann")
	_, err := n.run("", "--as", "ann", "move-out", "start", "spiderpool", "default/vlan100")
	check.Says(t, err, "you have no right to update spiderippools/status.spiderpool.spidernet.io in all namespaces", "you have no right to create spiderendpoints.spiderpool.spidernet.io in all namespaces")
	twin := other(spiderpool.WithKind("SpiderIPPool"), "twin", map[string]any{"subnet": "10.100.0.0/24", "ips": []any{"10.100.0.12-10.100.0.19"}})
	n.make(twin)
	out, err := n.run("", "move-out", "start", "spiderpool", "default/vlan100")
	check.That(t, err != nil && strings.Contains(out, "SpiderIPPool twin has addresses of it already"), "start: %v\n%s", err, out)
	check.OK(t, n.client.Delete(t.Context(), twin))
	check.That(t, n.theMove() == nil && n.config() == ofFenceline && n.their.reserved() == nil, "something was written: move %v", n.theMove())

	// A pod that Spiderpool would give the same address twice blocks, and one whose annotation names another network is noted.
	second := lease("10.100.0.12", set, func(s *v1alpha1.IPLeaseSpec) { s.Holder.Interface = "net2" })
	n.make(second, pool("far", "10.9.0.0/24", func(p *v1alpha1.IPPool) { p.Spec.IPs = []v1alpha1.IPRange{"10.9.0.5"} }))
	out, err = n.run("", "move-out", "plan", "spiderpool", "default/vlan100")
	check.That(t, err != nil, "plan: no error")
	check.Says(t, out, "Blocked", "pod default/set-0 has addresses of pool floor on the interfaces net2 and net1")
	check.OK(t, n.client.Delete(t.Context(), second))
	set.Annotations["ipam.spidernet.io/ippools"] = `[{"interface":"net1","ipv4":["floor"]},{"interface":"net2","ipv4":["far"]}]`
	check.OK(t, n.client.Update(t.Context(), set))
	n.says("move-out plan spiderpool default/vlan100", "Note", "of pod default/set-0 names floor, which move, and far, which do not")

	n.says("move-out plan spiderpool default/vlan100", "Addresses: 4, of which move: 2", `SpiderIPPool floor will be:`, `"excludeIPs":["10.100.0.11"]`, `"type": "spiderpool"`, `"type": "coordinator"`, "network-status of its pod does not have it", "SpiderEndpoint default/twice-0 is of an earlier pod")
	n.says("move-out start --settle=50ms spiderpool default/vlan100", "spiderpool has records of 2 pods", "10.100.0.8 on node n1: Bound", "switched to spiderpool", "Not done")
	n.ruleHolds("after the start")
	check.List(t, n.their.reserved(), []string{"10.100.0.8", "10.100.0.10"}, "reserved")
	for _, last := range []int{5, 6, 12, 20} {
		check.That(t, n.gives(last), "Spiderpool does not give .%d", last)
	}
	// Somebody removes a SpiderReservedIP. The Move and status say so, until a start has mended it.
	check.OK(t, n.client.Delete(t.Context(), n.their.object("SpiderReservedIP", "fenceline-default.vlan100-v4")))
	n.wakes()
	check.Becomes(t, limit, "the controller tells it", n.isReverted)
	n.says("move-out status spiderpool default/vlan100", "no SpiderReservedIP of the move has 10.100.0.8, 10.100.0.10, so the other IPAM may give them: repeat `kubectl fenceline move-out start`")
	n.says("move-out start --settle=50ms spiderpool default/vlan100", "10.100.0.8 on node n1: Bound")
	n.ruleHolds("after the repeated start")
	n.wakes()
	check.Becomes(t, limit, "the condition ends", func() bool { return !n.isReverted() })
	spec := check.Value(json.Marshal(n.their.object("SpiderIPPool", "floor").Object["spec"]))(t)
	check.Equal(t, string(spec), `{"default":false,"disable":false,"excludeIPs":["10.100.0.11"],"gateway":"10.100.0.1","ipVersion":4,"ips":["10.100.0.5-10.100.0.12","10.100.0.20"],`+
		`"routes":[{"dst":"172.16.0.0/12","gw":"10.100.0.1"}],"subnet":"10.100.0.0/24"}`, "the SpiderIPPool")
	moves := n.their.object("SpiderEndpoint", "moves-0")
	check.Equal(t, n.status("moves-0"), fmt.Sprintf(`{"current":{"ips":[{"cleanGateway":false,"interface":"net1","ipv4":"10.100.0.7/24","ipv4Gateway":"10.100.0.1","ipv4Pool":"floor",`+
		`"routes":[{"dst":"172.16.0.0/12","gw":"10.100.0.1"}],"vlan":0}],"node":"n1","uid":%q},"ownerControllerName":"moves-0","ownerControllerType":"Pod"}`, n.their.uid("moves-0")), "the SpiderEndpoint")
	check.That(t, len(moves.GetOwnerReferences()) == 1 && string(moves.GetOwnerReferences()[0].UID) == n.their.uid("moves-0"), "the SpiderEndpoint is owned by %v", moves.GetOwnerReferences())
	check.List(t, moves.GetFinalizers(), []string{"spiderpool.spidernet.io"}, "finalizers")
	ofSet := n.their.object("SpiderEndpoint", "set-0")
	check.That(t, len(ofSet.GetOwnerReferences()) == 0 && strings.Contains(n.status("set-0"), `"ownerControllerName":"set","ownerControllerType":"StatefulSet"`), "the SpiderEndpoint of the StatefulSet's pod is %v", ofSet)

	// The collector frees the record of a pod that ends, and the pods that stayed can go.
	check.OK(t, n.client.Delete(t.Context(), set, client.GracePeriodSeconds(0)))
	n.their.collect()
	check.That(t, n.their.allocated()["10.100.0.9"].Pod == "default/set-0", "the next pod of the StatefulSet does not find its address")
	_, err = n.run("", "move-out", "finish", "--settle=50ms", "spiderpool", "default/vlan100")
	check.Says(t, err, "2 addresses are left")
	n.statusOf("held-0", status)
	n.their.frees(n.their.object("SpiderEndpoint", "twice-0"))
	n.says("move-out start --settle=50ms spiderpool default/vlan100", "All pods have moved", "the collector of spiderpool-controller frees the address")
	n.ruleHolds("after the second start")
	n.says("move-out finish --settle=50ms spiderpool default/vlan100", "has moved to spiderpool")
	check.That(t, n.theMove() == nil && n.their.reserved() == nil && !strings.Contains(n.config(), "fenceline"), "move %v, reserved %v, definition %s", n.theMove(), n.their.reserved(), n.config())
	held := pod("held-0", "")
	check.OK(t, n.client.Delete(t.Context(), held, client.GracePeriodSeconds(0)))
	n.their.collect()
	check.That(t, n.gives(8) && n.their.object("SpiderEndpoint", "held-0") == nil, "the address of a pod that has ended is not free")

	// Now Spiderpool has the network. It moves in for good, and out again to the SpiderIPPool that was left, with its records.
	n.their.frees(n.their.object("SpiderEndpoint", "set-0"))
	all := n.their.allocated()
	delete(all, "10.100.0.9")
	n.their.allocates(all)
	n.says("move-in start --settle=50ms spiderpool default/vlan100", "Adopted: 2, held: 0")
	check.That(t, strings.Contains(n.config(), `"172.16.0.0/12"`), "the route has gone: %s", n.config())
	n.their.disable(true)
	n.says("move-in finish spiderpool default/vlan100", "is finished")
	n.says("move-out start --settle=50ms spiderpool default/vlan100", "All pods have moved")
	n.ruleHolds("out again")
	check.That(t, n.gives(5), "Spiderpool does not give .5")
}

// begins makes everything as it is before a move.
func (n spiderOut) begins() {
	n.Helper()
	for _, kind := range []string{"SpiderIPPool", "SpiderReservedIP"} {
		check.OK(n, n.client.DeleteAllOf(n.Context(), other(spiderpool.WithKind(kind), "", nil)))
	}
	n.their.frees(n.their.object("SpiderEndpoint", "moves-0"))
	n.outNetwork.begins()
}

// The command dies after each of its writes, and the collector of Spiderpool runs between them. The rule holds, and the
// command goes on.
func TestTheCommandOfAMoveOutToSpiderpoolDiesAnywhere(t *testing.T) {
	t.Parallel()
	n := newSpiderOut(t)
	n.through()
	run := func(verb string) error {
		_, err := n.run("", "move-out", verb, "--settle=50ms", "spiderpool", "default/vlan100")
		return err
	}
	wholes := 0
	for deaths := int64(1); wholes < 2; deaths++ {
		n.begins()
		wholes = 0
		for _, verb := range []string{"start", "finish"} {
			if verb == "finish" { // a lease that has ended since the start
				late := "late-" + fmt.Sprint(deaths)
				n.leases(late, "10.100.0.8")
				n.statusOf(late, "")
				check.OK(t, run("start"))
				check.List(t, n.their.reserved(), []string{"10.100.0.8"}, "reserved")
				check.OK(t, n.client.Delete(t.Context(), &v1alpha1.IPLease{ObjectMeta: metav1.ObjectMeta{Name: "10.100.0.8"}}))
			}
			if n.dies(verb, deaths, run, n.ruleHolds) {
				wholes++
			}
		}
		check.That(t, n.theMove() == nil && n.their.reserved() == nil && !strings.Contains(n.config(), "fenceline"), "move %v, reserved %v, definition %s", n.theMove(), n.their.reserved(), n.config())
		t.Logf("the command died after write %d of each step", deaths)
	}
}

// Spiderpool judges each SpiderIPPool by a webhook. A try asks it before anything is written.
func TestAMoveOutThatSpiderpoolRefuses(t *testing.T) {
	n := newSpiderOut(t)
	n.make(&admissionv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "spiderpool"}, Webhooks: []admissionv1.ValidatingWebhook{{
		Name: "spiderippool.spiderpool.spidernet.io", ClientConfig: admissionv1.WebhookClientConfig{URL: ptr.To("https://127.0.0.1:1")},
		SideEffects: ptr.To(admissionv1.SideEffectClassNone), AdmissionReviewVersions: []string{"v1"}, Rules: []admissionv1.RuleWithOperations{{
			Operations: []admissionv1.OperationType{admissionv1.Create}, Rule: admissionv1.Rule{APIGroups: []string{spiderpool.Group}, APIVersions: []string{"*"}, Resources: []string{"spiderippools"}}}},
	}}})
	var err error
	check.Becomes(t, limit, "the webhook is asked", func() bool {
		check.That(t, n.theMove() == nil, "move %v", n.theMove())
		err = n.client.Create(t.Context(), other(spiderpool.WithKind("SpiderIPPool"), "probe", map[string]any{}), client.DryRunAll)
		return err != nil
	})
	_, err = n.run("", "move-out", "start", "spiderpool", "default/vlan100")
	check.Says(t, err, "spiderpool takes no SpiderIPPool floor, so nothing was changed", "spiderippool.spiderpool.spidernet.io")
	check.That(t, n.theMove() == nil && n.config() == ofFenceline && n.their.reserved() == nil, "move %v, definition %s", n.theMove(), n.config())
}

// A webhook of Spiderpool fills a new SpiderIPPool from the SpiderSubnet of its subnet. A try tells it.
func TestAMoveOutThatASpiderSubnetWouldChange(t *testing.T) {
	n := newSpiderOut(t)
	fills := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var review admission.AdmissionReview
		check.OK(t, json.NewDecoder(r.Body).Decode(&review))
		patch := `[{"op":"add","path":"/spec/gateway","value":"10.100.0.2"},{"op":"add","path":"/metadata/labels","value":{"ipam.spidernet.io/owner-spider-subnet":"all"}}]`
		review.Response = &admission.AdmissionResponse{UID: review.Request.UID, Allowed: true, PatchType: ptr.To(admission.PatchTypeJSONPatch), Patch: []byte(patch)}
		check.OK(t, json.NewEncoder(w).Encode(review))
	}))
	t.Cleanup(fills.Close)
	n.make(&admissionv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "fills"}, Webhooks: []admissionv1.MutatingWebhook{{
		Name: "spiderippool.spiderpool.spidernet.io", ClientConfig: admissionv1.WebhookClientConfig{
			URL: ptr.To(fills.URL), CABundle: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: fills.Certificate().Raw})},
		SideEffects: ptr.To(admissionv1.SideEffectClassNone), AdmissionReviewVersions: []string{"v1"}, Rules: []admissionv1.RuleWithOperations{{
			Operations: []admissionv1.OperationType{admissionv1.Create}, Rule: admissionv1.Rule{APIGroups: []string{spiderpool.Group}, APIVersions: []string{"*"}, Resources: []string{"spiderippools"}}}},
	}}})
	check.Becomes(t, limit, "the webhook is asked", func() bool {
		probe := other(spiderpool.WithKind("SpiderIPPool"), "probe", map[string]any{})
		return n.client.Create(t.Context(), probe, client.DryRunAll) == nil && len(probe.GetLabels()) > 0
	})
	_, err := n.run("", "move-out", "start", "spiderpool", "default/vlan100")
	check.Says(t, err, `takes no SpiderIPPool floor, so nothing was changed: SpiderSubnet all of its subnet would give it the gateway "10.100.0.2"`)
	check.That(t, n.theMove() == nil && n.config() == ofFenceline, "move %v, definition %s", n.theMove(), n.config())
}

// A try changes nothing of a SpiderIPPool that a network has left behind.
func TestATryLeavesASpiderIPPool(t *testing.T) {
	n := newSpiderOut(t)
	left := other(spiderpool.WithKind("SpiderIPPool"), "floor", map[string]any{"subnet": "10.100.0.0/24", "ips": []any{"10.100.0.5"}, "disable": true})
	n.make(left)
	n.through()
	n.door.left.Store(2) // the try, and the Move
	_, err := n.run("", "move-out", "start", "spiderpool", "default/vlan100")
	n.door.opens()
	check.That(t, err != nil && n.theMove() != nil, "start: %v, move %v", err, n.theMove())
	disabled, _, _ := unstructured.NestedBool(n.their.object("SpiderIPPool", "floor").Object, "spec", "disable")
	check.That(t, disabled, "the try has changed the SpiderIPPool")
}
