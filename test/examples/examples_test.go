// SPDX-License-Identifier: Apache-2.0

//go:build api

package examples

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/containernetworking/cni/libcni"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/fenceline/fenceline/agent/ipam"
	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/internal/poolset"
	"github.com/fenceline/fenceline/test/check"
	"github.com/fenceline/fenceline/test/controlplane"
	"github.com/fenceline/fenceline/test/owners"
	"github.com/fenceline/fenceline/test/process"
	"github.com/fenceline/fenceline/test/programs"
	"github.com/fenceline/fenceline/test/thirdparty"
)

const (
	system = "fenceline-system"
	// limit is for one step that waits.
	limit = time.Minute
)

// interfaces are the pools of each pod's interfaces, as the comments of the files promise them.
var interfaces = map[string]map[string]string{
	"pool.yaml":                   {"eth0": "underlay"},
	"dual-stack.yaml":             {"eth0": "dual-v4 dual-v6"},
	"reservation.yaml":            {},
	"subnet.yaml":                 {"eth0": "shop-0-v4-77aaedaafbb9"},
	"rollout.yaml":                {"eth0": "cart-0-v4-bec1dbd9d97f"},
	"virtual-machine.yaml":        {"eth0": "machines"},
	"virtual-machine-bridge.yaml": {"net1": "guests"},
	"openkruise.yaml":             {"eth0": "ledger-0-v4-1b0978f5ae24"},
	"statefulset.yaml":            {"eth0": "databases"},
	"fixed-address.yaml":          {"eth0": "brokers"},
	"multus.yaml":                 {"net1": "storage"},
	"vlans.yaml":                  {"net1": "vlan100", "net2": "vlan200"},
	"sriov.yaml":                  {"net1": "trading"},
	"bridge.yaml":                 {"net1": "bridged"},
	"openvswitch.yaml":            {"net1": "switched"},
	"router.yaml":                 {"eth0": "routers"},
	"warm.yaml":                   {"eth0": "functions"},
	"virtual-address.yaml":        {"eth0": "balanced"},
}

// given are the addresses that the applications of each IPSubnet have.
var given = map[string]int64{"floor-1": 4, "floor-2": 6, "floor-3": 2}

func TestExamples(t *testing.T) {
	r := newRig(t)
	files, err := filepath.Glob(filepath.Join(r.root, "examples", "*.yaml"))
	check.Must(t, err == nil && len(files) == len(interfaces), "%d files in examples, want %d: %v", len(files), len(interfaces), err)
	readme := check.Value(os.ReadFile(filepath.Join(r.root, "examples", "README.md")))(t)
	for _, file := range files {
		name := filepath.Base(file)
		t.Run(name, func(t *testing.T) {
			r.apply(t, file)
			check.That(t, bytes.Contains(readme, []byte("["+name+"]("+name+")")), "examples/README.md does not list %s", name)
		})
	}
	t.Run("all pools and reservations become Ready", r.testReady)
	for _, file := range files {
		name := filepath.Base(file)
		t.Run("the pods of "+name+" get addresses of its pools", func(t *testing.T) { r.testPools(t, name, file) })
	}
}

// rig is an API server with the controller.
type rig struct {
	root string
	api  client.Client
}

func newRig(t *testing.T) *rig {
	t.Helper()
	root := check.Value(thirdparty.Root())(t)
	server := controlplane.New(t)
	scheme := runtime.NewScheme()
	check.OK(t, errors.Join(clientgoscheme.AddToScheme(scheme), v1alpha1.AddToScheme(scheme)))
	api := check.Value(client.New(server.Admin(), client.Options{Scheme: scheme}))(t)
	check.OK(t, owners.Install(t.Context(), server.Admin(), append(owners.Machines(), owners.Rollouts(), owners.StatefulSets())...))
	r := &rig{root, api}
	// The first document is the definition of NetworkAttachmentDefinition.
	definition := documents(t, filepath.Join(root, "test", "cluster", "multus.yaml"))[0]
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default", Namespace: "default"}}
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: system}}
	for _, o := range []client.Object{definition, account, namespace} {
		check.OK(t, api.Create(t.Context(), o))
	}
	r.eventually(t, "definitions of networks are served", func(ctx context.Context) error {
		return api.List(ctx, &unstructured.UnstructuredList{Object: map[string]any{
			"apiVersion": "k8s.cni.cncf.io/v1", "kind": "NetworkAttachmentDefinitionList",
		}})
	})
	r.runController(t, server.Kubeconfig())
	return r
}

