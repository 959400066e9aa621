// SPDX-License-Identifier: Apache-2.0

//go:build api

package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/cli/movein"
	"github.com/fenceline/fenceline/internal/poolset"
	"github.com/fenceline/fenceline/test/check"
)

// spiderText is a definition of Spiderpool with a text that no program writes.
const spiderText = `{"cniVersion": "0.3.1",  "name":"vlan100", "plugins":[{"type":"macvlan","master":"eth1","ipam":{"type":"spiderpool","default_ipv4_ippool":["vlan100"]}},{"type":"coordinator"}]}`

// spiderNetwork is a network of Spiderpool with a pod, with a pod of a StatefulSet that is scaled in, and with a record of
// a pod that is gone. Its objects are those that Spiderpool writes; collect stands in for its collector.
type spiderNetwork struct {
	*network
	// spider is its SpiderIPPool.
	spider string
}

// allocation is an entry of status.allocatedIPs.
type allocation struct {
	Pod string `json:"pod"`
	UID string `json:"podUid"`
}

func newSpiderNetwork(t *testing.T) spiderNetwork {
	n := spiderNetwork{newNetworkOf(t, spiderText, other(spiderpool.WithKind("SpiderIPPool"), "vlan100", map[string]any{
		"ipVersion": int64(4), "subnet": "10.100.0.0/24", "ips": []any{"10.100.0.5-10.100.0.12"}, "gateway": "10.100.0.1", "default": false, "disable": false,
	})), "vlan100"}
	n.endpoint("moves-0", n.uid("moves-0"), "10.100.0.7", "Pod")
	n.endpoint("scaled-0", "u2", "10.100.0.11", "StatefulSet")
	n.allocates(map[string]allocation{
		"10.100.0.7": {"default/moves-0", n.uid("moves-0")}, "10.100.0.9": {"default/gone", "u1"}, "10.100.0.11": {"default/scaled-0", "u2"},
	})
	return n
}

func (n spiderNetwork) uid(name string) string {
	n.Helper()
	p := &corev1.Pod{}
	check.OK(n, n.client.Get(n.Context(), client.ObjectKey{Namespace: "default", Name: name}, p))
	return string(p.UID)
}

func (n spiderNetwork) endpoint(name, uid, addr, owner string) {
	n.Helper()
	e := other(spiderpool.WithKind("SpiderEndpoint"), name, nil).(*unstructured.Unstructured)
	delete(e.Object, "spec")
	e.Object["status"] = map[string]any{
		"ownerControllerType": owner, "ownerControllerName": name, "current": map[string]any{"uid": uid, "node": "n1", "ips": []any{
			map[string]any{"interface": "net1", "ipv4": addr + "/24", "ipv4Pool": "vlan100", "vlan": int64(0), "ipv4Gateway": "10.100.0.1", "cleanGateway": false},
		}},
	}
	n.make(e)
}

// object reads an object of Spiderpool, nil if there is none.
func (n spiderNetwork) object(kind, name string) *unstructured.Unstructured {
	n.Helper()
	o := other(spiderpool.WithKind(kind), name, nil).(*unstructured.Unstructured)
	if err := n.client.Get(n.Context(), client.ObjectKeyFromObject(o), o); apierrors.IsNotFound(err) {
		return nil
	} else if err != nil {
		n.Fatal(err)
	}
	return o
}

func (n spiderNetwork) allocated() (all map[string]allocation) {
	n.Helper()
	text := "{}"
	if o := n.object("SpiderIPPool", n.spider); o != nil {
		text, _, _ = unstructured.NestedString(o.Object, "status", "allocatedIPs")
	}
	check.OK(n, json.Unmarshal([]byte(cmp.Or(text, "{}")), &all))
	return all
}

func (n spiderNetwork) allocates(all map[string]allocation) {
	n.Helper()
	o := n.object("SpiderIPPool", n.spider)
	o.Object["status"] = map[string]any{"totalIPCount": int64(8), "allocatedIPCount": int64(len(all)), "allocatedIPs": string(check.Value(json.Marshal(all))(n))}
	check.OK(n, n.client.Status().Update(n.Context(), o))
}

// collect frees the addresses of pods that are gone, unless they are of a StatefulSet, and of a pod's former self.
func (n spiderNetwork) collect() {
	n.Helper()
	all := n.allocated()
	before := len(all)
	for addr, a := range all {
		key, p := client.ObjectKey{Namespace: "default", Name: a.Pod[len("default/"):]}, &corev1.Pod{}
		err := n.client.Get(n.Context(), key, p)
		e := n.object("SpiderEndpoint", key.Name)
		owner := ""
		if e != nil {
			owner, _, _ = unstructured.NestedString(e.Object, "status", "ownerControllerType")
		}
		if apierrors.IsNotFound(err) && owner != "StatefulSet" || err == nil && string(p.UID) != a.UID {
			delete(all, addr)
			n.frees(e)
		}
	}
	if len(all) < before {
		n.allocates(all)
	}
}

