// SPDX-License-Identifier: Apache-2.0

// Package faults makes one system call of this process fail, so that a test sees each step of the code
// under test fail.
//
// A seccomp filter hands over the calls by which Fenceline changes a network namespace (netlink, bpf,
// writes below /proc/sys, setns), and a thread decides about each of them. The filter stays until the
// process ends, so a test runs itself again in a process of its own (Alone). It needs root.
package faults
