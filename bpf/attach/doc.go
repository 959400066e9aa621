// SPDX-License-Identifier: Apache-2.0

// Package attach puts programs on devices, in one of two ways: pinned tcx links, which outlive the
// process, or filters of a clsact qdisc, which enforce within a millisecond and work on kernels
// before 6.6. It knows the directory on the host's bpffs that has the pins of maps and links.
package attach
