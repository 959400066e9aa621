// SPDX-License-Identifier: Apache-2.0

//go:build kernel

package main

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strings"
	"testing"

	cnitypes "github.com/containernetworking/cni/pkg/types"
	"github.com/vishvananda/netlink"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/cni/agentapi"
	"github.com/fenceline/fenceline/test/check"
	"github.com/fenceline/fenceline/test/network"
)

// subnets: the agent reads the owner of a pod to find the pool of its application.
func (m *machine) subnets(t *testing.T) {
	meta := metav1.ObjectMeta{Namespace: "shop", Name: "web"}
	labels := map[string]string{"app": "web"}
	template := corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{
		RestartPolicy: corev1.RestartPolicyAlways, Containers: []corev1.Container{{Name: "c", Image: "none"}},
	}}
	deployment := &appsv1.Deployment{ObjectMeta: meta, Spec: appsv1.DeploymentSpec{Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: template}}
	check.OK(t, m.Create(t.Context(), deployment))
	set := &appsv1.ReplicaSet{ObjectMeta: meta, Spec: appsv1.ReplicaSetSpec{Selector: deployment.Spec.Selector, Template: template}}
	set.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(deployment, appsv1.SchemeGroupVersion.WithKind("Deployment"))}
	job := &batchv1.Job{ObjectMeta: meta, Spec: batchv1.JobSpec{Template: *template.DeepCopy()}}
	job.Spec.Template.Spec.RestartPolicy = corev1.RestartPolicyNever
	stateful := &appsv1.StatefulSet{ObjectMeta: meta, Spec: appsv1.StatefulSetSpec{Selector: deployment.Spec.Selector, Template: template}}
	daemons := &appsv1.DaemonSet{ObjectMeta: meta, Spec: appsv1.DaemonSetSpec{Selector: deployment.Spec.Selector, Template: template}}
	for i, c := range []struct {
		kind        string
		owner       client.Object
		api         schema.GroupVersion
		application v1alpha1.Application
	}{
		{"ReplicaSet", set, appsv1.SchemeGroupVersion, v1alpha1.Application{APIGroup: "apps", Kind: "Deployment"}},
		{"Job", job, batchv1.SchemeGroupVersion, v1alpha1.Application{APIGroup: "batch", Kind: "Job"}},
		{"StatefulSet", stateful, appsv1.SchemeGroupVersion, v1alpha1.Application{APIGroup: "apps", Kind: "StatefulSet"}},
		{"DaemonSet", daemons, appsv1.SchemeGroupVersion, v1alpha1.Application{APIGroup: "apps", Kind: "DaemonSet"}},
	} {
		t.Run("a pod of a "+c.kind, func(t *testing.T) {
			check.OK(t, m.Create(t.Context(), c.owner))
			c.application.Namespace, c.application.Name, c.application.Interface = "shop", "web", "0"
			pool := m.pool(t, "of-"+strings.ToLower(c.application.Kind), 93+i, func(p *v1alpha1.IPPool) {
				p.Spec.IPSubnet, p.Spec.Application = "s", &c.application
			})
			m.gets(t, m.sandbox(saying("ipam.fenceline.io/subnet", `{"ipv4":["s"]}`), func(p *corev1.Pod) {
				p.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(c.owner, c.api.WithKind(c.kind))}
			}), pool.Spec.Subnet[:len("10.70.93.")])
		})
	}
}

// gatewayChecks starts pods beside a router that answers for one of their gateways, and then for both.
func (m *machine) gatewayChecks(t *testing.T) {
	const router = "eth0" // its interface
	yes, gateways := true, []string{"10.70.87.1", "fd70:87::1"}
	checked := func(gateway string) func(*v1alpha1.IPPool) {
		return func(p *v1alpha1.IPPool) { p.Spec.Gateway, p.Spec.GatewayCheck = &gateway, &yes }
	}
	m.pool(t, "gated", 87, checked(gateways[0]))
	m.pool(t, "gated-6", 0, v6("fd70:87::/64"), checked(gateways[1]))
	pools := saying("ipam.fenceline.io/ippool", `{"ipv4":["gated"],"ipv6":["gated-6"]}`)
	elsewhere := *m
	elsewhere.parent = m.parent + "g"
	ns := routerAt(t, elsewhere.parent, router)
	for _, c := range []struct {
		answers, silent string
	}{
		{gateways[0] + "/24", gateways[1] + " of pool gated-6 does"},
		{gateways[1] + "/64", ""},
	} {
		check.OK(t, ns.AddAddr(router, netip.MustParsePrefix(c.answers)))
		pod, inside := m.unplugged(pools)
		before := hostLinks(t)
		err := elsewhere.linked(t, pod, "eth0", "")
		if c.silent == "" {
			check.OK(t, err)
			got := routingOf(t, inside)
			check.That(t, got == "host-eth0", "the pod has %q, want a host link", got)
			continue
		}
		words := []string{"gateway " + c.silent + " not answer on parent " + elsewhere.parent + " of node n1"}
		e, ok := errors.AsType[*cnitypes.Error](err)
		check.That(t, ok && e.Code == agentapi.CodeTryAgainLater && contains(e.Msg, words), "got %v, want code 11 with %q", err, words)
		m.nothingLeft(t, pod, before)
	}
}

// routerAt makes a parent whose other end is the interface of a router without addresses.
func routerAt(t *testing.T, parent, iface string) *network.Namespace {
	t.Helper()
	ns := check.Value(network.Create(fmt.Sprintf("%s-router", parent)))(t)
	t.Cleanup(func() { check.OK(t, ns.Delete()) })
	f := check.Value(os.Open(ns.Path()))(t)
	defer f.Close()
	attrs := netlink.NewLinkAttrs()
	attrs.Name = parent
	check.OK(t, netlink.LinkAdd(&netlink.Veth{LinkAttrs: attrs, PeerName: iface, PeerNamespace: netlink.NsFd(f.Fd())}))
	link := check.Value(netlink.LinkByName(parent))(t)
	t.Cleanup(func() { check.OK(t, netlink.LinkDel(link)) })
	check.OK(t, errors.Join(netlink.LinkSetUp(link), ns.SetUp(iface, true)))
	return ns
}