// frees ends a SpiderEndpoint, if there is one.
func (n spiderNetwork) frees(e *unstructured.Unstructured) {
	n.Helper()
	if e != nil {
		e.SetFinalizers(nil)
		check.OK(n, n.client.Update(n.Context(), e))
		check.OK(n, n.client.Delete(n.Context(), e))
	}
}

// reserved returns the addresses of the SpiderReservedIP of the move.
func (n spiderNetwork) reserved() []string {
	n.Helper()
	o := n.object("SpiderReservedIP", "fenceline-default.vlan100-v4")
	if o == nil {
		return nil
	}
	ips, _, err := unstructured.NestedStringSlice(o.Object, "spec", "ips")
	check.OK(n, err)
	return ips
}

// gives reports whether Spiderpool gives an address to a pod that names the SpiderIPPool, whatever definitions say.
func (n spiderNetwork) gives(addr string) bool {
	n.Helper()
	_, isAllocated := n.allocated()[addr]
	disabled, _, _ := unstructured.NestedBool(n.object("SpiderIPPool", n.spider).Object, "spec", "disable")
	return !isAllocated && !disabled && !check.Value(poolset.Parse(n.reserved()))(n).Contains(netip.MustParseAddr(addr))
}

// ruleHolds: no address is free in both, before and after a scan of the collector.
func (n spiderNetwork) ruleHolds(when string) {
	n.Helper()
	for range 2 {
		p := n.pool()
		isOpen := p != nil && !ptr.Deref(p.Spec.Disable, false)
		for _, addr := range []string{"10.100.0.5", "10.100.0.7", "10.100.0.8", "10.100.0.9", "10.100.0.11", "10.100.0.12"} {
			err := n.client.Get(n.Context(), client.ObjectKey{Name: addr}, &v1alpha1.IPLease{})
			check.That(n, err == nil || apierrors.IsNotFound(err), "read %s: %v", addr, err)
			_, isAllocated := n.allocated()[addr]
			check.That(n, !isOpen || err == nil || !n.gives(addr) && !isAllocated, "%s: both give %s, or Fenceline gives one that is in use", when, addr)
			check.That(n, err != nil || !n.gives(addr), "%s: %s has a lease, and Spiderpool gives it", when, addr)
		}
		n.collect()
	}
}

