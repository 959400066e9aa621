// SPDX-License-Identifier: Apache-2.0

package bpf

// The compiler is pinned: another version writes other objects, and `make verify` compares them byte by byte.
//
//go:generate go tool bpf2go -target bpfel -cc clang-14 -strip llvm-strip-14 -cflags "-O2 -g -Wall -Wextra -Werror -nostdinc -Isrc/headers -Isrc -mcpu=v3" -type lease_key -type lease -type state -type slot -type source_key -type source_mac -type offence_key -type offence -type local_key -type parent -type sighting -type event -type claim_key -type event_type -type kind -type lease_flag -type local_index_entry -type local_segment -type network_limit -type parent_flag -type probe -type result -type slot_flag -type slot_limit -type slot_status -type source_family -type source_flag -type source_prefix -type where observer src/observer.c
//go:generate clang-14 -target bpfel -O2 -g -Wall -Wextra -Werror -nostdinc -Isrc/headers -Isrc -mcpu=v3 -fdebug-compilation-dir=. -c testdata/siphash.c -o testdata/siphash.o
//go:generate llvm-strip-14 -g testdata/siphash.o
