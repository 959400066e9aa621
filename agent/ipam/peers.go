// SPDX-License-Identifier: Apache-2.0

package ipam

import (
	"context"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fenceline/fenceline/apis/v1alpha1"
)

// Peers reads from the cache what the controller wrote about agents. Safe for concurrent use.
type Peers struct {
	// Cache holds the pools and the pods of this node.
	Cache client.Reader
	// Pod is this agent's own pod.
	Pod client.ObjectKey
}

// Share returns this agent's share of every pool: the controller writes the
// index on the agent's pod, and the number of shares on the pools. The share is
// zero while they are unknown, which only makes agents collide more often.
func (p *Peers) Share() Share {
	self := &corev1.Pod{}
	if err := p.Cache.Get(context.Background(), p.Pod, self, client.UnsafeDisableDeepCopy); err != nil {
		return Share{}
	}
	index, err := strconv.Atoi(self.Annotations[v1alpha1.AnnotationAgentIndex])
	if err != nil {
		return Share{}
	}
	_, shares := p.count()
	return Share{Index: index, Count: shares}
}

// Others reports whether there are other agents that this agent may hear. It reports true while
// their number is unknown: silence then proves nothing until this agent has heard another one (R2).
func (p *Peers) Others() bool {
	agents, _ := p.count()
	return agents != 1
}

// count returns the number of agents, and of the shares into which they divide
// pools. Both are 0 until the controller has written them.
func (p *Peers) count() (agents, shares int) {
	pools := &v1alpha1.IPPoolList{}
	if err := p.Cache.List(context.Background(), pools, client.UnsafeDisableDeepCopy); err != nil {
		return 0, 0
	}
	for i := range pools.Items {
		status := &pools.Items[i].Status
		agents, shares = max(agents, int(status.Agents)), max(shares, int(status.Shares))
	}
	return agents, shares
}
