// SPDX-License-Identifier: Apache-2.0

package fault

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/controller/podview"
	"github.com/fenceline/fenceline/internal/diagnosis"
	"github.com/fenceline/fenceline/test/check"
)

func program(name, node string, ready corev1.ConditionStatus) podview.Pod {
	p := podview.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}}
	p.Spec.NodeName = node
	p.Status = &podview.Status{Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: ready}}}
	return p
}

func report(node, mac string, now time.Time) Report {
	return Report{diagnosis.Report{
		Node: node, Version: "1", Time: now, Kernel: "6.6.1", TCX: true,
		Parents:       []diagnosis.Parent{{Name: "eth1", MAC: mac, Carrier: true, Observed: true}, {Name: "eth1.7", MAC: mac, Carrier: true, Observed: true}},
		Configuration: "10-fenceline.conflist", OwnConfiguration: "10-fenceline.conflist",
		Answers: []diagnosis.Answer{
			{Question: diagnosis.Question{Address: netip.MustParseAddr("10.0.0.1"), Parent: "eth1"}, MAC: "02:00:00:00:00:01"},
			{Question: diagnosis.Question{Address: netip.MustParseAddr("10.0.0.7"), Parent: "eth1"}, MAC: "02:00:00:00:00:07"},
		},
	}, now}
}

// healthy is a cluster without a fault.
func healthy() *Cluster {
	now := time.Now()
	node := func(name, address string) corev1.Node {
		n := corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.NodeSpec{PodCIDRs: []string{"10.244.0.0/24"}}}
		n.Status.NodeInfo.KernelVersion = "5.10.0-30-amd64"
		n.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: address}}
		return n
	}
	pool := v1alpha1.IPPool{ObjectMeta: metav1.ObjectMeta{Name: "floor"}, Spec: v1alpha1.IPPoolSpec{Subnet: "10.0.0.0/24", Gateway: ptr.To("10.0.0.1")}}
	pool.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionReady, Status: metav1.ConditionTrue}, {Type: v1alpha1.ConditionExhausted, Status: metav1.ConditionFalse}}
	held := v1alpha1.IPLease{ObjectMeta: metav1.ObjectMeta{Name: "10.0.0.7"}, Spec: v1alpha1.IPLeaseSpec{
		Address: "10.0.0.7", Pool: "floor", State: v1alpha1.StateBound, NodeName: "n2", Parent: "eth1", Holder: &v1alpha1.Holder{Namespace: "shop", Pod: "web-0"},
	}}
	proved := v1alpha1.IPLease{ObjectMeta: metav1.ObjectMeta{Name: "10.0.0.8"}, Spec: v1alpha1.IPLeaseSpec{
		Address: "10.0.0.8", Pool: "floor", State: v1alpha1.StateQuarantined, Reason: v1alpha1.ReasonPodGone, Since: metav1.NewTime(now.Add(-time.Second)),
	}}
	return &Cluster{
		Now: now, Server: "v1.32.0", Nodes: []corev1.Node{node("n1", "192.168.0.1"), node("n2", "192.168.0.2")},
		Controllers: []podview.Pod{program("controller-1", "n1", corev1.ConditionTrue), program("controller-2", "n2", corev1.ConditionFalse)},
		Agents:      []podview.Pod{program("agent-1", "n1", corev1.ConditionTrue), program("agent-2", "n2", corev1.ConditionTrue)},
		Pools:       []v1alpha1.IPPool{pool}, Leases: []v1alpha1.IPLease{held, proved}, Services: []netip.Prefix{netip.MustParsePrefix("10.96.0.0/12")},
		MapsPorts: true, Reports: []Report{report("n1", "02:00:00:00:01:01", now), report("n2", "02:00:00:00:01:02", now)},
	}
}

func TestANewClusterIsNotDeaf(t *testing.T) {
	e := healthy()
	e.Leases, e.Reports[0].Parents[0].Deaf = nil, true
	if found := e.Faults(); len(found) != 0 {
		t.Errorf("found %+v", found)
	}
}

