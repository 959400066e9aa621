// SPDX-License-Identifier: Apache-2.0

// Package hostlink makes a pod on the underlay a whole Kubernetes pod.
//
// A macvlan, ipvlan or SR-IOV interface does not reach its own node, and kube-proxy on the node does
// not see its traffic. A host link is a veth pair between pod and node. The pod reaches its node and
// the Services through it, and the node reaches the pod. All other traffic stays on the underlay.
//
// A plan says which routes, rules and neighbours one interface of a pod needs. It is a pure function.
// Links carries plans out, checks them and repairs them. All state of a pod on the node goes with
// the link, so the end of the pod's network namespace removes it.
package hostlink
