// SPDX-License-Identifier: Apache-2.0

// Package foreignhost decides the treatment of an address for which a foreign host answers. The
// decision bounds the effects of one host that answers for many addresses, such as a proxy.
package foreignhost

import "time"

// ManyAddresses is the number of addresses that are quarantined for one MAC.
const ManyAddresses = 3

// The limits of RFC 5227 section 1.1.
const (
	// MaxConflicts is MAX_CONFLICTS: the number of addresses that are tried on a segment within
	// Interval although one host answers for them.
	MaxConflicts = 10
	// Interval is RATE_LIMIT_INTERVAL.
	Interval = 60 * time.Second
)

// Action is the treatment of an address for which a foreign host answers.
type Action int

// The actions.
const (
	// Quarantine the address. The caller tries another address.
	Quarantine Action = iota
	// PassOver: free the address, and try another address.
	PassOver
	// Stop: free the address, and try no other address for now.
	Stop
)

// Decide returns the treatment of one more address for which a host answers. recorded is the number
// of addresses of the pool that are quarantined for the MAC of the host. met is the number of
// addresses for which the host answered on the same segment within Interval.
func Decide(recorded, met int) Action {
	switch {
	case met >= MaxConflicts:
		return Stop
	case recorded < ManyAddresses:
		return Quarantine
	}
	return PassOver
}
