// SPDX-License-Identifier: Apache-2.0

//go:build api

package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/test/check"
	"github.com/fenceline/fenceline/test/thirdparty"
)

const slicedText = `{"name":"vlan100", "type":"macvlan", "master":"eth1", "ipam":{"type":"whereabouts","range":"10.100.0.0/24", "node_slice_size":"/28"} }`

// slicedNetwork is a network of whereabouts which two nodes share. The second one has had no pod yet.
type slicedNetwork struct {
	*network
	// access is the kubeconfig of whereabouts, whose namespace is that of its records.
	access string
}

func newSlicedNetwork(t *testing.T) slicedNetwork {
	divided := other(nodeSlices, "vlan100", map[string]any{"range": "10.100.0.0/24", "sliceSize": "/28"}).(*unstructured.Unstructured)
	check.OK(t, unstructured.SetNestedSlice(divided.Object, []any{
		map[string]any{"nodeName": "n1", "sliceRange": "10.100.0.0/28"}, map[string]any{"nodeName": "n2", "sliceRange": "10.100.0.16/28"},
		map[string]any{"nodeName": "", "sliceRange": "10.100.0.32/28"},
	}, "status", "allocations"))
	n := slicedNetwork{access: filepath.Join(t.TempDir(), "kubeconfig"), network: newNetworkOf(t, slicedText, divided, other(whereaboutsRecords, "n1-10.100.0.0-28", map[string]any{
		"range": "10.100.0.0/28", "allocations": map[string]any{
			"7": map[string]any{"id": "c1", "podref": "default/moves-0", "ifname": "net1"}, "9": map[string]any{"id": "static", "podref": ""}, // a person keeps it
		},
	}))}
	config := check.Value(clientcmd.LoadFromFile(n.kubeconfig))(t)
	for _, c := range config.Contexts {
		c.Namespace = "default"
	}
	check.OK(t, clientcmd.WriteToFile(*config, n.access))
	return n
}

// allocated returns the pods, or the IDs, of the allocations of a node.
func (n slicedNetwork) allocated(name string) map[string]string {
	n.Helper()
	o := &unstructured.Unstructured{}
	o.SetGroupVersionKind(whereaboutsRecords)
	err := n.client.Get(n.Context(), client.ObjectKey{Namespace: "default", Name: name}, o)
	check.OK(n, client.IgnoreNotFound(err))
	found := map[string]string{}
	all, _, _ := unstructured.NestedMap(o.Object, "spec", "allocations")
	for offset, each := range all {
		one := each.(map[string]any)
		if found[offset], _ = one["podref"].(string); found[offset] == "" {
			found[offset] = fmt.Sprint(one["id"])
		}
	}
	return found
}

// gives reports whether whereabouts gives an address by a definition. Of slices it gives each free one, also if it is
// excluded.
func (n slicedNetwork) gives(config, addr string) bool {
	n.Helper()
	var c struct {
		IPAM struct {
			Type    string
			Exclude []string
			Size    string `json:"node_slice_size"`
		}
	}
	check.OK(n, json.Unmarshal([]byte(config), &c))
	if c.IPAM.Size == "" {
		return c.IPAM.Type == "whereabouts" && len(c.IPAM.Exclude) == 0
	}
	var last int
	_, err := fmt.Sscanf(addr, "10.100.0.%d", &last)
	check.OK(n, err)
	name := fmt.Sprintf("n%d-10.100.0.%d-28", last/16+1, last/16*16)
	return n.allocated(name)[fmt.Sprint(last%16)] == ""
}

