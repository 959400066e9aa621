// SPDX-License-Identifier: Apache-2.0

// Package cidr knows the prefixes of the cluster: the pod CIDRs of the networks beside Fenceline, and the
// service CIDRs, the prefixes of all ClusterIPs. A pod whose default routes are on the underlay reaches
// them by its first interface.
package cidr
