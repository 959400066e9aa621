// Package allocate finds a free address by creating its lease. It joins the
// order of package ipam with the truth of package lease: hints first, which
// cost nothing, and where they fail the API server's list of leases, so that
// "exhausted" is said only when it is true.
package allocate
