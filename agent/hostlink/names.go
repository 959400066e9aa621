// SPDX-License-Identifier: Apache-2.0

package hostlink

import (
	"crypto/sha256"
	"encoding/hex"
	"net"

	"github.com/fenceline/fenceline/cni/agentapi"
)

// NodePrefix begins the names of all host links on the node. Rules of nftables match it.
const NodePrefix = "flh"

// podPrefix begins the names of the pods' ends.
const podPrefix = "host-"

// nameMax is the greatest length of the name of an interface (IFNAMSIZ without the final zero).
const nameMax = 15

// NodeEnd returns the name of the node's end of the host link of an attachment.
func NodeEnd(a agentapi.Attachment) string { return NodePrefix + digest(a)[:nameMax-len(NodePrefix)] }

// PodEnd returns the name of the pod's end: host-eth0 for eth0.
func PodEnd(a agentapi.Attachment) string {
	if name := podPrefix + a.Interface; len(name) <= nameMax {
		return name
	}
	return podPrefix + digest(a)[:nameMax-len(podPrefix)]
}

// macs returns the MACs of both ends. They depend on the attachment only, so each end knows the MAC
// of the other without ARP and ND.
func macs(a agentapi.Attachment) (node, pod net.HardwareAddr) {
	sum := sha256.Sum256([]byte(a.ContainerID + "/" + a.Interface))
	// 02: locally administered, unicast (IEEE 802, clause 8.4).
	node = net.HardwareAddr{0x02, sum[0], sum[1], sum[2], sum[3], sum[4] &^ 1}
	pod = net.HardwareAddr{0x02, sum[0], sum[1], sum[2], sum[3], sum[4] | 1}
	return node, pod
}

func digest(a agentapi.Attachment) string {
	sum := sha256.Sum256([]byte(a.ContainerID + "/" + a.Interface))
	return hex.EncodeToString(sum[:])
}
