// SPDX-License-Identifier: Apache-2.0

package cidr

import (
	"context"
	"fmt"
	"net/netip"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// nodesAtOnce bounds the nodes that are in memory at the same time.
const nodesAtOnce = 200

// source reads the pod CIDRs of one network. It returns none if the cluster lacks the network.
type source struct {
	name string
	read func(context.Context, client.Reader) (texts []string, err error)
}

// sources returns all sources. The Nodes have the CIDRs of flannel, of kubeadm and of each network
// that gives each node its part (kube-controller-manager --allocate-node-cidrs).
func sources() []source {
	return []source{
		{"spec.podCIDRs of the Nodes", ofNodes},
		{"the IPPools of Calico", ofCalico},
		{"the ConfigMap cilium-config in kube-system", ofCilium},
	}
}

// Calico is the kind of Calico's pools.
func Calico() schema.GroupVersionKind {
	return schema.GroupVersionKind{Group: "crd.projectcalico.org", Version: "v1", Kind: "IPPool"}
}

func ofNodes(ctx context.Context, api client.Reader) (texts []string, err error) {
	page := &client.ListOptions{Limit: nodesAtOnce}
	for {
		nodes := &corev1.NodeList{}
		if err := api.List(ctx, nodes, page); err != nil {
			return nil, err
		}
		for i := range nodes.Items {
			texts = append(texts, nodes.Items[i].Spec.PodCIDRs...)
		}
		if page.Continue = nodes.Continue; page.Continue == "" {
			return texts, nil
		}
	}
}

func ofCalico(ctx context.Context, api client.Reader) (texts []string, err error) {
	pools := &unstructured.UnstructuredList{}
	pools.SetGroupVersionKind(Calico())
	if err := api.List(ctx, pools); err != nil {
		return nil, err
	}
	for _, pool := range pools.Items {
		cidr, _, _ := unstructured.NestedString(pool.Object, "spec", "cidr")
		texts = append(texts, cidr)
	}
	return texts, nil
}

// ofCilium reads the CIDRs of Cilium's mode cluster-pool, its default. In mode kubernetes, the Nodes have them.
func ofCilium(ctx context.Context, api client.Reader) (texts []string, err error) {
	config := &corev1.ConfigMap{}
	if err := api.Get(ctx, client.ObjectKey{Namespace: "kube-system", Name: "cilium-config"}, config); err != nil {
		return nil, err
	}
	if config.Data["ipam"] != "cluster-pool" {
		return nil, nil
	}
	for _, key := range []string{"cluster-pool-ipv4-cidr", "cluster-pool-ipv6-cidr"} {
		texts = append(texts, strings.Fields(strings.ReplaceAll(config.Data[key], ",", " "))...)
	}
	return texts, nil
}

// readAll reads all sources, and skips those that the cluster lacks. unread has an error for each
// other source or CIDR that could not be read. passing reports whether one of them may end by
// itself: a missing right and a wrong CIDR do not.
func readAll(ctx context.Context, api client.Reader, all []source) (found []netip.Prefix, unread []error, passing bool) {
	for _, s := range all {
		texts, err := s.read(ctx, api)
		if err != nil && !apierrors.IsNotFound(err) {
			unread = append(unread, fmt.Errorf("read %s: %w", s.name, err))
			passing = passing || !apierrors.IsForbidden(err)
		}
		for _, text := range texts {
			p, err := ParsePod(text)
			if err != nil {
				unread = append(unread, fmt.Errorf("read %s: %w", s.name, err))
				continue
			}
			found = append(found, p)
		}
	}
	return found, unread, passing
}
