// SPDX-License-Identifier: Apache-2.0

package attachment

import "github.com/fenceline/fenceline/internal/audit"

// Audit returns the record about an address of an entry for the audit log of a node.
func (e *Entry) Audit(address Address, node, reason string) audit.Record {
	return audit.Record{
		Address: address.Addr, Network: address.Network, Pool: address.Pool,
		Namespace: e.PodNamespace, Pod: e.PodName, PodUID: e.PodUID,
		Node: node, MAC: e.MAC, Token: address.Token, Reason: reason,
	}
}
