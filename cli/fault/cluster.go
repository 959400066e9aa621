// SPDX-License-Identifier: Apache-2.0

// Package fault finds what is wrong in a cluster that was read, and says what to do about it.
package fault

import (
	"net/netip"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/fenceline/fenceline/agent/ipam"
	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/controller/podview"
	"github.com/fenceline/fenceline/internal/diagnosis"
)

// Cluster is everything that the checks look at. It lacks what the reader may not read.
type Cluster struct {
	Now time.Time
	// Namespace is that of Fenceline.
	Namespace string
	// Server is the version of the API server.
	Server              string
	Nodes               []corev1.Node
	Agents, Controllers []podview.Pod
	Pools               []v1alpha1.IPPool
	Leases              []v1alpha1.IPLease
	// LacksPools and LacksPrograms tell that the reader may not read them.
	LacksPools, LacksPrograms bool
	// Services are the ranges of ClusterIPs.
	Services []netip.Prefix
	// MapsPorts tells whether the chart's network configuration serves a hostPort.
	MapsPorts bool
	// Reports are the agents' answers.
	Reports []Report
	// Silent are the faults of agents that gave no report.
	Silent []Fault

	// hostPorts names the pods with a hostPort. unread describes annotations that nobody reads.
	hostPorts, unread []string
}

// Report is the answer of an agent.
type Report struct {
	diagnosis.Report
	Asked time.Time
}

// SawPod notes a hostPort of a pod, and annotations that nobody reads.
func (c *Cluster) SawPod(pod *corev1.Pod) {
	if pod.Spec.HostNetwork {
		return
	}
	c.unread = append(c.unread, ipam.Unread(ipam.Request{Pod: ipam.Pod{Namespace: pod.Namespace, Name: pod.Name, Annotations: pod.Annotations}})...)
	if slices.ContainsFunc(pod.Spec.Containers, func(container corev1.Container) bool {
		return slices.ContainsFunc(container.Ports, func(p corev1.ContainerPort) bool { return p.HostPort != 0 })
	}) {
		c.hostPorts = append(c.hostPorts, pod.Namespace+"/"+pod.Name)
	}
}

// SawNamespace notes annotations of a namespace that nobody reads.
func (c *Cluster) SawNamespace(name string, annotations map[string]string) {
	c.unread = append(c.unread, ipam.Unread(ipam.Request{Pod: ipam.Pod{Namespace: name}, NamespaceAnnotations: annotations})...)
}
