// SPDX-License-Identifier: Apache-2.0

// Package nodes runs the real agent, controller and plugin on the fast rig, against a real API
// server. Each agent is a process in the network namespace of its node. Pods come and go by libcni
// and the reference macvlan plugin. There is no kubelet and no controller of Kubernetes: the test
// plays both.
//
// A bystander stands between plugin and agent, between agent and API server, and at the switch. It
// sees every moment of an ADD and a DEL, and can run an action at exactly one of them. The programs
// are the shipped ones, without a hook for tests.
package nodes