func TestANetworkOfSpiderpoolMovesInAndBackAndIn(t *testing.T) {
	n := newSpiderNetwork(t)
	n.says("move-in plan spiderpool default/vlan100", "Addresses in use: 3, of which to adopt: 1, to hold: 2", "the chained Fenceline takes the place of the coordinator")
	_, err := n.run("", "move-in", "plan", "whereabouts", "default/vlan100")
	check.Is(t, err, errBlocked, "a plan from whereabouts:")

	// A SpiderSubnet has made the SpiderIPPool for an application: the plan has the IPSubnet that is to be made by hand.
	all := other(spiderpool.WithKind("SpiderSubnet"), "all", map[string]any{"subnet": "10.100.0.0/24", "ips": []any{"10.100.0.5-10.100.0.12"}})
	n.make(all)
	label := func(labels map[string]string) {
		o := n.object("SpiderIPPool", "vlan100")
		o.SetLabels(labels)
		check.OK(t, n.client.Update(t.Context(), o))
	}
	label(map[string]string{"ipam.spidernet.io/owner-spider-subnet": "all", "ipam.spidernet.io/owner-application-name": "web"})
	out, err := n.run("", "move-in", "plan", "-o", "yaml", "spiderpool", "default/vlan100")
	check.Is(t, err, errBlocked, "a plan of an application's pool:")
	check.That(t, strings.Contains(out, "kind: IPSubnet") && strings.Contains(out, "name: all"), "the plan prints no IPSubnet:\n%s", out)
	label(nil)
	check.OK(t, n.client.Delete(t.Context(), all))

	// A person without rights hears of them before the first write.
	reader := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "reader"}, Rules: []rbacv1.PolicyRule{{APIGroups: []string{"*"}, Resources: []string{"*"}, Verbs: []string{"get", "list"}}}}
	n.make(reader, &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "reader"},
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "reader"}, Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: "ann"}}})
	n.reads("ann")
	_, err = n.run("", "--as", "ann", "move-in", "start", "spiderpool", "default/vlan100")
	check.Says(t, err, "you have no right to create moves.fenceline.io in all namespaces", "you have no right to delete spiderreservedips.spiderpool.spidernet.io in all namespaces")
	check.That(t, n.theMove() == nil, "move %v", n.theMove())

	// A SpiderMultusConfig owns the definition. The start waits for its change before the freeze.
	d := other(definitions, "vlan100", map[string]any{}).(*unstructured.Unstructured)
	own := func(refs ...metav1.OwnerReference) {
		check.OK(t, n.client.Get(t.Context(), client.ObjectKeyFromObject(d), d))
		d.SetOwnerReferences(refs)
		check.OK(t, n.client.Update(t.Context(), d))
	}
	own(metav1.OwnerReference{APIVersion: spiderpool.String(), Kind: "SpiderMultusConfig", Name: "vlan100", UID: "u", Controller: ptr.To(true)})
	ended := make(chan string)
	go func() {
		out, err := n.run("", "move-in", "start", "--settle=50ms", "spiderpool", "default/vlan100")
		ended <- fmt.Sprint(out, err)
	}()
	check.Becomes(t, limit, "the pool is made", func() bool { return n.pool() != nil })
	var status struct{ Changes []movein.Change }
	check.OK(t, json.Unmarshal([]byte(check.Value(n.run("", "move-in", "status", "-o", "json", "spiderpool", "default/vlan100"))(t)), &status))
	check.That(t, n.config() == spiderText && n.reserved() == nil, "definition %s, reserved %v", n.config(), n.reserved())
	n.define(d, string(check.Value(json.Marshal(json.RawMessage(status.Changes[0].Switched)))(t))) // in one line, as its controller does
	check.Says(t, <-ended, "SpiderMultusConfig vlan100 owns definition default/vlan100 and would undo an edit", "step Open", "<nil>")
	own()

	n.says("move-in start --settle=50ms spiderpool default/vlan100", "step Open", "Adopted: 1, held: 2", "switched to Fenceline", "pod default/gone of its record does not exist",
		"Not done: 2 addresses are held", "SpiderIPPool vlan100 would give its addresses again")
	check.List(t, n.reserved(), []string{"10.100.0.5-10.100.0.12"}, "reserved")
	n.ruleHolds("after the start")

	// Somebody removes the freeze. A start makes it anew.
	check.OK(t, n.client.Delete(t.Context(), n.object("SpiderReservedIP", "fenceline-default.vlan100-v4")))
	n.says("move-in status spiderpool default/vlan100", "no SpiderReservedIP of the move has 10.100.0.5-10.100.0.12", "repeat `kubectl fenceline move-in start`")
	n.says("move-in start --settle=50ms spiderpool default/vlan100", "step Open")
	n.ruleHolds("after the second start")

	// A pod of Fenceline keeps its address until its end.
	p := pod("ours-0", "n1")
	n.make(p)
	ours := lease("10.100.0.8", p, func(s *v1alpha1.IPLeaseSpec) { s.Pool = "vlan100" })
	n.make(ours)
	n.says("move-in back --settle=50ms spiderpool default/vlan100", "10.100.0.8 on node n1: Bound", "default/ours-0", "spiderpool excludes them")
	check.Equal(t, n.config(), spiderText, "the definition")
	check.List(t, n.reserved(), []string{"10.100.0.8"}, "reserved")
	n.ruleHolds("half-way back")
	check.OK(t, n.client.Delete(t.Context(), ours))
	n.says("move-in back --settle=50ms spiderpool default/vlan100", "is as before the move")
	n.asBefore()

	// In for good: the hold is proven free. After the end nothing keeps Spiderpool from its pools, so they are disabled.
	n.says("move-in start --settle=50ms spiderpool default/vlan100", "step Open", "Adopted: 1, held: 1")
	check.OK(t, n.client.Delete(t.Context(), &v1alpha1.IPLease{ObjectMeta: metav1.ObjectMeta{Name: "10.100.0.11"}}))
	check.Becomes(t, limit, "nothing is held", func() bool { return n.theMove().Status.Held == 0 })
	_, err = n.run("", "move-in", "finish", "spiderpool", "default/vlan100")
	check.Says(t, err, "SpiderIPPool vlan100 would give its addresses again to pods that name it: set disable in it, or delete it")
	n.disable(true)
	n.says("move-in finish spiderpool default/vlan100", "is finished")
	check.That(t, n.theMove() == nil && n.pool() != nil && n.reserved() == nil, "move %v and reserved %v are left", n.theMove(), n.reserved())
}

func (n spiderNetwork) asBefore() {
	n.Helper()
	check.Equal(n, n.config(), spiderText, "the definition")
	check.That(n, n.reserved() == nil && n.pool() == nil && n.theMove() == nil, "reserved %v, pool %v and move %v are left", n.reserved(), n.pool(), n.theMove())
}

