// SPDX-License-Identifier: Apache-2.0

// Package owners has objects of other projects in shape: the Rollout of Argo, the StatefulSet of
// OpenKruise, the virtual machines of KubeVirt, and networks with another IPAM. No controller of these projects runs;
// a test makes the pods in its stead.
package owners

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensions "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"

	"github.com/fenceline/fenceline/test/await"
)

// servedLimit is how long a custom resource may take to be served.
const servedLimit = 2 * time.Minute

// crd returns a custom resource that accepts every field.
func crd(group, kind, plural string, versions ...apiextensionsv1.CustomResourceDefinitionVersion) *apiextensionsv1.CustomResourceDefinition {
	for i := range versions {
		versions[i].Served, versions[i].Storage = true, i == 0
		versions[i].Schema = &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{
			Type: "object", XPreserveUnknownFields: ptr.To(true),
		}}
	}
	return &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: plural + "." + group},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: group, Scope: apiextensionsv1.NamespaceScoped, Versions: versions,
			Names: apiextensionsv1.CustomResourceDefinitionNames{Kind: kind, Plural: plural},
		},
	}
}

// scaled has the subresource scale.
func scaled() *apiextensionsv1.CustomResourceSubresources {
	return &apiextensionsv1.CustomResourceSubresources{Scale: &apiextensionsv1.CustomResourceSubresourceScale{
		SpecReplicasPath: ".spec.replicas", StatusReplicasPath: ".status.replicas",
	}}
}

// Rollouts is Argo's custom resource.
func Rollouts() *apiextensionsv1.CustomResourceDefinition {
	return crd("argoproj.io", "Rollout", "rollouts", apiextensionsv1.CustomResourceDefinitionVersion{Name: "v1alpha1", Subresources: scaled()})
}

// StatefulSets is OpenKruise's custom resource in both of its versions.
func StatefulSets() *apiextensionsv1.CustomResourceDefinition {
	scale := scaled()
	return crd("apps.kruise.io", "StatefulSet", "statefulsets",
		apiextensionsv1.CustomResourceDefinitionVersion{Name: "v1beta1", Subresources: scale},
		apiextensionsv1.CustomResourceDefinitionVersion{Name: "v1alpha1", Subresources: scale})
}

// Machines are the custom resources of KubeVirt's virtual machines and of their instances.
func Machines() []*apiextensionsv1.CustomResourceDefinition {
	return []*apiextensionsv1.CustomResourceDefinition{
		crd("kubevirt.io", "VirtualMachine", "virtualmachines", apiextensionsv1.CustomResourceDefinitionVersion{Name: "v1"}),
		crd("kubevirt.io", "VirtualMachineInstance", "virtualmachineinstances", apiextensionsv1.CustomResourceDefinitionVersion{Name: "v1"}),
	}
}

// Networks are the NetworkAttachmentDefinition of Multus, and the records of whereabouts and of Spiderpool.
func Networks() []*apiextensionsv1.CustomResourceDefinition {
	const spiderpool = "spiderpool.spidernet.io"
	v2 := apiextensionsv1.CustomResourceDefinitionVersion{Name: "v2beta1"}
	reserved := crd(spiderpool, "SpiderReservedIP", "spiderreservedips", v2)
	v2.Subresources = &apiextensionsv1.CustomResourceSubresources{Status: &apiextensionsv1.CustomResourceSubresourceStatus{}}
	pools, subnets := crd(spiderpool, "SpiderIPPool", "spiderippools", v2), crd(spiderpool, "SpiderSubnet", "spidersubnets", v2)
	v2.Subresources = nil
	for _, one := range []*apiextensionsv1.CustomResourceDefinition{pools, subnets, reserved} {
		one.Spec.Scope = apiextensionsv1.ClusterScoped
	}
	return []*apiextensionsv1.CustomResourceDefinition{
		crd("k8s.cni.cncf.io", "NetworkAttachmentDefinition", "network-attachment-definitions", apiextensionsv1.CustomResourceDefinitionVersion{Name: "v1"}),
		crd("whereabouts.cni.cncf.io", "IPPool", "ippools", apiextensionsv1.CustomResourceDefinitionVersion{Name: "v1alpha1"}),
		crd("whereabouts.cni.cncf.io", "OverlappingRangeIPReservation", "overlappingrangeipreservations", apiextensionsv1.CustomResourceDefinitionVersion{Name: "v1alpha1"}),
		pools, subnets, reserved, crd(spiderpool, "SpiderEndpoint", "spiderendpoints", v2),
	}
}