func TestAReaderWithoutRightsGetsNoFalseAlarm(t *testing.T) {
	e := &Cluster{Now: time.Now(), LacksPools: true, LacksPrograms: true, MapsPorts: true}
	check.None(t, e.Faults(), "found:")
}

func TestDoctorFindsEachFaultAndNoOther(t *testing.T) {
	if found := healthy().Faults(); len(found) != 0 {
		t.Errorf("a healthy cluster has faults: %+v", found)
	}
	parent := func(change func(*diagnosis.Parent)) func(*Cluster) {
		return func(e *Cluster) { change(&e.Reports[1].Parents[0]) }
	}
	for name, c := range map[string]struct {
		inject func(*Cluster)
		want   string
	}{
		"no controller":         {func(e *Cluster) { e.Controllers = e.Controllers[1:] }, "controller: no pod of it is Ready"},
		"an agent is not Ready": {func(e *Cluster) { e.Agents[1] = program("agent-2", "n2", corev1.ConditionFalse) }, "node n2: its agent agent-2 is not Ready"},
		"a node has no agent":   {func(e *Cluster) { e.Agents = e.Agents[:1] }, "node n2: it has no agent"},
		"an old API server":     {func(e *Cluster) { e.Server = "v1.31.4" }, "API server: its version is v1.31.4"},
		"an old kernel":         {func(e *Cluster) { e.Nodes[0].Status.NodeInfo.KernelVersion = "4.18.0-553.el8" }, "node n1: its kernel is 4.18.0-553.el8"},
		"two builds":            {func(e *Cluster) { e.Reports[1].Version = "2" }, "agents: they are of several builds: 1 on n1; 2 on n2"},
		"no claim key":          {func(e *Cluster) { e.Reports[0].NotReady = "there is no claim key yet" }, "node n1: it serves no ADD: there is no claim key yet"},
		"an agent is silent":    {func(e *Cluster) { e.Silent = []Fault{{"node n2", "its agent does not answer: x", "look"}} }, "node n2: its agent does not answer"},
		"no carrier":            {parent(func(p *diagnosis.Parent) { p.Carrier = false }), "parent eth1 of node n2: it has no carrier"},
		"no observer":           {parent(func(p *diagnosis.Parent) { p.Observed = false }), "parent eth1 of node n2: the agent does not hear its frames"},
		"deaf":                  {func(e *Cluster) { e.Reports[0].Parents[0].Deaf = true }, "parent eth1 of node n1: it hears no other agent"},
		"an XDP program":        {parent(func(p *diagnosis.Parent) { p.Hazards = []string{"the XDP program 7 sees frames first; remove it"} }), "parent eth1 of node n2: the XDP program 7 sees frames first"},
		"mute":                  {parent(func(p *diagnosis.Parent) { p.Mute = true }), "parent eth1 of node n2: no other host answers there"},
		"a MAC on two nodes":    {parent(func(p *diagnosis.Parent) { p.MAC = "02:00:00:00:01:01" }), "parents eth1 of node n1, eth1 of node n2: they have one MAC"},
		"a MAC of two pools' pods": {func(e *Cluster) {
			red, other := *e.Pools[0].DeepCopy(), *e.Leases[0].DeepCopy()
			red.Name, e.Leases[0].Spec.Holder.MAC = "red", "02:00:00:00:00:aa"
			other.Spec.Address, other.Spec.Pool, other.Spec.NodeName = "10.0.0.9", "red", "n1"
			other.Spec.Holder = &v1alpha1.Holder{Namespace: "shop", Pod: "db", MAC: "02:00:00:00:00:aa"}
			e.Pools, e.Leases = append(e.Pools, red), append(e.Leases, other)
		}, "pod shop/db on node n1: it has the MAC 02:00:00:00:00:aa of pod shop/web-0 on node n2"},
		"pods of another parent": {func(e *Cluster) {
			e.Reports[1].Misplaced = []diagnosis.Misplaced{{Parent: "eth1", Pods: []string{"shop/web-0"}, Why: "pool floor names the parents [eth0]", Do: "name it"}}
		}, "parent eth1 of node n2: shop/web-0 run there, but pool floor names the parents [eth0]"},
		"a name that no node has": {func(e *Cluster) {
			e.Reports[0].Named = []diagnosis.Named{{Of: "pool floor", Name: "eth9"}, {Of: "pool floor", Name: "eth1"}}
			e.Reports[1].Named = []diagnosis.Named{{Of: "pool floor", Name: "eth9"}, {Of: "pool floor", Name: "eth1", Exists: true}}
		}, "pool floor: no node has the interface eth9, which it names"},
		"another configuration": {func(e *Cluster) { e.Reports[0].Configuration = "05-other.conflist" }, "node n1: 05-other.conflist comes before 10-fenceline.conflist"},
		"no forwarding":         {func(e *Cluster) { e.Reports[0].ForwardingOff = []string{"ipv4", "ipv6"} }, "node n1: it does not forward ipv4"},
		"a wrong clock":         {func(e *Cluster) { e.Reports[0].Time = e.Now.Add(-time.Hour) }, "node n1: its clock differs from this machine's by 1h0m0s"},
		"a gateway is silent":   {func(e *Cluster) { e.Reports[0].Answers[0].MAC = "" }, "parent eth1 of node n1: the gateway 10.0.0.1 of pool floor does not answer"},
		"a pod is not reached":  {func(e *Cluster) { e.Reports[0].Answers[1].MAC = "" }, "parent eth1 of node n1: 10.0.0.7, pod shop/web-0 of node n2, does not answer"},
		"a question fails": {func(e *Cluster) {
			e.Reports[0].Answers[1] = diagnosis.Answer{Question: e.Reports[0].Answers[1].Question, Error: "no parent eth1"}
		}, "parent eth1 of node n1: no parent eth1"},
		"there is no pool": {func(e *Cluster) { e.Pools, e.Leases = nil, nil }, "cluster: it has no pool"},
		"a foreign host uses the address of a pod": {func(e *Cluster) {
			e.Leases[0].Spec.Conflict = &v1alpha1.Conflict{MAC: "00:11:22:33:44:55"}
		}, "address 10.0.0.7: MAC 00:11:22:33:44:55 uses it too, beside its holder"},
		"a pool is exhausted":    {func(e *Cluster) { e.Pools[0].Status.Conditions[1].Status = metav1.ConditionTrue }, "pool floor: Exhausted is True"},
		"a pool has a node":      {func(e *Cluster) { e.Nodes[0].Status.Addresses[0].Address = "10.0.0.99" }, "pool floor: it hands out addresses of 10.0.0.99/32, the address of node n1"},
		"a pool has Services":    {func(e *Cluster) { e.Services = []netip.Prefix{netip.MustParsePrefix("10.0.0.128/25")} }, "pool floor: it hands out addresses of 10.0.0.128/25, the range of Services"},
		"a pool has a pod range": {func(e *Cluster) { e.Nodes[1].Spec.PodCIDRs = []string{"10.0.0.0/16"} }, "pool floor: it hands out addresses of 10.0.0.0/16, the pod range of node n2"},
		"a lease waits":          {func(e *Cluster) { e.Leases[1].Spec.Since = metav1.NewTime(e.Now.Add(-time.Hour)) }, "address 10.0.0.8: it is Quarantined (PodGone) for 60m"},
		"an annotation": {func(e *Cluster) {
			e.SawPod(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web-0", Annotations: map[string]string{"ipam.fenceline.io/ipool": "x"}}})
		}, "annotation: annotation ipam.fenceline.io/ipool of pod shop/web-0 does not exist, the nearest one is ipam.fenceline.io/ippool"},
		"a hostPort with no ears": {func(e *Cluster) { e.MapsPorts, e.hostPorts = false, []string{"shop/web-0"} }, "pod shop/web-0: it has a hostPort"},
	} {
		t.Run(name, func(t *testing.T) {
			e := healthy()
			c.inject(e)
			found := e.Faults()
			if len(found) != 1 || !strings.HasPrefix(found[0].Object+": "+found[0].What, c.want) || found[0].Do == "" {
				t.Errorf("found %+v, want %q", found, c.want)
			}
		})
	}
}
