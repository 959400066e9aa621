// SPDX-License-Identifier: Apache-2.0

// Package poolset computes with the addresses of IPPools and ReservedIPs. It reads the entries of
// a spec into a Set, names the problems of a pool, and encodes the bitmap of addresses in use.
//
// Agent and controller use it, so that both read a pool in the same way. Other programs may import
// it to compute what a pool hands out. Every function is pure: it reads its arguments only, and
// uses no clock, no API server and no kernel. Only Reservations, Balancers and
// ReadReserved read from a client.
package poolset
