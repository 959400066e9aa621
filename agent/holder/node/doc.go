// SPDX-License-Identifier: Apache-2.0

// Package node is the node as ADD, DEL and all that follows see it: the parts that they act upon, the
// pods, who holds which address now, and one lock for each attachment and lease.
package node
