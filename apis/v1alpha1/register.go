// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupName is the API group of all Fenceline records.
const GroupName = "fenceline.io"

// GroupVersion is the version that this package describes.
func GroupVersion() schema.GroupVersion {
	return schema.GroupVersion{Group: GroupName, Version: "v1alpha1"}
}

// AddToScheme registers the records with a scheme.
func AddToScheme(s *runtime.Scheme) error {
	s.AddKnownTypes(GroupVersion(),
		&IPPool{}, &IPPoolList{},
		&IPLease{}, &IPLeaseList{},
		&ReservedIP{}, &ReservedIPList{},
		&IPSubnet{}, &IPSubnetList{},
		&LeaseHint{}, &LeaseHintList{},
		&Move{}, &MoveList{},
	)
	metav1.AddToGroupVersion(s, GroupVersion())
	return nil
}