// NodeSlices is the NodeSlicePool of whereabouts, which its versions before 0.8 lack.
func NodeSlices() *apiextensionsv1.CustomResourceDefinition {
	return crd("whereabouts.cni.cncf.io", "NodeSlicePool", "nodeslicepools", apiextensionsv1.CustomResourceDefinitionVersion{Name: "v1alpha1"})
}

// Install installs custom resources and returns when they are served and listed. A client that asks
// for a kind before the server lists it takes the kind for unknown.
func Install(ctx context.Context, config *rest.Config, all ...*apiextensionsv1.CustomResourceDefinition) error {
	client, err := apiextensions.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("install custom resources: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, servedLimit)
	defer cancel()
	for _, crd := range all {
		if _, err := client.ApiextensionsV1().CustomResourceDefinitions().Create(ctx, crd, metav1.CreateOptions{}); err != nil {
			return fmt.Errorf("install custom resource %s: %w", crd.Name, err)
		}
	}
	for _, crd := range all {
		for _, version := range crd.Spec.Versions {
			path := fmt.Sprintf("/apis/%s/%s/%s", crd.Spec.Group, version.Name, crd.Spec.Names.Plural)
			err := await.Until(ctx, servedLimit, path, func(ctx context.Context) error {
				if _, err := client.ApiextensionsV1().RESTClient().Get().AbsPath(path).Param("limit", "1").DoRaw(ctx); err != nil {
					return err
				}
				return listed(client.Discovery(), crd.Spec.Group+"/"+version.Name, crd.Spec.Names.Kind)
			})
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// listed returns an error unless the server lists a kind.
func listed(server discovery.DiscoveryInterface, version, kind string) error {
	_, lists, err := server.ServerGroupsAndResources()
	for _, list := range lists {
		isKind := func(r metav1.APIResource) bool { return r.Kind == kind }
		if list.GroupVersion == version && slices.ContainsFunc(list.APIResources, isKind) {
			return nil
		}
	}
	return errors.Join(fmt.Errorf("%s of %s is not listed", kind, version), err)
}

func object(version, kind, namespace, name string, spec map[string]any) *unstructured.Unstructured {
	o := &unstructured.Unstructured{Object: map[string]any{"spec": spec}}
	o.SetAPIVersion(version)
	o.SetKind(kind)
	o.SetNamespace(namespace)
	o.SetName(name)
	return o
}

// StatefulSet returns a StatefulSet of OpenKruise.
func StatefulSet(namespace, name string, replicas int64) *unstructured.Unstructured {
	return object("apps.kruise.io/v1beta1", "StatefulSet", namespace, name, map[string]any{"replicas": replicas})
}

// Machine returns a virtual machine.
func Machine(namespace, name, runStrategy string) *unstructured.Unstructured {
	return object("kubevirt.io/v1", "VirtualMachine", namespace, name, map[string]any{"runStrategy": runStrategy})
}

// Instance returns the instance of a virtual machine.
func Instance(namespace, name string) *unstructured.Unstructured {
	return object("kubevirt.io/v1", "VirtualMachineInstance", namespace, name, map[string]any{})
}

// OfSet makes a pod that of a StatefulSet of OpenKruise.
func OfSet(set string) func(*corev1.Pod) {
	return func(pod *corev1.Pod) {
		pod.OwnerReferences = []metav1.OwnerReference{{
			APIVersion: "apps.kruise.io/v1beta1", Kind: "StatefulSet", Name: set, UID: "u", Controller: ptr.To(true),
		}}
	}
}

// OfMachine makes a pod that of a virtual machine. KubeVirt labels it so.
func OfMachine(machine string) func(*corev1.Pod) {
	return func(pod *corev1.Pod) {
		pod.Labels = map[string]string{"kubevirt.io": "virt-launcher", "vm.kubevirt.io/name": machine}
		pod.OwnerReferences = []metav1.OwnerReference{{
			APIVersion: "kubevirt.io/v1", Kind: "VirtualMachineInstance", Name: machine, UID: "u", Controller: ptr.To(true),
		}}
	}
}