// calls calls the real whereabouts for a pod on a node, by the old text, which others may write into the definition again.
// An ADD returns the address.
func (n slicedNetwork) calls(command, node, pod string) (addr string, err error) {
	n.Helper()
	dir := check.Value(check.Value(thirdparty.NewBuilder(n.Output()))(n).Dir(n.Context(), thirdparty.Whereabouts))(n)
	var c map[string]any
	check.OK(n, json.Unmarshal([]byte(slicedText), &c))
	ipam := c["ipam"].(map[string]any)
	ipam["kubernetes"], ipam["configuration_path"] = map[string]string{"kubeconfig": n.access}, n.access+".empty"
	check.OK(n, os.WriteFile(n.access+".empty", []byte("{}"), 0o600))
	c["cniVersion"] = "1.0.0"
	cmd := exec.CommandContext(n.Context(), filepath.Join(dir, "whereabouts"))
	cmd.Stdin = bytes.NewReader(check.Value(json.Marshal(c))(n))
	cmd.Env = []string{"NODENAME=" + node, "CNI_COMMAND=" + command, "CNI_CONTAINERID=" + pod, "CNI_NETNS=/none", "CNI_IFNAME=net1", "CNI_PATH=" + dir,
		"CNI_ARGS=IgnoreUnknown=1;K8S_POD_NAMESPACE=default;K8S_POD_NAME=" + pod}
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%w: %s", err, out)
	}
	if command == "DEL" {
		return "", nil
	}
	var result struct{ IPs []struct{ Address string } }
	check.OK(n, json.Unmarshal(out, &result))
	check.Must(n, len(result.IPs) == 1, "it gives %s", out)
	return result.IPs[0].Address, nil
}

// ruleHolds: no address is free in both.
func (n slicedNetwork) ruleHolds(when string) {
	n.Helper()
	p, config := n.pool(), n.config()
	isOpen := p != nil && !ptr.Deref(p.Spec.Disable, false)
	for _, addr := range []string{"10.100.0.7", "10.100.0.8", "10.100.0.9", "10.100.0.20"} {
		err := n.client.Get(n.Context(), client.ObjectKey{Name: addr}, &v1alpha1.IPLease{})
		check.That(n, err == nil || apierrors.IsNotFound(err), "read %s: %v", addr, err)
		isRecorded := addr == "10.100.0.7" || addr == "10.100.0.9"
		check.That(n, err == nil || !isOpen || !n.gives(config, addr) && !isRecorded, "%s: both give %s, or Fenceline gives one that is in use", when, addr)
		check.That(n, err != nil || !n.gives(config, addr), "%s: %s has a lease, and whereabouts gives it", when, addr)
		if m := n.theMove(); m != nil && (m.Spec.Step == v1alpha1.MoveAdopt || m.Spec.Step == v1alpha1.MoveOpen) {
			check.That(n, !n.gives(slicedText, addr), "%s: whereabouts would give %s by the old text", when, addr)
		}
	}
}

// asBefore: nothing of the move is left.
func (n slicedNetwork) asBefore() {
	n.Helper()
	check.Equal(n, n.config(), slicedText, "the definition")
	check.Equal(n, fmt.Sprint(n.allocated("n1-10.100.0.0-28"), n.allocated("n2-10.100.0.16-28")), "map[7:default/moves-0 9:static] map[]", "allocations")
}

