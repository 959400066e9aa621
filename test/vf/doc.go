// SPDX-License-Identifier: Apache-2.0

// Package vf is the rig of SR-IOV. It works in a guest of test/guest with -sriov. Two hosts have a
// network card (PF) each, which is cabled to a switch, and virtual functions (VFs) of it. All of
// test/namespaces and test/nodes works on these hosts too.
//
//	        sw: br0
//	┌─────────┴─────────┐
//	ul0 of n1          ul0 of n2    the PFs
//	 ├ vf0, vf1 …       ├ vf0, vf1 …
//	 pods               pods
//
// A host is a network namespace, but the kernel does not know that it is a machine: new VFs, and VFs
// of an ended namespace of a pod, appear in the namespace of the test process. Collect moves them.
package vf
