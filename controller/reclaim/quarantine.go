// SPDX-License-Identifier: Apache-2.0

package reclaim

import (
	"context"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/internal/loop"
	"github.com/fenceline/fenceline/internal/poolset"
)

const (
	// verifierPatience is how long the first verifier may take to answer.
	verifierPatience = 5 * time.Second
	// unknownPause is how long the first verifier stays assigned after the answer Unknown.
	unknownPause = 10 * time.Second
	// maxBackoff limits both durations, which double with each change of the verifier. Frequent
	// changes between verifiers that cannot decide do not help.
	maxBackoff = 10 * time.Minute
	// conflictPatience is how long a verifier that has not heard the other speaker of a conflict stays
	// assigned. A verifier that hears the speaker writes this to the lease every 10 min.
	conflictPatience = 2 * maxBackoff
)

// decideQuarantined keeps the verification going. It assigns another verifier where necessary, and
// passes on news about the previous holder's machine.
func decideQuarantined(f Facts) Action {
	spec := &f.Lease.Spec
	if a, ok := decideUnwanted(f); ok {
		return a
	}
	// This applies also after a conflict, because the previous holder may have answered the probe.
	if a, ok := decideNewAssertion(f); ok {
		return a
	}
	if f.Lease.IsHold() {
		// Only the agent of its node can find out that the pod of another IPAM is gone: it has no guard, so
		// silence proves nothing (R1).
		return none("the agent of the pod's node adopts the pod, or proves that it is gone")
	}
	if spec.Reason == v1alpha1.ReasonConflict {
		return decideConflict(f)
	}
	if spec.NodeName == "" || !f.Verifier.Alive {
		return Action{Kind: Reassign, Why: fmt.Sprintf("verifier %q is not alive", spec.NodeName)}
	}
	patience, why := pauseAfter(f.Verifier.Changes, verifierPatience), fmt.Sprintf("verifier %s has not answered", spec.NodeName)
	if spec.Message != "" {
		// A verifier that cannot decide writes its reason to the message (Unknown).
		patience, why = pauseAfter(f.Verifier.Changes, unknownPause), fmt.Sprintf("verifier %s: %s", spec.NodeName, spec.Message)
	}
	return f.when(f.Verifier.AskedAt.Add(patience), Action{Kind: Reassign, Why: why})
}

// decideConflict is for conflicts. The node that found the conflict probes again with its own
// back-off. Another verifier is assigned only if that node is gone, is not alive for a few seconds, or
// is deaf. A deaf node cannot find out whether the other speaker has left.
func decideConflict(f Facts) Action {
	spec, verifier := &f.Lease.Spec, f.Verifier
	since, patience, why := verifier.AwaySince, verifierPatience, fmt.Sprintf("node %s, which found the conflict, is not alive", spec.NodeName)
	switch {
	case spec.NodeName == "" || verifier.Node.Known && verifier.Node.Object == nil:
		return Action{Kind: Reassign, Why: fmt.Sprintf("node %q, which found the conflict, does not exist", spec.NodeName)}
	case !verifier.Node.Known, verifier.Alive && spec.Conflict == nil:
		return none("its node probes again")
	case verifier.Alive:
		since, patience = latest(verifier.AskedAt, spec.Conflict.LastSeen.Time), conflictPatience
		why = fmt.Sprintf("node %s cannot tell whether the other speaker has left", spec.NodeName)
	}
	return f.when(since.Add(patience), Action{Kind: Reassign, Why: why})
}

// decideNewAssertion is for machines that were silent and are now asserted to be off. With this
// assertion a verifier may accept silence as proof. It reports whether there is such an assertion.
func decideNewAssertion(f Facts) (Action, bool) {
	previous := f.Lease.Spec.Previous
	if previous == nil || previous.Node == "" || !f.Node.Known {
		return Action{}, false
	}
	node := stateOf(f.Node)
	if !node.asserted() || isAssertion(previous.Reason) {
		return Action{}, false
	}
	why := fmt.Sprintf("node %s is gone or out of service", previous.Node)
	return Action{Kind: Quarantine, Reason: node.reason(), Why: why}, true
}

func isAssertion(reason v1alpha1.LeaseReason) bool {
	return reason == v1alpha1.ReasonNodeGone || reason == v1alpha1.ReasonOutOfService
}

// pauseAfter returns a pause that doubles with each change of the verifier, up to maxBackoff.
func pauseAfter(changes int, first time.Duration) time.Duration {
	return loop.Pause(first, maxBackoff, changes+1)
}