func TestASlicedNetworkMovesInAndBackAndIn(t *testing.T) {
	n := newSlicedNetwork(t)
	n.says("move-in plan whereabouts default/vlan100", "ips [10.100.0.0-10.100.0.31]", "Addresses in use: 2, of which to adopt: 1, to hold: 1")
	n.says("move-in start --settle=50ms whereabouts default/vlan100", "step Open", "Adopted: 1, held: 1", "switched to Fenceline")
	n.ruleHolds("after the start")
	check.Equal(t, len(n.allocated("n1-10.100.0.0-28"))+len(n.allocated("n2-10.100.0.16-28")), 28, "allocations")

	// An adopted pod ends: whereabouts frees its address, which the definition keeps from others. A start holds it too.
	o := &unstructured.Unstructured{}
	o.SetGroupVersionKind(whereaboutsRecords)
	check.OK(t, n.client.Get(t.Context(), client.ObjectKey{Namespace: "default", Name: "n1-10.100.0.0-28"}, o))
	unstructured.RemoveNestedField(o.Object, "spec", "allocations", "9")
	check.OK(t, n.client.Update(t.Context(), o))
	n.says("move-in status whereabouts default/vlan100", "the records of whereabouts lack 1 allocations of the move, such as that of 10.100.0.9")
	n.says("move-in start --settle=50ms whereabouts default/vlan100", "step Open")
	n.ruleHolds("after the second start")
	for _, node := range []string{"n1", "n2"} {
		addr, err := n.calls("ADD", node, "reverted")
		check.That(t, err != nil, "by the old text, whereabouts gives %s on %s", addr, node)
		check.Says(t, err, "Could not allocate IP in range")
	}

	// A pod of Fenceline has an address of a slice without records, and keeps it until its end.
	p := pod("ours-0", "n1")
	n.make(p)
	ours := lease("10.100.0.20", p, func(s *v1alpha1.IPLeaseSpec) { s.Pool = "vlan100" })
	n.make(ours)
	n.says("move-in back --settle=50ms whereabouts default/vlan100", "10.100.0.20 on node n1: Bound", "stay frozen", "Restart these pods")
	n.ruleHolds("half-way back")
	check.That(t, !strings.Contains(n.config(), "node_slice_size") && strings.Contains(n.config(), `"10.100.0.0/24"`), "half-way back the definition is %s", n.config())
	n.says("move-in status whereabouts default/vlan100", "frozen", "Restart the pods of 10.100.0.20, and repeat")
	check.Equal(t, fmt.Sprint(n.allocated("n1-10.100.0.0-28"), n.allocated("n2-10.100.0.16-28")), "map[7:default/moves-0] map[4:fenceline-move/default.vlan100]", "allocations")
	check.OK(t, n.client.Delete(t.Context(), ours))
	n.says("move-in back --settle=50ms whereabouts default/vlan100", "is as before the move")
	check.Equal(t, n.config(), slicedText, "the definition")
	for i, want := range []string{"17", "18", "19", "20"} {
		check.Equal(t, check.Value(n.calls("ADD", "n2", fmt.Sprintf("old-%d", i)))(t), "10.100.0."+want+"/24", "whereabouts gives")
	}
	for i := range 4 {
		check.Value(n.calls("DEL", "n2", fmt.Sprintf("old-%d", i)))(t)
	}
	check.Equal(t, fmt.Sprint(n.allocated("n1-10.100.0.0-28"), n.allocated("n2-10.100.0.16-28")), "map[7:default/moves-0] map[]", "allocations")

	n.says("move-in start --settle=50ms whereabouts default/vlan100", "step Open", "Adopted: 1, held: 0")
	check.OK(t, n.client.Delete(t.Context(), other(nodeSlices, "vlan100", nil)))
	n.says("move-in finish whereabouts default/vlan100", "is finished")
	check.That(t, n.theMove() == nil && strings.Contains(n.config(), "default_ipv4_ippool"), "the definition is %s", n.config())
	check.Equal(t, fmt.Sprint(n.allocated("n1-10.100.0.0-28"), n.allocated("n2-10.100.0.16-28")), "map[7:default/moves-0] map[]", "allocations")
}

func TestOnlyASlicedNetworkNeedsTheRightToListNodeSlicePools(t *testing.T) {
	n := newSlicedNetwork(t)
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "reader"}, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{"", v1alpha1.GroupName, definitions.Group}, Resources: []string{"*"}, Verbs: []string{"get", "list"}},
		{APIGroups: []string{whereaboutsRecords.Group}, Resources: []string{"ippools"}, Verbs: []string{"list"}},
	}}
	n.make(role, &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "reader"},
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "reader"}, Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: "ann"}}})
	n.reads("ann")
	_, err := n.run("", "--as", "ann", "move-in", "plan", "whereabouts", "default/vlan100")
	check.Says(t, err, "list NodeSlicePool of whereabouts.cni.cncf.io")
	n.define(other(definitions, "vlan100", map[string]any{}).(*unstructured.Unstructured), strings.Replace(slicedText, `, "node_slice_size":"/28"`, "", 1))
	n.says("--as ann move-in plan whereabouts default/vlan100", "Pools: 1")
}

