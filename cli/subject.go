// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fenceline/fenceline/agent/ipam"
	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/cli/cluster"
	"github.com/fenceline/fenceline/internal/owner"
	"github.com/fenceline/fenceline/internal/poolset"
)

// whyFor holds what the rules of ADD read.
type whyFor struct {
	c           *cluster.Cluster
	node, iface string
	subject     subject

	request    ipam.Request
	pools      []v1alpha1.IPPool
	reserved   poolset.Set
	nodes      []corev1.Node
	interfaces []attached
}

// attached is an interface, and the pools that its network configuration names.
type attached struct {
	name  string
	pools ipam.ConfigPools
	// earlier are the interfaces before it that Fenceline serves.
	earlier []ipam.Interface
}

// errNoInterface tells that Fenceline serves no interface of a pod.
var errNoInterface = errors.New("no interface has Fenceline as its IPAM")

// readSubjects reads the pods, and the objects with a template of pods, of a file.
func readSubjects(stdin io.Reader, file, namespace string) (all []subject, err error) {
	in := stdin
	if file != "-" {
		f, err := os.Open(file)
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", file, err)
		}
		defer f.Close()
		in = f
	}
	decoder := yaml.NewYAMLOrJSONDecoder(in, 4096)
	for {
		o := &unstructured.Unstructured{}
		switch err := decoder.Decode(&o.Object); {
		case errors.Is(err, io.EOF) && len(all) == 0:
			return nil, fmt.Errorf("%s has neither a pod nor an object with a template of pods", file)
		case errors.Is(err, io.EOF):
			return all, nil
		case err != nil:
			return nil, fmt.Errorf("read %s: %w", file, err)
		}
		items := []unstructured.Unstructured{*o}
		if o.IsList() {
			list, err := o.ToList()
			if err != nil {
				return nil, fmt.Errorf("read the %s of %s: %w", o.GetKind(), file, err)
			}
			items = list.Items
		}
		for i := range items {
			if s, ok := subjectOf(&items[i], namespace); ok {
				all = append(all, s)
			}
		}
	}
}

// subjectOf returns the pod that an object is, or would make.
func subjectOf(o *unstructured.Unstructured, namespace string) (subject, bool) {
	namespace = cmp.Or(o.GetNamespace(), namespace)
	if o.GetKind() == "Pod" {
		return subject{
			pod:         ipam.Pod{Namespace: namespace, Name: o.GetName(), Labels: o.GetLabels(), Annotations: o.GetAnnotations()},
			application: &v1alpha1.Application{Kind: "Pod", Namespace: namespace, Name: o.GetName()},
		}, true
	}
	for _, path := range [][]string{{"spec", "template"}, {"spec", "jobTemplate", "spec", "template"}} {
		template, ok, _ := unstructured.NestedMap(o.Object, path...)
		if !ok {
			continue
		}
		t := unstructured.Unstructured{Object: template}
		s := subject{
			pod: ipam.Pod{
				Namespace: namespace, Name: o.GetName() + "-0", Labels: t.GetLabels(), Annotations: t.GetAnnotations(),
				OwnerKind: o.GetKind(), OwnerName: o.GetName(),
			},
			application: &v1alpha1.Application{APIGroup: o.GroupVersionKind().Group, Kind: o.GetKind(), Namespace: namespace, Name: o.GetName()},
		}
		switch o.GetKind() {
		case "StatefulSet":
			s.replicas, s.pod.Ordinal = 1, new(int64)
			switch n, _, _ := unstructured.NestedFieldNoCopy(o.Object, "spec", "replicas"); n := n.(type) {
			case int64:
				s.replicas = n
			case float64: // of YAML
				s.replicas = int64(n)
			}
		case "VirtualMachine", "VirtualMachineInstance":
			s.pod.OwnerKind = "VirtualMachineInstance" // which owns the pod
		default:
			s.pod.Shares = true
		}
		return s, true
	}
	return subject{}, false
}

func (w *whyFor) read(ctx context.Context) error {
	var pools v1alpha1.IPPoolList
	var subnets v1alpha1.IPSubnetList
	for list, name := range map[client.ObjectList]string{&pools: "pools", &subnets: "IPSubnets"} {
		if err := w.c.List(ctx, list); err != nil {
			return fmt.Errorf("list %s: %w", name, err)
		}
	}
	reservations, err := readReservations(ctx, w.c)
	if err != nil {
		return err
	}
	w.pools, w.reserved = pools.Items, poolset.ReservedSet(reservations)
	w.request = ipam.Request{Pod: w.subject.pod, Reservations: poolset.Listed(reservations), Subnets: ipam.Subnets{All: subnets.Items}}
	ns := &metav1.PartialObjectMetadata{}
	ns.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Namespace"))
	err = w.c.Get(ctx, client.ObjectKey{Name: w.subject.pod.Namespace}, ns)
	if err = w.c.MayLack("namespace "+w.subject.pod.Namespace, err); err != nil {
		return fmt.Errorf("read namespace %s: %w", w.subject.pod.Namespace, err)
	}
	w.request.NamespaceLabels, w.request.NamespaceAnnotations = ns.Labels, ns.Annotations
	if err := w.readNodes(ctx); err != nil {
		return err
	}
	if err := w.readApplication(ctx); err != nil {
		return err
	}
	return w.readInterfaces(ctx)
}

