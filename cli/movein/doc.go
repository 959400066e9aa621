// SPDX-License-Identifier: Apache-2.0

// Package movein plans the move of a network from another IPAM to Fenceline. All of it is pure.
package movein
