// SPDX-License-Identifier: Apache-2.0

// Package guard loads the programs of guards: the large ones, which all interfaces share, and the small
// one of each interface, which calls them.
package guard

// The compiler is pinned, as in package bpf.
//
//go:generate go tool bpf2go -target bpfel -cc clang-14 -strip llvm-strip-14 -cflags "-O2 -g -Wall -Wextra -Werror -nostdinc -I../src/headers -I../src -mcpu=v3" -type guard_program -type slot -type slot_status -type where code ../src/guard.c
