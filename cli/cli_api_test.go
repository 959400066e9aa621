// SPDX-License-Identifier: Apache-2.0

//go:build api

package main

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/fenceline/fenceline/agent/ipam"
	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/cli/cluster"
	"github.com/fenceline/fenceline/internal/diagnosis"
	"github.com/fenceline/fenceline/test/check"
	"github.com/fenceline/fenceline/test/controlplane"
	"github.com/fenceline/fenceline/test/owners"
)

// world is a cluster without programs, as a person sees it.
type world struct {
	*testing.T
	client     client.Client
	kubeconfig string
	// hostLocal stands in for the agents.
	hostLocal func(ctx context.Context, c *cluster.Cluster, pod string, r diagnosis.HostLocal) (*diagnosis.HostLocalFiles, error)
}

func newWorld(t *testing.T) (world, *controlplane.Server) {
	server := controlplane.New(t)
	all := scheme.Scheme
	check.OK(t, v1alpha1.AddToScheme(all))
	return world{t, check.Value(client.New(server.Admin(), client.Options{Scheme: all}))(t), server.Kubeconfig(), nil}, server
}

func (w world) make(objects ...client.Object) {
	w.Helper()
	for _, o := range objects {
		status := o.DeepCopyObject().(client.Object)
		check.OK(w, w.client.Create(w.Context(), o))
		switch s := status.(type) {
		case *v1alpha1.IPPool:
			s.ResourceVersion = o.GetResourceVersion()
			check.OK(w, w.client.Status().Update(w.Context(), s))
		case *corev1.Pod:
			s.ResourceVersion = o.GetResourceVersion()
			check.OK(w, w.client.Status().Update(w.Context(), s))
		case *corev1.Node:
			s.ResourceVersion = o.GetResourceVersion()
			check.OK(w, w.client.Status().Update(w.Context(), s))
		}
	}
}

// limit for anything that should come to pass.
const limit = 2 * time.Minute

// reads waits until a person of the kubeconfig may read leases: RBAC takes a moment.
func (w world) reads(as string) {
	w.Helper()
	config := check.Value(clientcmd.BuildConfigFromFlags("", w.kubeconfig))(w)
	config.Impersonate.UserName = as
	reader := check.Value(client.New(config, client.Options{Scheme: w.client.Scheme()}))(w)
	check.Eventually(w, limit, "the rights of the reader", func() error { return reader.List(w.Context(), &v1alpha1.IPLeaseList{}) })
}

// run runs the command, and returns both outputs.
func (w world) run(stdin string, args ...string) (string, error) {
	w.Helper()
	ctx, cancel := context.WithTimeout(w.Context(), limit)
	defer cancel()
	var out bytes.Buffer
	s := &session{IOStreams: genericiooptions.IOStreams{In: strings.NewReader(stdin), Out: &out, ErrOut: &out}, hostLocal: w.hostLocal}
	c := s.command()
	c.SetArgs(append([]string{"--kubeconfig", w.kubeconfig, "--cache-dir", w.TempDir()}, args...))
	err := c.ExecuteContext(ctx)
	return out.String(), err
}

// says runs the command, and looks for parts of its output.
func (w world) says(args string, parts ...string) {
	w.Helper()
	out, err := w.run("", strings.Fields(args)...)
	check.That(w, err == nil, "%s: %v\n%s", args, err, out)
	w.Logf("$ kubectl fenceline %s\n%s", args, out)
	for _, part := range parts {
		check.That(w, strings.Contains(out, part), "%s does not say %q:\n%s", args, part, out)
	}
}

func node(name string, ready corev1.ConditionStatus) *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"zone": name}},
		Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: ready, LastHeartbeatTime: metav1.Now()}}}}
}

func pool(name, subnet string, change func(*v1alpha1.IPPool)) *v1alpha1.IPPool {
	p := &v1alpha1.IPPool{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.IPPoolSpec{Subnet: subnet}}
	p.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionReady, Status: metav1.ConditionTrue, Reason: "Ready", LastTransitionTime: metav1.Now()}}
	change(p)
	return p
}

func pod(name, node string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}, Spec: corev1.PodSpec{
		NodeName: node, Containers: []corev1.Container{{Name: "app", Image: "app:1"}}, AutomountServiceAccountToken: ptr.To(false),
	}}
}