func (r *rig) runController(t *testing.T, kubeconfig string) {
	t.Helper()
	dir := t.TempDir()
	built := filepath.Join(dir, "controller")
	check.OK(t, programs.Build(t.Context(), "controller", built))
	cmd := exec.CommandContext(context.Background(), built, "--namespace", system, "--leader-elect=false",
		"--metrics-address", "0", "--health-address", "0")
	cmd.Env = append(os.Environ(), "KUBECONFIG="+kubeconfig)
	log := filepath.Join(dir, "controller.log")
	controller := check.Value(process.Start("controller", cmd, log))(t)
	t.Cleanup(func() {
		if err := controller.Stop(context.Background(), 10*time.Second); err != nil {
			t.Error(err)
		}
		if text, err := os.ReadFile(log); t.Failed() {
			t.Logf("the controller's log: %v\n%s", err, text)
		}
	})
}

// apply creates each document of a file. The API server refuses unknown fields.
func (r *rig) apply(t *testing.T, file string) {
	t.Helper()
	for _, d := range documents(t, file) {
		if err := r.api.Create(t.Context(), d, client.FieldValidation(metav1.FieldValidationStrict)); err != nil {
			t.Errorf("create %s %s: %v", d.GetKind(), d.GetName(), err)
		}
		if group := d.GroupVersionKind().Group; group == "argoproj.io" || group == "apps.kruise.io" {
			r.runPod(t, d)
		}
		if d.GetKind() == "NetworkAttachmentDefinition" {
			if _, err := libcni.ConfListFromBytes(configOf(d)); err != nil {
				t.Errorf("%s %s: %v", d.GetKind(), d.GetName(), err)
			}
		}
	}
}

// runPod makes the first pod of an owner of another project. A Rollout has its pods through a ReplicaSet.
func (r *rig) runPod(t *testing.T, owner *unstructured.Unstructured) {
	t.Helper()
	set := &appsv1.ReplicaSet{}
	check.OK(t, runtime.DefaultUnstructuredConverter.FromUnstructured(owner.Object, set))
	template := set.Spec.Template
	above := metav1.NewControllerRef(owner, owner.GroupVersionKind())
	meta := metav1.ObjectMeta{Namespace: owner.GetNamespace(), Name: owner.GetName() + "-0", OwnerReferences: []metav1.OwnerReference{*above}}
	if owner.GetKind() == "Rollout" {
		set.ObjectMeta, set.Spec.Replicas = meta, nil
		set.APIVersion, set.Kind = "", ""
		check.OK(t, r.api.Create(t.Context(), set))
		meta.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(set, appsv1.SchemeGroupVersion.WithKind("ReplicaSet"))}
	}
	meta.Labels, meta.Annotations = template.Labels, template.Annotations
	check.OK(t, r.api.Create(t.Context(), &corev1.Pod{ObjectMeta: meta, Spec: template.Spec}))
}

func (r *rig) testReady(t *testing.T) {
	r.eventually(t, "all are Ready", func(ctx context.Context) error {
		pools, reservations := &v1alpha1.IPPoolList{}, &v1alpha1.ReservedIPList{}
		if err := errors.Join(r.api.List(ctx, pools), r.api.List(ctx, reservations)); err != nil {
			return err
		}
		if len(pools.Items) == 0 || len(reservations.Items) == 0 {
			return fmt.Errorf("%d pools and %d reservations", len(pools.Items), len(reservations.Items))
		}
		var errs []error
		for _, p := range pools.Items {
			errs = append(errs, ready("pool "+p.Name, p.Status.Conditions))
		}
		for _, p := range reservations.Items {
			errs = append(errs, ready("reservation "+p.Name, p.Status.Conditions))
		}
		subnets := &v1alpha1.IPSubnetList{}
		errs = append(errs, r.api.List(ctx, subnets))
		for _, s := range subnets.Items {
			errs = append(errs, ready("IPSubnet "+s.Name, s.Status.Conditions))
			if s.Status.Allocated != given[s.Name] {
				errs = append(errs, fmt.Errorf("IPSubnet %s has given %d addresses, want %d", s.Name, s.Status.Allocated, given[s.Name]))
			}
		}
		return errors.Join(errs...)
	})
}

func ready(what string, conditions []metav1.Condition) error {
	c := meta.FindStatusCondition(conditions, "Ready")
	switch {
	case c == nil:
		return fmt.Errorf("%s has no condition Ready", what)
	case c.Status != metav1.ConditionTrue:
		return fmt.Errorf("%s: Ready is %s, %s: %s", what, c.Status, c.Reason, c.Message)
	}
	return nil
}

