// SPDX-License-Identifier: Apache-2.0

// Package pod reads the facts of a pod's interface: its MAC, its kind and its
// parent on the node, which names its segment.
//
// It uses netlink sockets that were opened in the pod's namespace. Only the question
// for the device behind a physical interface enters the namespace, on a thread of its own.
package pod
