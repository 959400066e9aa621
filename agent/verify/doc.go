// Package verify works off the Quarantined leases that are assigned to this
// node: it finds out whether the last holder is fenced, gone or silent, and
// frees the address only then (R1).
package verify
