// SPDX-License-Identifier: Apache-2.0

// Package vf finds the PF of a virtual function (SR-IOV), and keeps what the PF can enforce beside the
// guard: the spoof check, and a fenced VF that is switched off.
package vf