// quarantined returns the spec of a lease that is taken from its holder.
//
// The holder stays in the spec. Its pod's name is for operators, and for the next pod of a
// StatefulSet, which finds its address by it.
//
// previous is the holder that the verifier must fence. A recorded previous holder stays, because it
// was never proven safe. Its reason stays as well if the take-over by a successor was not confirmed.
// In this case the new reason is about the successor. The successor has not spoken yet, so the end
// of the successor's machine proves nothing.
func quarantined(old v1alpha1.IPLeaseSpec, reason v1alpha1.LeaseReason, verifier string, now time.Time) v1alpha1.IPLeaseSpec {
	spec := *old.DeepCopy()
	if spec.Previous == nil {
		spec.Previous = &v1alpha1.PreviousHolder{Node: old.NodeName, Session: old.Session}
		if h := old.Holder; h != nil {
			p := spec.Previous
			p.PodUID, p.MAC, p.Guarded, p.Token = h.PodUID, h.MAC, h.Guarded, h.Token
		}
	}
	if old.Previous == nil || old.State == v1alpha1.StateQuarantined {
		spec.Previous.Reason, spec.Previous.Since = reason, metav1.NewTime(now)
	}
	spec.State, spec.Reason, spec.Since = v1alpha1.StateQuarantined, reason, metav1.NewTime(now)
	// Without the session, no agent acts on the lease without verification (R8).
	spec.Session = ""
	return reassigned(spec, verifier)
}

// reassigned returns the spec of a Quarantined lease with another verifier. It removes the message,
// which is the answer of the last verifier.
func reassigned(old v1alpha1.IPLeaseSpec, verifier string) v1alpha1.IPLeaseSpec {
	spec := *old.DeepCopy()
	spec.Message = ""
	if verifier != "" {
		spec.NodeName = verifier
	}
	return spec
}

// Givers are the pools that may hand out the address of a lease.
type Givers struct {
	// Known is false if the pools and reservations were not read.
	Known bool
	Pools []string
}

// supply is all pools and reservations of the cluster.
type supply struct {
	pools    []v1alpha1.IPPool
	reserved poolset.Set
}

// decideUnwanted is for Quarantined leases of addresses that no pool hands out any more. Such a lease
// ends if it never had a holder. The host that uses the address may use it for years, and the deletion
// of the pool waits for the lease. If a pool gets the address again, an ADD probes it (R4).
func decideUnwanted(f Facts) (Action, bool) {
	if !f.Givers.Known || len(f.Givers.Pools) > 0 || !hadNoHolder(&f.Lease.Spec) {
		return Action{}, false
	}
	return Action{Kind: EndQuarantine, Why: fmt.Sprintf("no pool hands %s out any more", f.Lease.Spec.Address)}, true
}

// hadNoHolder reports whether no pod has ever had the address under this Quarantined lease. It is true
// for a conflict that an ADD has found, and for a lease that was Warm. It is false if spec.previous
// names a pod or a MAC: this predecessor must be proven safe (R1), also after its pool was made again. It is
// false for the address of a record of another IPAM, which may have had one: the pools may be closed meanwhile.
func hadNoHolder(spec *v1alpha1.IPLeaseSpec) bool {
	p := spec.Previous
	return spec.State == v1alpha1.StateQuarantined && spec.Holder == nil && spec.Reason != v1alpha1.ReasonMovingIn &&
		(p == nil || p.PodUID == "" && p.MAC == "")
}

func readSupply(ctx context.Context, reader client.Reader) (supply, error) {
	var pools v1alpha1.IPPoolList
	if err := reader.List(ctx, &pools, client.UnsafeDisableDeepCopy); err != nil {
		return supply{}, fmt.Errorf("list pools: %w", err)
	}
	reservations, err := poolset.Reservations(ctx, reader)
	if err != nil {
		return supply{}, err
	}
	return supply{pools.Items, poolset.ReservedSet(reservations).Minus(poolset.KeptSet(reservations))}, nil
}

// givers returns the pools that may hand out the address of a lease.
func (s supply) givers(lease *v1alpha1.IPLease) Givers {
	network, addr, err := v1alpha1.ParseLeaseName(lease.Name)
	if err != nil {
		return Givers{} // the CRD refuses such a name
	}
	return Givers{Known: true, Pools: poolset.Givers(network, addr, s.pools, s.reserved)}
}