func lease(address string, pod *corev1.Pod, change func(*v1alpha1.IPLeaseSpec)) *v1alpha1.IPLease {
	l := &v1alpha1.IPLease{ObjectMeta: metav1.ObjectMeta{Name: address}, Spec: v1alpha1.IPLeaseSpec{
		Address: address, Pool: "floor", State: v1alpha1.StateBound, NodeName: pod.Spec.NodeName, Parent: "eth1", Since: metav1.Now(),
		Holder: &v1alpha1.Holder{Namespace: pod.Namespace, Pod: pod.Name, PodUID: string(pod.UID), Interface: "eth0", MAC: "02:00:00:00:00:07", Guarded: true},
	}}
	change(&l.Spec)
	return l
}

func asIs[T any](*T) {}

const chosenSet = `apiVersion: apps/v1
kind: StatefulSet
metadata: {name: chosen}
spec:
  replicas: 3
  template:
    metadata:
      annotations: {ipam.fenceline.io/ips: "IPS"}
`

// imports: a table is compared, printed, and written as a whole or not at all.
func (w world) imports() {
	w.Helper()
	const netbox = "address,status\n10.0.0.4/27,active\n10.0.0.26/27,active\n"
	for _, step := range []struct {
		table string
		flags []string
		want  []string
	}{
		{netbox, []string{"--name", "printers"}, []string{"printers: changed +10.0.0.26", "Nothing is written"}},
		{netbox, []string{"--name", "printers", "-o", "yaml"}, []string{"kind: List", "name: printers", "- 10.0.0.26"}},
		{"reservation,ips,network,namespace\nprinters,10.0.0.4,,\nok,10.0.0.27,,\nbad name,10.0.0.28,,\n", []string{"--apply"}, []string{"nothing is written", `ReservedIP bad name`}},
		{netbox, []string{"--name", "printers"}, []string{"printers: changed +10.0.0.26", "Nothing is written"}},
		{netbox, []string{"--name", "printers", "--apply"}, []string{"printers: changed +10.0.0.26"}},
		{netbox, []string{"--name", "printers"}, []string{"1 of 1 reservations are the same"}},
		{"address\n10.0.0.4\n", []string{"--name", "printers", "--apply"}, []string{"printers: changed -10.0.0.26"}},
	} {
		out, err := w.run(step.table, append([]string{"import", "-"}, step.flags...)...)
		check.Says(w, fmt.Sprint(out, err), step.want...)
	}
	var all v1alpha1.ReservedIPList
	check.OK(w, w.client.List(w.Context(), &all))
	check.That(w, len(all.Items) == 2, "%d reservations, not printers and vip: a refused table is written in part", len(all.Items))
}

