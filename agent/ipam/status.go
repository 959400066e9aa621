// SPDX-License-Identifier: Apache-2.0

package ipam

import (
	"encoding/json"
	"fmt"
)

// AnnotationNetworkStatus is the annotation in which Multus tells the interfaces of a pod. Whoever may edit the pod
// may write it.
const AnnotationNetworkStatus = "k8s.v1.cni.cncf.io/network-status"

// InterfaceStatus is an interface in the annotation. Name is "<namespace>/<name>" of its definition.
type InterfaceStatus struct {
	Name      string   `json:"name"`
	Interface string   `json:"interface"`
	IPs       []string `json:"ips"`
	MAC       string   `json:"mac"`
}

// NetworkStatus returns the interfaces that the annotation of a pod tells, none without it.
func NetworkStatus(annotations map[string]string) (all []InterfaceStatus, err error) {
	text := annotations[AnnotationNetworkStatus]
	if text == "" {
		return nil, nil
	}
	if err := json.Unmarshal([]byte(text), &all); err != nil {
		return nil, fmt.Errorf("read annotation %s: %w", AnnotationNetworkStatus, err)
	}
	return all, nil
}
