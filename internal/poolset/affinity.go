// SPDX-License-Identifier: Apache-2.0

package poolset

import (
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/fenceline/fenceline/apis/v1alpha1"
)

// The reasons for which a pool or an IPSubnet serves no pod of a namespace.
const (
	NamespaceName     Reason = "NamespaceName"
	NamespaceAffinity Reason = "NamespaceAffinity"
)

// OtherNamespaces returns the reason for which a pool serves no pod of a namespace with these labels, with
// a sentence for people, or "". If namespaceName is set, namespaceAffinity is ignored.
func OtherNamespaces(spec *v1alpha1.IPPoolSpec, namespace string, of map[string]string) (Reason, string) {
	if len(spec.NamespaceName) > 0 {
		if !slices.Contains(spec.NamespaceName, namespace) {
			return NamespaceName, fmt.Sprintf("its namespaceName %v does not list namespace %s", spec.NamespaceName, namespace)
		}
	} else if text, ok := Matches(spec.NamespaceAffinity, of); !ok {
		return NamespaceAffinity, fmt.Sprintf("its namespaceAffinity (%s) does not match the labels of namespace %s", text, namespace)
	}
	return "", ""
}

// Matches reports whether a validated selector matches the labels, and returns it as text. An unset
// selector matches.
func Matches(s *metav1.LabelSelector, of map[string]string) (text string, ok bool) {
	if s == nil {
		return "", true
	}
	selector, err := metav1.LabelSelectorAsSelector(s)
	if err != nil {
		return err.Error(), false
	}
	return selector.String(), selector.Matches(labels.Set(of))
}