func TestCommands(t *testing.T) {
	w, server := newWorld(t)
	web, old := pod("web-0", "n1"), pod("old-0", "gone")
	w.make(
		node("n1", corev1.ConditionTrue), node("n2", corev1.ConditionUnknown),
		pool("floor", "10.0.0.0/27", func(p *v1alpha1.IPPool) {
			p.Spec.Gateway, p.Spec.ExcludeIPs, p.Spec.Default = ptr.To("10.0.0.1"), []string{"10.0.0.20-10.0.0.30"}, ptr.To(true)
			p.Status.Total, p.Status.Bound, p.Status.Retained, p.Status.Quarantined, p.Status.Free = 18, 1, 1, 1, 15
			p.Status.ObservedGeneration = 1
		}),
		pool("other", "10.1.0.0/24", func(p *v1alpha1.IPPool) {
			p.Spec.NodeAffinity = &metav1.LabelSelector{MatchLabels: map[string]string{"zone": "n2"}}
			p.Spec.Default = ptr.To(true)
		}),
		&v1alpha1.ReservedIP{ObjectMeta: metav1.ObjectMeta{Name: "printers"}, Spec: v1alpha1.ReservedIPSpec{IPs: []string{"10.0.0.4"}}},
		web, old,
	)
	w.make(
		lease("10.0.0.2", web, asIs),
		lease("10.0.0.3", old, func(s *v1alpha1.IPLeaseSpec) {
			s.State, s.Holder.OwnerKind, s.Holder.OwnerName = v1alpha1.StateRetained, "StatefulSet", "old"
			s.Retention = &v1alpha1.LeaseRetention{Policy: v1alpha1.RetainForever}
		}),
		lease("10.0.0.9", web, func(s *v1alpha1.IPLeaseSpec) {
			s.Conflict = &v1alpha1.Conflict{MAC: "00:11:22:33:44:66", Source: "observer", Count: 1, FirstSeen: metav1.Now(), LastSeen: metav1.Now()}
		}),
		lease("10.0.0.5", web, func(s *v1alpha1.IPLeaseSpec) {
			s.State, s.Reason, s.Holder = v1alpha1.StateQuarantined, v1alpha1.ReasonConflict, nil
			s.Conflict = &v1alpha1.Conflict{MAC: "00:11:22:33:44:55", Source: "probe", Count: 3, FirstSeen: metav1.Now(), LastSeen: metav1.Now()}
		}),
	)

	w.says("status", "address 10.0.0.9", "MAC 00:11:22:33:44:66 uses it too, beside its holder pod default/web-0")
	w.says("status", "floor", "10.0.0.0/27", "█", "2 Bound", "1 Conflict", "1 Retained", "MAC 00:11:22:33:44:55 uses it")
	w.says("map floor", " GBR#!..", "B Bound 2", "! Conflict 1", "# Reserved 1", "Free 13")
	w.says("map floor -o json", `"state": "Conflict"`, `"pod": "web-0"`)
	w.says("explain 10.0.0.2", "10.0.0.2 is Bound to pod default/web-0, interface eth0 on node n1", "The controller leaves the lease as it is: the pod is alive.")
	w.says("explain 10.0.0.3", "10.0.0.3 is Retained for pod default/old-0", "The pod belongs to StatefulSet old.")
	w.says("explain 10.0.0.5", "is Quarantined", "(Conflict)", "MAC 00:11:22:33:44:55 was heard by the probe, 3 times", "The controller ")
	w.says("explain 10.0.0.6", "10.0.0.6 has no lease", "Pool floor may hand it out")
	w.says("explain 10.0.0.4", "ReservedIP printers keeps it back")
	w.says("explain 10.0.0.1", "It is the gateway of pool floor")
	w.says("explain 10.0.0.25", "the pool does not hand it out")
	w.says("explain 192.0.2.1", "No pool of this network has it")
	vip := &v1alpha1.ReservedIP{ObjectMeta: metav1.ObjectMeta{Name: "vip"}, Spec: v1alpha1.ReservedIPSpec{
		IPs: []string{"10.0.0.26"}, Virtual: &v1alpha1.ReservedVirtual{Namespace: "default", MatchLabels: map[string]string{"app": "ha"}},
	}}
	w.make(vip)
	w.says("explain 10.0.0.26", "ReservedIP vip makes it a virtual address of the pods with app=ha in namespace default", "None of them has announced it")
	w.says("map floor -o json", `"address": "10.0.0.26"`, `"reason": "Virtual"`)
	vip.Status.Speakers = []v1alpha1.Speaker{{Address: "10.0.0.26", Pod: "web-0", Node: "n1", MAC: "02:00:00:00:00:07", Since: metav1.NowMicro()}}
	check.OK(t, w.client.Status().Update(t.Context(), vip))
	w.says("explain 10.0.0.26", "Pod default/web-0 on node n1 speaks for it, with MAC 02:00:00:00:00:07, since")
	w.says("map floor -o json", `"mac": "02:00:00:00:00:07"`, `"reason": "Virtual"`)
	w.says("why web-0", "has 10.0.0.2 (Bound)", "Interface eth0 on n1", "floor", "yes", "15 of 18 addresses are free", "other", "no")
	w.says("export", "address,network,state", "10.0.0.2,,Bound,,floor,default,web-0,eth0,02:00:00:00:00:07,,n1,eth1,")
	w.says("export -o json", `"pool": "floor"`)
	w.says("export reservations", "reservation,ips,network,", "printers,10.0.0.4,,,,,")
	w.imports()
	w.says("version", "Client:", "API server:")

	out, err := w.run(deployment, "why", "-f", "-", "--node", "n2")
	check.That(t, err == nil && strings.Contains(out, `there is no pool "nowhere"`), "%v\n%s", err, out)
	out, err = w.run(deployment+"---"+strings.ReplaceAll(deployment, "shop", "stock"), "why", "-f", "-", "--node", "n2")
	check.That(t, err == nil && strings.Contains(out, "Pod default/shop-0") && strings.Contains(out, "Pod default/stock-0"), "%v\n%s", err, out)
	// A StatefulSet whose list is too short for its last pod, one with a reserved address, and one that fits.
	for ips, want := range map[string]string{
		"10.0.0.6, 10.0.0.7":            "none for ordinal 2: add addresses, or scale to 2 replicas",
		"10.0.0.6, 10.0.0.7, 10.0.0.4":  "entry 2 of annotation ipam.fenceline.io/ips of pod default/chosen-2: it is reserved",
		"10.0.0.6, 10.0.0.7, 10.0.0.10": "the interface wants 10.0.0.6",
	} {
		set := strings.NewReplacer("IPS", ips).Replace(chosenSet)
		out, err = w.run(set, "why", "-f", "-", "--node", "n1")
		check.That(t, err == nil && strings.Contains(strings.Join(strings.Fields(out), " "), want), "%v\n%s\nwant %s", err, out, want)
	}
	out, err = w.run(`{"apiVersion": "v1", "kind": "List", "items": [{"kind": "Service", "metadata": {"name": "x"}}, {"kind": "Pod", "metadata": {"name": "web-7"}}]}`,
		"why", "-f", "-", "--node", "n1", "-o", "json")
	check.That(t, err == nil && strings.Contains(out, `"pod": "default/web-7"`), "%v\n%s", err, out)

	if out, err := w.run("", "free", "10.0.0.2"); err == nil || !strings.Contains(err.Error(), "10.0.0.2 is Bound, held by pod default/web-0") {
		t.Errorf("%v\n%s", err, out)
	}
	if out, err := w.run("n\n", "free", "10.0.0.3"); err == nil {
		t.Errorf("freed without a yes: %s", out)
	}
	w.says("explain 10.0.0.3", "Retained")
	if out, err := w.run("y\n", "free", "10.0.0.3"); err != nil || !strings.Contains(out, "10.0.0.3 is free") {
		t.Errorf("%v\n%s", err, out)
	}
	w.says("explain 10.0.0.3", "10.0.0.3 has no lease")
	if out, err := w.run("", "free", "--yes", "10.0.0.3"); err == nil || !strings.Contains(err.Error(), "10.0.0.3 has no lease") {
		t.Errorf("%v\n%s", err, out)
	}
	w.says("map floor -o wide", "ADDRESS", "02:00:00:00:00:07")

	// A reader with few rights gets the rest of the answer, and hears what it lacks.
	ctx := t.Context()
	check.OK(t, w.client.Create(ctx, &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "few"}, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{"fenceline.io"}, Resources: []string{"*"}, Verbs: []string{"get", "list"}},
	}}))
	check.OK(t, w.client.Create(ctx, &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "few"},
		RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "few"},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: "default", Name: "reader"}},
	}))
	check.OK(t, w.client.Create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "reader"}}))
	reader := check.Value(server.ServiceAccount(ctx, "default", "reader", nil))(t)
	admin := w.kubeconfig
	w.kubeconfig = t.TempDir() + "/kubeconfig"
	check.OK(t, controlplane.WriteKubeconfig(reader, w.kubeconfig))
	w.reads("")
	w.says("status", "address 10.0.0.9", "MAC 00:11:22:33:44:66 uses it too, beside its holder pod default/web-0")
	w.says("status", "floor", "2 Bound", "You have no right to read events")
	w.says("explain 10.0.0.2", "10.0.0.2 is Bound", "You have no right to read", `Its end is unknown, because you may not read what decides it: pods "web-0" is forbidden`)
	w.says("map floor", "B Bound 2")
	out, _ = w.run("", "doctor")
	check.That(t, strings.Contains(out, "You have no right to read pods of namespace") && !strings.Contains(out, "no pod of it is Ready"), "a false alarm:\n%s", out)

	w.kubeconfig = admin
	w.packs()
	w.says("free --force --yes 10.0.0.2", "The lease of 10.0.0.2 is deleted. If its pod runs, the agent records it again.")
	w.says("explain 10.0.0.2", "10.0.0.2 has no lease")

	// One address on two networks, and in two pools of a network.
	onLab := func(p *v1alpha1.IPPool) { p.Spec.Network = "lab" }
	bench := lease("10.2.0.7", old, func(s *v1alpha1.IPLeaseSpec) { s.Pool = "bench" })
	bench.Name = "lab.10.2.0.7"
	w.make(
		pool("shop", "10.2.0.0/24", func(p *v1alpha1.IPPool) {
			p.Status.Withheld = []v1alpha1.Withheld{{Pool: "stock", IPs: []string{"10.2.0.8"}}}
		}), pool("stock", "10.2.0.0/24", asIs),
		pool("bench", "10.2.0.0/24", onLab), bench, lease("10.2.0.7", web, func(s *v1alpha1.IPLeaseSpec) { s.Pool = "shop" }),
	)
	w.says("explain 10.2.0.7", "10.2.0.7 of pool shop is Bound", "pod default/web-0", "10.2.0.7 on network lab is Bound", "pod default/old-0")
	w.says("explain 10.2.0.8", "10.2.0.8 of pool stock has no lease", "status.withheld of pool shop", "Pool stock may hand it out",
		"10.2.0.8 on network lab has no lease", "Pool bench may hand it out")
	w.says("explain --network=lab 10.2.0.8", "Pool bench may hand it out")
	_, err = w.run("", "probe", "10.2.0.7")
	check.Says(w, err, `10.2.0.7 is on several networks: choose one of ["" "lab"] with --network`)
	w.planMove(server.Admin())
}

