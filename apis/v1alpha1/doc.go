// SPDX-License-Identifier: Apache-2.0

// Package v1alpha1 has the records of Fenceline: the IPPool, from which addresses are chosen, the
// IPLease, which records that one address is in use, the ReservedIP, which keeps addresses back, the
// IPSubnet, from which the controller makes pools for applications, the LeaseHint, which tells an agent
// of the leases that others have changed, and the Move, which has the records of another IPAM.
//
// A field with omitempty is optional, and every other one is required. The rules of a field are CEL in
// the CRD, so the API server refuses bad input with a sentence and needs no webhook. A value that several
// fields share has a type with the rules, in values.go. The API server estimates the cost of each rule and
// refuses a CRD with an expensive one, so each list of addresses has at most 256 entries of at most 95
// characters. The controller checks the rest, such as the order of a range and the overlap of pools, and
// reports it as Ready=False. `make generate` writes the CRDs into the chart.
//
// +kubebuilder:object:generate=true
// +groupName=fenceline.io
package v1alpha1
