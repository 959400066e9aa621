// Package v1alpha1 holds the records of Fenceline: the IPPool from which
// addresses are chosen and the IPLease that one address is in use.
//
// +kubebuilder:object:generate=true
// +groupName=fenceline.io
package v1alpha1
