// SPDX-License-Identifier: Apache-2.0

// Package pins knows the directory on the host's bpffs in which the maps and the links of the
// kernel programs outlive a process.
package pins
