// SPDX-License-Identifier: Apache-2.0

// Package guest runs a program on another kernel: in a QEMU guest that emulates the processor, with the kernel and
// the modules of a Debian package and nothing on its disk but what the program needs.
//
// The program that starts a guest is also the guest's first process (Init), so it must be linked statically. A guest
// has three serial lines: the kernel's console, the program's output, and the program's exit status. Whoever runs a
// guest can therefore tell a program that failed from a guest that gave no verdict (ErrNoVerdict).
package guest