// testPools asks the agent's rules which pools the pods of a file get their addresses from.
func (r *rig) testPools(t *testing.T, name, file string) {
	pools, reservations := &v1alpha1.IPPoolList{}, &v1alpha1.ReservedIPList{}
	check.OK(t, errors.Join(r.api.List(t.Context(), pools), r.api.List(t.Context(), reservations)))
	reserved := poolset.ReservedSet(reservations.Items)
	pods, fromConfig := 0, map[string]ipam.ConfigPools{} // by interface: Multus numbers them
	for _, d := range documents(t, file) {
		if d.GetKind() == "NetworkAttachmentDefinition" {
			fromConfig[fmt.Sprintf("net%d", len(fromConfig)+1)] = ipam.ConfigPools{V4: poolsOf(t, configOf(d))}
		}
		template := podOf(t, d)
		if template == nil {
			continue
		}
		pods++
		if _, err := v1alpha1.ParseRetention(template.Annotations); err != nil {
			t.Error(err)
		}
		for iface, want := range interfaces[name] {
			choice, err := ipam.ChoosePools(ipam.Request{
				Pod:      ipam.Pod{Namespace: d.GetNamespace(), Name: d.GetName(), Labels: firstLabels(d, template), Annotations: template.Annotations},
				NodeName: "n1", Interface: iface, ConfigPools: fromConfig[iface],
				Application: v1alpha1.Application{APIGroup: d.GroupVersionKind().Group, Kind: d.GetKind(), Namespace: metav1.NamespaceDefault, Name: d.GetName()},
			}, pools.Items, reserved)
			if err != nil {
				t.Errorf("%s %s, %s: %v", d.GetKind(), d.GetName(), iface, err)
				continue
			}
			var got []string
			for _, family := range choice.Families {
				for _, p := range family.Pools {
					got = append(got, p.Pool.Name)
				}
			}
			check.That(t, strings.Join(got, " ") == want, "%s %s gets %s from pools %v, want %s", d.GetKind(), d.GetName(), iface, got, want)
		}
	}
	if want := min(1, len(interfaces[name])); pods != want {
		t.Errorf("%d documents make pods, want %d", pods, want)
	}
}

// firstLabels returns the labels of the first pod of a document. A StatefulSet's controller labels each
// pod with its name.
func firstLabels(d *unstructured.Unstructured, template *metav1.ObjectMeta) map[string]string {
	labels := maps.Clone(template.Labels)
	if d.GetKind() == "StatefulSet" {
		labels[appsv1.StatefulSetPodNameLabel] = d.GetName() + "-0"
	}
	return labels
}

// podOf returns the pod that a document makes, or nil.
func podOf(t *testing.T, d *unstructured.Unstructured) *metav1.ObjectMeta {
	t.Helper()
	pod, deployment, set, job := &corev1.Pod{}, &appsv1.Deployment{}, &appsv1.StatefulSet{}, &batchv1.Job{}
	var into any
	var template *metav1.ObjectMeta
	switch d.GetKind() {
	case "Pod":
		into, template = pod, &pod.ObjectMeta
	case "Deployment", "Rollout", "VirtualMachine": // they have the template at the same place
		into, template = deployment, &deployment.Spec.Template.ObjectMeta
	case "StatefulSet":
		into, template = set, &set.Spec.Template.ObjectMeta
	case "Job":
		into, template = job, &job.Spec.Template.ObjectMeta
	default:
		return nil
	}
	check.OK(t, runtime.DefaultUnstructuredConverter.FromUnstructured(d.Object, into))
	networks, _, _ := unstructured.NestedSlice(d.Object, "spec", "template", "spec", "networks")
	for _, n := range networks { // KubeVirt makes the annotation of its launcher pods of them
		if name, found, _ := unstructured.NestedString(n.(map[string]any), "multus", "networkName"); found {
			metav1.SetMetaDataAnnotation(template, "k8s.v1.cni.cncf.io/networks", name)
		}
	}
	return template
}

func configOf(d *unstructured.Unstructured) []byte {
	config, _, _ := unstructured.NestedString(d.Object, "spec", "config")
	return []byte(config)
}

// poolsOf returns the pools that the first plugin's IPAM names.
func poolsOf(t *testing.T, config []byte) []string {
	t.Helper()
	var list struct {
		Plugins []struct {
			IPAM struct {
				Type  string   `json:"type"`
				Pools []string `json:"default_ipv4_ippool"`
			} `json:"ipam"`
		} `json:"plugins"`
	}
	if err := yaml.Unmarshal(config, &list); err != nil || len(list.Plugins) == 0 || list.Plugins[0].IPAM.Type != "fenceline" {
		t.Fatalf("the first plugin's IPAM is not Fenceline: %v\n%s", err, config)
	}
	return list.Plugins[0].IPAM.Pools
}

// documents reads a file of YAML documents. A key that stands twice is an error.
func documents(t *testing.T, file string) []*unstructured.Unstructured {
	t.Helper()
	data := check.Value(os.ReadFile(file))(t)
	var all []*unstructured.Unstructured
	reader := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(data)))
	for {
		text, err := reader.Read()
		if errors.Is(err, io.EOF) {
			return all
		}
		check.Must(t, err == nil, "read %s: %v", file, err)
		o := &unstructured.Unstructured{}
		if err := yaml.UnmarshalStrict(text, &o.Object); err != nil {
			t.Fatalf("decode a document of %s: %v", file, err)
		}
		if len(o.Object) > 0 {
			all = append(all, o)
		}
	}
}

func (r *rig) eventually(t *testing.T, what string, try func(context.Context) error) {
	t.Helper()
	check.Eventually(t, limit, what, func() error { return try(t.Context()) })
}
