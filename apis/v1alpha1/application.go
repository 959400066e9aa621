// SPDX-License-Identifier: Apache-2.0

package v1alpha1

// Application is one interface of the pods of an application: of a Deployment, of another object that
// owns pods, or of a pod that has no owner.
type Application struct {
	// apiGroup is the API group of the application, such as apps. Empty means the core group.
	//
	// +kubebuilder:validation:MaxLength=253
	APIGroup string `json:"apiGroup,omitempty"`
	// kind is the kind of the application, such as Deployment.
	//
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Kind string `json:"kind"`
	// namespace is the namespace of the application.
	//
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Namespace string `json:"namespace"`
	// name is the name of the application.
	//
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
	// interface is the name of the interface in the pods, such as eth0, or its number, from 0, among
	// the interfaces that Fenceline serves.
	//
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=15
	Interface string `json:"interface"`
	// reclaim deletes the pool with the application. If it is false, the pool stays, and serves the
	// next application of the kind and name. Unset means true.
	Reclaim *bool `json:"reclaim,omitempty"`
}
