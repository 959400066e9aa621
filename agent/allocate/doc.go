// SPDX-License-Identifier: Apache-2.0

// Package allocate finds free addresses. It yields candidates in the order of package ipam, and its
// caller creates their leases. Hints come first, since they cost nothing. If they fail, the API
// server's list of leases decides, so that a pool is reported as exhausted only when it is.
package allocate
