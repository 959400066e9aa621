// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// IPPoolStatus is the status of a pool. Only the controller writes it.
type IPPoolStatus struct {
	// observedGeneration of the spec that the status describes.
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// total is the number of addresses that the pool can hand out.
	Total int64 `json:"total,omitempty"`
	// used is the number of leases in any state.
	Used int64 `json:"used,omitempty"`
	// free is the number of addresses that the pool can hand out and that have no lease.
	Free int64 `json:"free,omitempty"`
	// bound, warm, quarantined and retained count the leases by state.
	Bound       int64 `json:"bound,omitempty"`
	Warm        int64 `json:"warm,omitempty"`
	Quarantined int64 `json:"quarantined,omitempty"`
	Retained    int64 `json:"retained,omitempty"`
	// inUse is a bitmap in base64 with one bit per offset in the subnet: bit i of byte j is offset
	// 8j+i. A set bit is an address that is in use or cools down. The bitmap is only a hint.
	InUse string `json:"inUse,omitempty"`
	// scarce makes agents release their Warm leases.
	Scarce bool `json:"scarce,omitempty"`
	// stock is the number of addresses that each node may keep ready on each parent: spec.warm, or the
	// number that the controller has chosen because warm is unset.
	Stock int64 `json:"stock,omitempty"`
	// agents is the number of node agents, with or without an index.
	Agents int64 `json:"agents,omitempty"`
	// served is the number of agents on nodes that the pool allows.
	Served int64 `json:"served,omitempty"`
	// shares is the number of parts into which agents divide the pool. Each index of an agent's pod
	// has at least one part.
	Shares int64 `json:"shares,omitempty"`
	// reserved is the number of addresses of the pool that a ReservedIP or a load balancer keeps back.
	Reserved int64 `json:"reserved,omitempty"`
	// withheld lists addresses of the pool that other pools hand out. The pool does not hand them out.
	// +listType=atomic
	Withheld []Withheld `json:"withheld,omitempty"`
	// conditions: Ready, Overlapping, Exhausted, Unfenced, Outside, StoreWentBack, AnsweredByOne, SharedMAC.
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// Withheld is the addresses of a pool that another pool hands out.
type Withheld struct {
	// pool is the pool that hands out the addresses.
	Pool string `json:"pool"`
	// ips lists ranges "first-last" and single addresses.
	// +listType=atomic
	IPs []string `json:"ips"`
}

// Condition types of an IPPool.
const (
	ConditionReady       = "Ready"
	ConditionOverlapping = "Overlapping"
	ConditionExhausted   = "Exhausted"
	ConditionUnfenced    = "Unfenced"
	// ConditionOutside: leases have addresses that the pool no longer hands out, because ips,
	// excludeIPs, gateway or a reservation has changed.
	ConditionOutside = "Outside"
	// ConditionStoreWentBack: the API server's store was restored without --bump-revision. Holders
	// with a token from before cannot be fenced until the store reaches their tokens.
	ConditionStoreWentBack = "StoreWentBack"
	// ConditionAnsweredByOne: one foreign host answers for ManyAddresses addresses of the pool, or for
	// more. It may be a proxy.
	ConditionAnsweredByOne = "AnsweredByOne"
	// ConditionSharedMAC: pods of the pool have one MAC on several nodes.
	ConditionSharedMAC = "SharedMAC"
)