// The records of a node that has gone stay. Those of a pod that started on a reverted definition are told.
func TestTheControllerTellsNewRecordsOfASlice(t *testing.T) {
	n := newSlicedNetwork(t)
	n.make(other(whereaboutsRecords, "gone-10.100.0.0-28", map[string]any{
		"range": "10.100.0.0/28", "allocations": map[string]any{"5": map[string]any{"id": "c0", "podref": "default/moves-0"}},
	}))
	n.says("move-in start --settle=50ms whereabouts default/vlan100", "step Open")
	n.make(pod("late-0", "n2"))
	records := other(whereaboutsRecords, "n2-10.100.0.16-28", nil).(*unstructured.Unstructured)
	check.OK(t, n.client.Get(t.Context(), client.ObjectKeyFromObject(records), records))
	check.OK(t, unstructured.SetNestedField(records.Object, map[string]any{"id": "c9", "podref": "default/late-0"}, "spec", "allocations", "5"))
	check.OK(t, n.client.Update(t.Context(), records))
	n.wakes()
	check.Becomes(t, limit, "the controller tells it", func() bool { return len(n.events) > 0 })
	check.Says(t, <-n.events, "MoveReverted NewRecord: since the start, whereabouts has given 10.100.0.21 to pod default/late-0, which have to restart")
}

// Somebody deletes the definition. Its NodeSlicePool goes with it.
func TestTheDefinitionOfASlicedNetworkIsDeletedDuringItsMove(t *testing.T) {
	n := newSlicedNetwork(t)
	n.says("move-in start --settle=50ms whereabouts default/vlan100", "step Open")
	d := other(definitions, "vlan100", map[string]any{}).(*unstructured.Unstructured)
	check.OK(t, n.client.Delete(t.Context(), other(nodeSlices, "vlan100", nil)))
	check.OK(t, n.client.Delete(t.Context(), d))
	_, err := n.run("", "move-in", "back", "--settle=50ms", "whereabouts", "default/vlan100")
	check.Says(t, err, "make it anew with this frozen text, and not with that before the move")
	_, frozen, _ := strings.Cut(err.Error(), "give addresses in use:\n")
	d = other(definitions, "vlan100", map[string]any{"config": frozen}).(*unstructured.Unstructured)
	check.OK(t, n.client.Create(t.Context(), d))

	p := pod("ours-0", "n1")
	n.make(p)
	ours := lease("10.100.0.20", p, func(s *v1alpha1.IPLeaseSpec) { s.Pool = "vlan100" })
	n.make(ours)
	n.says("move-in status whereabouts default/vlan100", "definition default/vlan100: frozen")
	n.says("move-in start --settle=50ms whereabouts default/vlan100", "switched to Fenceline")
	n.ruleHolds("after another start")
	n.says("move-in back --settle=50ms whereabouts default/vlan100", "stay frozen", "10.100.0.20")
	n.ruleHolds("half-way back")
	check.That(t, !strings.Contains(n.config(), "node_slice_size"), "half-way back the definition is %s", n.config())
	check.OK(t, n.client.Delete(t.Context(), ours))
	n.says("move-in back --settle=50ms whereabouts default/vlan100", "is as before the move")
	n.asBefore()
}

func TestTheCommandOfAMoveOfASlicedNetworkDiesAnywhere(t *testing.T) {
	t.Parallel()
	n := newSlicedNetwork(t)
	n.through()
	n.diesAnywhere("whereabouts", n.ruleHolds, n.asBefore)
	// A finish that dies leaves nothing free in both either.
	for deaths := int64(1); ; deaths++ {
		n.says("move-in start --settle=50ms whereabouts default/vlan100", "step Open")
		err := n.client.Delete(t.Context(), &v1alpha1.IPLease{ObjectMeta: metav1.ObjectMeta{Name: "10.100.0.9"}})
		check.OK(t, client.IgnoreNotFound(err))
		check.Becomes(t, limit, "nothing is held", func() bool { return n.theMove().Status.Held == 0 }) // the controller writes this
		n.door.left.Store(deaths)
		_, err = n.run("", "move-in", "finish", "whereabouts", "default/vlan100")
		isWhole := n.door.left.Load() > 0
		n.door.opens()
		check.That(t, (err == nil) == isWhole, "write %d of finish: %v", deaths, err)
		if n.theMove() == nil {
			check.Equal(t, deaths, 3, "writes of finish: one for each slice, and the Move")
			break
		}
		n.says("move-in back --settle=50ms whereabouts default/vlan100", "is as before the move")
		n.asBefore()
	}
}