// The command dies after each of its writes, and the collector of Spiderpool runs between them.
func TestTheCommandOfAMoveFromSpiderpoolDiesAnywhere(t *testing.T) {
	t.Parallel()
	n := newSpiderNetwork(t)
	n.through()
	n.diesAnywhere("spiderpool", n.ruleHolds, func() {
		n.asBefore()
		all := n.allocated() // of a pod that ends in the next move
		all["10.100.0.9"] = allocation{"default/gone", "u1"}
		n.allocates(all)
	})
}

// begins makes everything as it is after the start of a move whose pods are all adopted, with a pod of Fenceline.
func (n spiderNetwork) begins() {
	n.Helper()
	check.OK(n, n.client.DeleteAllOf(n.Context(), &v1alpha1.Move{}))
	check.OK(n, n.client.DeleteAllOf(n.Context(), &v1alpha1.IPPool{}))
	check.OK(n, n.client.DeleteAllOf(n.Context(), &v1alpha1.IPLease{}))
	for kind, name := range map[string]string{"SpiderEndpoint": "scaled-0", "SpiderReservedIP": "fenceline-default.vlan100-v4"} {
		if o := n.object(kind, name); o != nil {
			check.OK(n, n.client.Delete(n.Context(), o))
		}
	}
	n.disable(false)
	n.allocates(map[string]allocation{"10.100.0.7": {"default/moves-0", n.uid("moves-0")}})
	n.define(other(definitions, "vlan100", nil).(*unstructured.Unstructured), spiderText)
	n.says("move-in start --settle=50ms spiderpool default/vlan100", "step Open", "Adopted: 1, held: 0")
	p := pod("ours-0", "n1")
	check.OK(n, client.IgnoreAlreadyExists(n.client.Create(n.Context(), p)))
	check.OK(n, n.client.Get(n.Context(), client.ObjectKeyFromObject(p), p))
	n.make(lease("10.100.0.8", p, func(s *v1alpha1.IPLeaseSpec) { s.Pool = "vlan100" }))
}

// disable writes spec.disable of the SpiderIPPool.
func (n spiderNetwork) disable(is bool) {
	n.Helper()
	o := n.object("SpiderIPPool", n.spider)
	check.OK(n, unstructured.SetNestedField(o.Object, is, "spec", "disable"))
	check.OK(n, n.client.Update(n.Context(), o))
}

// dies has the command die after each of its writes. Each try begins anew, and then holds.
func (n spiderNetwork) dies(verb string, begins func(), holds func(when string)) (deaths int64) {
	n.Helper()
	run := func() error {
		_, err := n.run("", "move-in", verb, "--settle=50ms", "spiderpool", "default/vlan100")
		return err
	}
	for deaths = 1; ; deaths++ {
		begins()
		n.door.left.Store(deaths)
		err := run()
		isWhole := n.door.left.Load() > 0
		n.door.opens()
		holds(fmt.Sprintf("%s died after write %d", verb, deaths))
		check.That(n, (err == nil) == isWhole, "write %d of %s: %v", deaths, verb, err)
		if isWhole {
			return deaths - 1
		}
		if n.theMove() != nil {
			check.OK(n, run())
		}
		holds(verb + " was repeated")
	}
}

func TestFinishOfAMoveFromSpiderpoolDiesAnywhere(t *testing.T) {
	t.Parallel()
	n := newSpiderNetwork(t)
	n.through()
	writes := n.dies("finish", func() { n.begins(); n.disable(true) }, func(when string) {
		n.ruleHolds(when)
		p := n.pool()
		check.That(t, p != nil && !ptr.Deref(p.Spec.Disable, false), "%s: the pool is %v", when, p)
		check.That(t, n.theMove() != nil || n.reserved() == nil, "%s: the move is gone, and %v is reserved", when, n.reserved())
	})
	check.Equal(t, writes, 2, "writes of finish")
}

// Somebody removes the freeze, or a finish died in the middle, and the network goes back.
func TestANetworkGoesBackToSpiderpoolWhoseFreezeWasRemoved(t *testing.T) {
	n := newSpiderNetwork(t)
	n.through()
	writes := n.dies("back", func() {
		n.begins()
		check.OK(t, n.client.Delete(t.Context(), n.object("SpiderReservedIP", "fenceline-default.vlan100-v4")))
	}, func(when string) {
		check.That(t, n.config() != spiderText || !n.gives("10.100.0.8"), "%s: Spiderpool gives the address of a pod of Fenceline", when)
	})
	check.That(t, writes >= 5, "back writes only %d times", writes)
}
