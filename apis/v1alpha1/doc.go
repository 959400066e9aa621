// Package v1alpha1 holds the records of Fenceline: the IPPool from which
// addresses are chosen and the IPLease that one address is in use.
//
// The rules that a record must keep stand as CEL beside its fields, so that the
// API server refuses bad input with a sentence, without webhook or certificate.
// The estimator of the API server bounds them: lists of addresses have at most
// 256 items of at most 95 characters (an IPv6 range), and the order of an IPv6
// range, or an overlap of two pools, is out of reach and reported by the
// controller as Ready=False. `make generate` writes the CRDs into the chart.
//
// +kubebuilder:object:generate=true
// +groupName=fenceline.io
package v1alpha1
