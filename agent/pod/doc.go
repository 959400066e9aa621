// SPDX-License-Identifier: Apache-2.0

// Package pod reads the facts of a pod's interface: its MAC, its kind and its
// parent on the node, which names its segment.
//
// The package changes nothing. It uses netlink sockets that were opened in the
// pod's namespace; no goroutine enters another namespace.
package pod
