// SPDX-License-Identifier: Apache-2.0

// Package nodes runs the real agent, controller and plugin on the fast rig,
// against a real API server: each agent is a process in the network namespace
// of its node, and pods come and go by libcni and the reference macvlan plugin.
// There is no kubelet and no controller of Kubernetes; the test is both.
//
// A bystander stands between plugin and agent, between agent and API server,
// and at the switch. It sees every moment of an ADD and a DEL, and can have
// something happen at exactly one of them. The programs are those that are
// shipped, without a hook for tests.
package nodes