// packs writes bundles for a support case.
func (w world) packs() {
	w.Helper()
	for flag, names := range map[string][]string{"": {"n2", "floor", "web-0"}, "--anonymous": {"node-2", "pool-1", "pod-1"}} {
		file := filepath.Join(w.TempDir(), "case.tar.gz")
		args := append([]string{"doctor", "--bundle", file}, strings.Fields(flag)...)
		out, err := w.run("", args...)
		check.Is(w, err, errFaults, "doctor:")
		check.That(w, strings.Contains(out, "case.tar.gz has 18 files"), "it says:\n%s", out)
		packed, err := exec.CommandContext(w.Context(), "tar", "-xzOf", file).CombinedOutput()
		check.Must(w, err == nil, "tar: %v: %s", err, packed)
		check.Says(w, string(packed), append(names, "address: 10.0.0.9", "kind: IPPool", "state: Bound", "kind: ReservedIP", "no pod of it is Ready")...)
		_, err = w.run("", args...)
		check.Says(w, err, "file exists")
	}
	_, err := w.run("", "doctor", "--anonymous")
	check.Says(w, err, "give --bundle FILE")
}

// planMove plans the move of a network of whereabouts, and makes the pools of the plan.
func (w world) planMove(config *rest.Config) {
	w.Helper()
	_, err := w.run("", "move-in", "plan", "whereabouts", "default/vlan100")
	check.Says(w, err, "the API server does not serve NetworkAttachmentDefinition of k8s.cni.cncf.io/v1")
	check.OK(w, owners.Install(w.Context(), config, owners.Networks()...))
	of := func(kind schema.GroupVersionKind, name string, spec map[string]any) client.Object {
		return &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": kind.GroupVersion().String(), "kind": kind.Kind, "metadata": map[string]any{"namespace": "default", "name": name}, "spec": spec,
		}}
	}
	records := of(whereaboutsRecords, "10.100.0.0-24", map[string]any{"range": "10.100.0.0/24", "allocations": map[string]any{
		"7": map[string]any{"id": "c1", "podref": "default/moves-0", "ifname": "net1"}, "9": map[string]any{"id": "c2", "podref": "default/gone"},
	}})
	moves := pod("moves-0", "n1")
	moves.Annotations = map[string]string{ipam.AnnotationNetworkStatus: `[{"name":"default/vlan100","interface":"net1","ips":["10.100.0.7"],"mac":"0a:00:00:00:00:07"}]`}
	w.make(moves, records, of(definitions, "vlan100", map[string]any{
		"config": `{"type":"macvlan","master":"eth1","ipam":{"type":"whereabouts","range":"10.100.0.0/24"}}`,
	}))
	w.says("move-in plan whereabouts default/vlan100", "Addresses in use: 2, of which to adopt: 1, to hold: 1", "10.100.0.7", "default/moves-0", "is adopted",
		"pod default/gone of its record does not exist")
	text, err := w.run("", "move-in", "plan", "whereabouts", "default/vlan100", "-o", "yaml")
	check.OK(w, err)
	var list struct{ Items []unstructured.Unstructured }
	check.OK(w, yaml.Unmarshal([]byte(text), &list))
	check.Must(w, len(list.Items) == 2, "%d objects, want a pool and a definition:\n%s", len(list.Items), text)
	check.OK(w, w.client.Create(w.Context(), &list.Items[0]))
	text, err = w.run("", "move-in", "plan", "whereabouts", "default/vlan100")
	check.Is(w, err, errBlocked, "a second pool of the range:")
	check.Says(w, text, "pool vlan100 has addresses of 10.100.0.0/24 already")
}

const deployment = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: shop}
spec:
  template:
    metadata:
      annotations: {ipam.fenceline.io/ippool: '{"ipv4": ["nowhere"]}'}
`
