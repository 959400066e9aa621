// SPDX-License-Identifier: Apache-2.0

package ipam

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/internal/poolset"
)

// filter returns the candidate for a pool that may serve the request, or the reason why it cannot. It
// does not check whether an address is free, which only the API server knows.
func (c chooser) filter(pool *v1alpha1.IPPool, ipv6 bool) (Candidate, *Rejection) {
	reject := func(reason Reason, format string, args ...any) (Candidate, *Rejection) {
		return Candidate{}, &Rejection{pool.Name, reason, fmt.Sprintf(format, args...)}
	}
	spec := &pool.Spec
	if isIPv6(pool) != ipv6 {
		return reject(WrongFamily, "its subnet %s is of the other family", spec.Subnet)
	}
	all, err := poolset.Validate(pool)
	if err != nil {
		return reject(Invalid, "it is invalid (%s)", problems(err))
	}
	if reason, detail := c.unmet(spec); reason != "" {
		return reject(reason, "%s", detail)
	}
	subnet, _ := poolset.Subnet(pool) // Validate has checked it
	own := poolset.Own(pool, all, c.all)
	set := own.Minus(c.reserved.Minus(c.granted(pool, func(poolset.Grant) bool { return true })))
	closed := closedFor(pool, all, own, set)
	switch {
	case closed == nil:
		return Candidate{Pool: pool, Subnet: subnet, Set: set}, nil
	case c.req.keeps(pool.Name):
		return Candidate{Pool: pool, Subnet: subnet, Closed: closed}, nil
	}
	return Candidate{}, closed
}

// namedProblems is how many problems of a pool an error names. A pool has up to 8192 entries.
const namedProblems = 5

// problems returns the first problems of a pool, and the number of the others.
func problems(err error) string {
	all := strings.Split(err.Error(), "\n")
	text := strings.Join(all[:min(namedProblems, len(all))], ", ")
	if rest := len(all) - namedProblems; rest > 0 {
		text += fmt.Sprintf(" and %d more", rest)
	}
	return text
}

// closedFor returns why a valid pool hands out no new address, or nil; see poolset.Closed.
func closedFor(pool *v1alpha1.IPPool, all, own, left poolset.Set) *Rejection {
	details := map[poolset.Reason]string{
		poolset.Deleting:    "it is being deleted",
		poolset.Disabled:    "it is disabled",
		poolset.AllExcluded: "all its addresses are excluded",
		poolset.AllReserved: "all its addresses are reserved",
		poolset.Overlapping: "other pools hand out all its addresses; the condition Overlapping of the pool names them",
	}
	if reason := poolset.Closed(pool, nil, all, own, left); reason != "" {
		return &Rejection{pool.Name, Reason(reason), details[reason]}
	}
	// The controller may know a reason that an agent of this version does not.
	ready := meta.FindStatusCondition(pool.Status.Conditions, v1alpha1.ConditionReady)
	if ready != nil && ready.Status == metav1.ConditionFalse && ready.ObservedGeneration == pool.Generation {
		return &Rejection{pool.Name, NotReady, fmt.Sprintf("it is not Ready (%s: %s)", ready.Reason, ready.Message)}
	}
	return nil
}

// unmet returns the first affinity of the pool that the request does not match. If a list of names is
// set, the selector for the same objects is ignored.
func (c chooser) unmet(spec *v1alpha1.IPPoolSpec) (Reason, string) {
	req := c.req
	const unlisted = "its %s %v does not list %s"
	const unmatched = "its %s (%s) does not match the labels of %s"
	node := "node " + req.NodeName

	if len(spec.NodeName) > 0 {
		if !slices.Contains(spec.NodeName, req.NodeName) {
			return NodeName, fmt.Sprintf(unlisted, "nodeName", spec.NodeName, node)
		}
	} else if text, ok := poolset.Matches(spec.NodeAffinity, req.NodeLabels); !ok {
		return NodeAffinity, fmt.Sprintf(unmatched, "nodeAffinity", text, node)
	}
	if !req.Parent.Carries(spec) {
		return OtherParent, req.Parent.Missed(spec)
	}
	if reason, text := poolset.OtherNamespaces(spec, req.Pod.Namespace, req.NamespaceLabels); reason != "" {
		return Reason(reason), text
	}
	if reason, text := req.otherNamespaces(spec.IPSubnet); reason != "" {
		return reason, text
	}
	if text := req.ofApplication(spec.Application); text != "" {
		return Application, text
	}
	if text, ok := poolset.Matches(spec.PodAffinity, req.Pod.Labels); !ok {
		return PodAffinity, fmt.Sprintf(unmatched, "podAffinity", text, req.Pod.describe())
	}
	if definition := c.said.definition(); len(spec.MultusName) > 0 && !slices.Contains(spec.MultusName, definition) {
		attachment := "the attachment " + definition
		if definition == "" {
			attachment = "interface " + req.Interface + ", which neither an annotation of the pod nor Multus' configuration makes from a definition"
		}
		return MultusName, fmt.Sprintf(unlisted, "multusName", spec.MultusName, attachment)
	}
	return "", ""
}

// isSet reports whether a selector has a requirement.
func isSet(s *metav1.LabelSelector) bool {
	return s != nil && len(s.MatchLabels)+len(s.MatchExpressions) > 0
}

// OnNode returns the addresses that a pool may hand out on a node to any pod. If the pool hands out no
// new address there, the Rejection is the reason. The candidate has its set in that case too, unless
// the pool is invalid. pools are all pools of the cluster.
func OnNode(pool *v1alpha1.IPPool, pools []v1alpha1.IPPool, node string, labels map[string]string, reserved poolset.Set) (Candidate, *Rejection) {
	all, err := poolset.Validate(pool)
	if err != nil {
		return Candidate{Pool: pool}, &Rejection{pool.Name, Invalid, err.Error()}
	}
	subnet, _ := poolset.Subnet(pool) // Validate has checked it
	own := poolset.Own(pool, all, pools)
	c := Candidate{Pool: pool, Subnet: subnet, Set: own.Minus(reserved)}
	if elsewhere := ForNode(pool, node, labels); elsewhere != nil {
		return c, elsewhere
	}
	return c, closedFor(pool, all, own, c.Set)
}

// ForNode returns the reason for which a pool serves no pod of a node, nil if it is for the node.
func ForNode(pool *v1alpha1.IPPool, node string, labels map[string]string) *Rejection {
	if len(pool.Spec.NodeName) > 0 {
		if !slices.Contains(pool.Spec.NodeName, node) {
			return &Rejection{pool.Name, NodeName, "it is for other nodes"}
		}
	} else if text, ok := poolset.Matches(pool.Spec.NodeAffinity, labels); !ok {
		return &Rejection{pool.Name, NodeAffinity, text}
	}
	return nil
}
