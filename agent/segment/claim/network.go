// SPDX-License-Identifier: Apache-2.0

package claim

import (
	"crypto/sha256"
	"encoding/binary"
)

// Network returns the number that separates claims of different clusters, and of unconnected
// networks of one cluster: the first eight bytes of SHA-256 over the UID of the kube-system
// namespace, "/" and the pool's spec.network, which may be empty.
func Network(clusterUID, network string) uint64 {
	sum := sha256.Sum256([]byte(clusterUID + "/" + network))
	return binary.BigEndian.Uint64(sum[:8])
}
