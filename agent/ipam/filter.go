package ipam

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/fenceline/fenceline/apis/v1alpha1"
)

// filter tells whether a pool may serve the request, or why not. Whether
// addresses are left is not asked here: only the API server knows.
func filter(req Request, pool *v1alpha1.IPPool, ipv6 bool, reserved Set) (Candidate, *Rejection) {
	reject := func(reason Reason, format string, args ...any) (Candidate, *Rejection) {
		return Candidate{}, &Rejection{pool.Name, reason, fmt.Sprintf(format, args...)}
	}
	spec := &pool.Spec
	switch {
	case pool.DeletionTimestamp != nil:
		return reject(Deleting, "it is being deleted")
	case spec.Disable != nil && *spec.Disable:
		return reject(Disabled, "it is disabled")
	case isIPv6(pool) != ipv6:
		return reject(WrongFamily, "its subnet %s is of the other family", spec.Subnet)
	}
	if err := Validate(pool); err != nil {
		return reject(Invalid, "it is invalid (%s)", strings.ReplaceAll(err.Error(), "\n", ", "))
	}
	if c := meta.FindStatusCondition(pool.Status.Conditions, v1alpha1.ConditionReady); c != nil &&
		c.Status == metav1.ConditionFalse && c.ObservedGeneration == pool.Generation {
		// What one pool alone does not show, such as an overlap, the controller has found.
		return reject(NotReady, "it is not Ready (%s: %s)", c.Reason, c.Message)
	}
	if reason, detail := unmet(req, spec); reason != "" {
		return reject(reason, "%s", detail)
	}
	// Validate has seen both.
	subnet, _ := Subnet(pool)
	set, _ := Addresses(pool)
	if set.Len() == 0 {
		return reject(AllExcluded, "all its addresses are excluded")
	}
	if set = set.Minus(reserved); set.Len() == 0 {
		return reject(AllReserved, "all its addresses are reserved")
	}
	return Candidate{pool, subnet, set}, nil
}

// unmet returns the first affinity of the pool that the request does not
// meet. A list of names goes before the selector beside it.
func unmet(req Request, spec *v1alpha1.IPPoolSpec) (Reason, string) {
	const unlisted = "its %s %v does not list %s"
	const unmatched = "its %s (%s) does not match the labels of %s"
	node, namespace := "node "+req.NodeName, "namespace "+req.Pod.Namespace

	if len(spec.NodeName) > 0 {
		if !slices.Contains(spec.NodeName, req.NodeName) {
			return NodeName, fmt.Sprintf(unlisted, "nodeName", spec.NodeName, node)
		}
	} else if text, ok := matches(spec.NodeAffinity, req.NodeLabels); !ok {
		return NodeAffinity, fmt.Sprintf(unmatched, "nodeAffinity", text, node)
	}
	if len(spec.NamespaceName) > 0 {
		if !slices.Contains(spec.NamespaceName, req.Pod.Namespace) {
			return NamespaceName, fmt.Sprintf(unlisted, "namespaceName", spec.NamespaceName, namespace)
		}
	} else if text, ok := matches(spec.NamespaceAffinity, req.NamespaceLabels); !ok {
		return NamespaceAffinity, fmt.Sprintf(unmatched, "namespaceAffinity", text, namespace)
	}
	if text, ok := matches(spec.PodAffinity, req.Pod.Labels); !ok {
		return PodAffinity, fmt.Sprintf(unmatched, "podAffinity", text, req.Pod.describe())
	}
	if len(spec.MultusName) > 0 && !slices.Contains(spec.MultusName, req.Multus) {
		attachment := "the attachment " + req.Multus
		if req.Multus == "" {
			attachment = "the cluster's own network"
		}
		return MultusName, fmt.Sprintf(unlisted, "multusName", spec.MultusName, attachment)
	}
	return "", ""
}

// matches tells whether a selector, already validated, matches; an unset one does.
func matches(s *metav1.LabelSelector, of map[string]string) (text string, ok bool) {
	if !isSet(s) {
		return "", true
	}
	selector, err := metav1.LabelSelectorAsSelector(s)
	if err != nil {
		return err.Error(), false
	}
	return selector.String(), selector.Matches(labels.Set(of))
}

// isSet tells whether a selector restricts anything.
func isSet(s *metav1.LabelSelector) bool {
	return s != nil && len(s.MatchLabels)+len(s.MatchExpressions) > 0
}