// readNodes finds the node of the pod, or all nodes. Without the right to read them, they have no labels.
func (w *whyFor) readNodes(ctx context.Context) error {
	name := cmp.Or(w.node, w.subject.node)
	if name == "" {
		var nodes corev1.NodeList
		if err := w.c.MayLack("nodes", w.c.List(ctx, &nodes)); err != nil {
			return fmt.Errorf("list nodes: %w", err)
		}
		if w.nodes = nodes.Items; len(w.nodes) == 0 {
			return errors.New("there is no node to ask for: name one with --node")
		}
		return nil
	}
	node := corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	err := w.c.Get(ctx, client.ObjectKey{Name: name}, &node)
	if err = w.c.MayLack("nodes", err); err != nil {
		return fmt.Errorf("read node %s: %w", name, err)
	}
	w.nodes = []corev1.Node{node}
	return nil
}

func (w *whyFor) readApplication(ctx context.Context) error {
	if w.subject.application != nil {
		w.request.Application = *w.subject.application
		return nil
	}
	asker := owner.Asker{Live: w.c, Scales: w.c, Mapper: w.c.RESTMapper()}
	ref, err := asker.Application(ctx, w.subject.object)
	if err = w.c.MayLack("the owner of pod "+w.subject.pod.Name, err); err != nil {
		return fmt.Errorf("find the application of pod %s: %w", w.subject.pod.Name, err)
	}
	w.request.Application = ref.Application()
	return nil
}

// readInterfaces finds the interfaces of the pod that Fenceline serves.
func (w *whyFor) readInterfaces(ctx context.Context) error {
	all, err := ipam.Attachments(w.subject.pod, w.request.Multus)
	if err != nil {
		return err
	}
	var earlier []ipam.Interface
	for _, at := range all {
		config, known, err := configOf(ctx, w.c, at.Definition)
		if err != nil {
			return err
		}
		pools, serves := configPools(config)
		if known && !serves {
			continue // another IPAM serves it
		}
		if w.iface == "" || at.Interface == w.iface {
			w.interfaces = append(w.interfaces, attached{at.Interface, pools, slices.Clone(earlier)})
		}
		earlier = append(earlier, ipam.Interface{Name: at.Interface})
	}
	if len(w.interfaces) == 0 {
		return errNoInterface
	}
	return nil
}

// configOf returns the network configuration of a NetworkAttachmentDefinition, or that of the
// chart. known is false if there is none, since a file on the node may have it.
func configOf(ctx context.Context, c *cluster.Cluster, definition string) (config string, known bool, err error) {
	if namespace, name, ok := strings.Cut(definition, "/"); ok {
		nad := &unstructured.Unstructured{}
		nad.SetGroupVersionKind(definitions)
		err := c.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, nad)
		if meta.IsNoMatchError(err) {
			return "", false, nil
		}
		if err = c.MayLack("NetworkAttachmentDefinition "+definition, err); err != nil {
			return "", false, fmt.Errorf("read NetworkAttachmentDefinition %s: %w", definition, err)
		}
		config, _, _ = unstructured.NestedString(nad.Object, "spec", "config")
		return config, config != "", nil
	}
	file, err := c.Kube.CoreV1().ConfigMaps(c.Namespace).Get(ctx, "fenceline-conflist", metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return "", false, nil // a file on the nodes has it
	}
	if err = c.MayLack("ConfigMap fenceline-conflist", err); err != nil {
		return "", false, fmt.Errorf("read the chart's network configuration: %w", err)
	}
	for _, text := range file.Data {
		config = text
	}
	return config, config != "", nil
}

// configPools returns the pools that a network configuration, or a list of them, names for Fenceline.
func configPools(config string) (pools ipam.ConfigPools, serves bool) {
	type plugin struct {
		Type string
		IPAM struct {
			Type string
			V4   []string `json:"default_ipv4_ippool"`
			V6   []string `json:"default_ipv6_ippool"`
		}
	}
	var network struct {
		plugin
		Plugins []plugin
	}
	if json.Unmarshal([]byte(config), &network) != nil {
		return pools, false
	}
	for _, p := range append(network.Plugins, network.plugin) {
		if p.Type == "fenceline" || p.IPAM.Type == "fenceline" {
			serves = true
			pools.V4, pools.V6 = append(pools.V4, p.IPAM.V4...), append(pools.V6, p.IPAM.V6...)
		}
	}
	return pools, serves
}
