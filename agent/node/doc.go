// SPDX-License-Identifier: Apache-2.0

// Package node has the parts of the node that ADD, DEL and their later steps share: the machine,
// the pods, the present holders of addresses, and one lock for each attachment and lease.
package node
