// SPDX-License-Identifier: Apache-2.0

// Package reclaim takes addresses back from holders that do not release them.
//
// Decide is a pure function from Facts to an Action. The Reconciler gathers the facts and carries
// out the action by rule R11: nothing is reclaimed on one observation. The cached view proposes an
// action. A live read of the same objects must confirm it. The write names uid and resourceVersion
// of the lease that was judged.
//
// Reclaim frees no address. It quarantines the address. An agent then proves that the previous
// holder is fenced or silent (R1), and only that agent frees the address.
package reclaim

import (
	"fmt"
	"time"

	"github.com/fenceline/fenceline/apis/v1alpha1"
)

const (
	// orphanGrace is how long a pod outlives its Node object before it is deleted. The pod garbage
	// collector of Kubernetes waits as long, because the node may register again.
	orphanGrace = 40 * time.Second
	// mirrorGrace is the time for a kubelet to create a static pod's lost mirror pod again. It looks at
	// its pods every minute or more often.
	// Meanwhile the static pod lives on without an object.
	mirrorGrace = 5 * time.Minute
	// warmGrace is how long a Warm lease outlives its node's agent. With the policy AfterTerminating it
	// is also how long the lease outlives its node's silence. It is the default toleration of pods for
	// nodes that are not Ready, so pods become Terminating at the same time.
	warmGrace = 5 * time.Minute
	// ownerPeriod is how often an owner is read while it keeps an address that no pod has. It is for
	// owners that the controller does not watch: StatefulSets of other API groups, and virtual machines.
	ownerPeriod = time.Minute
)

// Decide returns the action for a lease. It never takes the address of a pod that Kubernetes
// considers Running (R12), and never acts on missing data (R11).
func Decide(f Facts) Action {
	if f.Lease.DeletionTimestamp != nil {
		return none("the lease is being deleted")
	}
	switch f.Lease.Spec.State {
	case v1alpha1.StateBound:
		if a, ok := decideHandOver(f); ok {
			return a
		}
		return untilMigrated(f, ifEnabled(f.Policy, afterAnswer(f, decideBound(f))))
	case v1alpha1.StateWarm:
		return ifEnabled(f.Policy, decideWarm(f))
	case v1alpha1.StateRetained:
		if isKeptForPod(&f.Lease.Spec) {
			// The address has no holder, so no address is taken while reclaim is switched off.
			return decideKeptForPod(f)
		}
		return ifEnabled(f.Policy, decideRetained(f))
	case v1alpha1.StateQuarantined:
		// The address is taken already. Its verification goes on while reclaim is switched off.
		return decideQuarantined(f)
	default:
		return none("the state of the lease is unknown")
	}
}

// ifEnabled withholds a destructive action while reclaim is switched off for the whole cluster.
func ifEnabled(p Policy, a Action) Action {
	if p.Enabled || !a.Destructive() {
		return a
	}
	return Action{Kind: None, Reason: a.Reason, Withheld: true, Tell: true, Why: "due, but reclaim is switched off: " + a.Why}
}

// afterAnswer leaves the ADD that has just bound the lease the time for its answer, whatever became of
// the pod and the node: an ADD that is answered in this time does not read its lease again.
func afterAnswer(f Facts, a Action) Action {
	if a.Kind != Quarantine {
		return a
	}
	return f.when(f.Lease.Spec.Since.Add(v1alpha1.AnswerTime), a)
}

func decideBound(f Facts) Action {
	spec := &f.Lease.Spec
	if spec.Holder == nil || spec.Holder.Pod == "" || spec.NodeName == "" {
		return Action{Kind: None, Tell: true, Reason: v1alpha1.ReasonNoHolder, Why: "the record names no holder"}
	}
	if !f.Pod.Known || !f.Node.Known {
		return none("pod or node could not be read")
	}
	pod := f.Pod.Object
	switch {
	case spec.Reason == v1alpha1.ReasonStoreWentBack && !stateOf(f.Node).asserted():
		// A new claim would have an older token than the holder's claim.
		return none("the store went back, and the holder cannot be fenced")
	case pod != nil && spec.Holder.PodUID == "":
		// This pod may be the holder.
		return Action{Kind: None, Tell: true, Reason: v1alpha1.ReasonNoHolder, Why: "the record names no UID, and a pod of that name exists"}
	case pod == nil || !isHolder(pod, spec.Holder.PodUID):
		return afterOffer(f, decideLost(f))
	case pod.Spec.NodeName == "":
		return none("the pod has no node yet")
	case pod.Spec.NodeName != spec.NodeName:
		// An agent can write any pod into the leases of its node. Its node must not decide about this pod.
		return Action{Kind: None, Tell: true, Reason: v1alpha1.ReasonNoHolder, Why: fmt.Sprintf("pod %s/%s is on node %s, and the record says node %s",
			pod.Namespace, pod.Name, pod.Spec.NodeName, spec.NodeName)}
	default:
		return afterOffer(f, decidePresent(f))
	}
}

// decidePresent is for leases with a pod of the holder's UID.
func decidePresent(f Facts) Action {
	pod, node := f.Pod.Object, stateOf(f.Node)
	switch {
	case pod.Spec.HostNetwork:
		return none("the pod is on the host's network")
	case pod.IsFinished():
		due := f.finishedAt().Add(gracePeriod(pod)).Add(f.Policy.ExtraGrace)
		why := fmt.Sprintf("pod %s/%s is %s", pod.Namespace, pod.Name, pod.StatusOrEmpty().Phase)
		return f.quarantineAt(due, v1alpha1.ReasonPodFinished, why)
	case node.asserted():
		return decideAsserted(f, node)
	case !isTerminating(pod):
		return decideRunning(f, node)
	default:
		return decideTerminating(f, node)
	}
}

// decideAsserted is for pods on a machine that is asserted to be off. They are deleted at once, as
// Kubernetes' garbage collector does.
func decideAsserted(f Facts, node nodeState) Action {
	pod := f.Pod.Object
	why := fmt.Sprintf("node %s is out of service", f.Lease.Spec.NodeName)
	if node == nodeGone {
		why = fmt.Sprintf("node %s does not exist", f.Lease.Spec.NodeName)
	}
	if isForceDeleted(pod) {
		return Action{Kind: Quarantine, Reason: node.reason(), Why: why}
	}
	deletion := Action{Kind: DeletePod, Reason: node.reason(), Force: true, Why: why}
	if node == nodeGone {
		return f.when(f.Node.AbsentSince.Add(orphanGrace), deletion)
	}
	return deletion
}

// decideRunning is for pods that Kubernetes considers Running or starting.
func decideRunning(f Facts, node nodeState) Action {
	pod, policy := f.Pod.Object, f.Policy
	if node != nodeSilent || !policy.NodeDown.DeletePods || !policy.Terminating {
		return none("the pod is alive")
	}
	why := fmt.Sprintf("pod %s/%s is on node %s, which is not Ready", pod.Namespace, pod.Name, f.Lease.Spec.NodeName)
	due := silentSince(f.Node.Object, f.Now).Add(policy.NodeDown.After)
	if pod.DeletionTimestamp != nil { // a mirror pod, which is deleted already
		return f.quarantineAt(due, node.reason(), why)
	}
	return f.when(due, Action{Kind: DeletePod, Reason: node.reason(), Why: why})
}

// decideTerminating is for pods that are Terminating.
func decideTerminating(f Facts, node nodeState) Action {
	pod := f.Pod.Object
	reason, why := v1alpha1.ReasonPodTerminating, fmt.Sprintf("pod %s/%s is still Terminating", pod.Namespace, pod.Name)
	// deletionTimestamp already includes the pod's grace period.
	due := pod.DeletionTimestamp.Add(f.Policy.ExtraGrace)
	if node == nodeSilent {
		reason, why = node.reason(), fmt.Sprintf("%s on node %s, which is not Ready", why, f.Lease.Spec.NodeName)
		due = latest(due, silentSince(f.Node.Object, f.Now).Add(f.Policy.NodeDown.After))
	}
	switch {
	case f.Now.Before(due):
		return Action{Kind: Wait, Until: due, Why: why}
	case !f.Policy.Terminating:
		return Action{Kind: None, Tell: true, Why: why + ", and reclaim.terminating is false"}
	case node == nodeSilent && !f.Policy.NodeDown.Take:
		return noneFromSilent(f)
	default:
		return Action{Kind: Quarantine, Reason: reason, Why: why}
	}
}

// decideLost is for leases without their holder's pod: no pod has the name, or the pod of that name
// has another UID.
func decideLost(f Facts) Action {
	spec, pod, node := &f.Lease.Spec, f.Pod.Object, stateOf(f.Node)
	reason, lostAt := v1alpha1.ReasonPodGone, f.Pod.AbsentSince
	why := fmt.Sprintf("pod %s/%s does not exist", spec.Holder.Namespace, spec.Holder.Pod)
	switch {
	case pod != nil:
		reason, lostAt = v1alpha1.ReasonPodReplaced, pod.CreationTimestamp.Time
		why = fmt.Sprintf("pod %s/%s exists with another UID", spec.Holder.Namespace, spec.Holder.Pod)
	case f.PodSeen:
		reason, why = v1alpha1.ReasonPodDeleted, fmt.Sprintf("pod %s/%s was deleted", spec.Holder.Namespace, spec.Holder.Pod)
	}
	var grace time.Duration
	isStatic := isStaticUID(spec.Holder.PodUID)
	if pod == nil && isStatic {
		grace = mirrorGrace
	}
	switch {
	case pod != nil && isStatic && !isMirrorOn(pod, spec.NodeName) && !node.asserted():
		// The kubelet starts the next static pod of a name after the end of the earlier one. Any other
		// pod of the name only hinders it from making the mirror pod again.
		return Action{Kind: None, Tell: true, Reason: reason, Why: fmt.Sprintf("pod %s/%s has the name of the mirror pod of a static pod, "+
			"which may live: delete it, so that the kubelet of node %s can make the mirror pod again", pod.Namespace, pod.Name, spec.NodeName)}
	case node == nodeGone && grace > 0 && f.Now.Before(f.Node.AbsentSince.Add(orphanGrace)):
		// The Node object owned the mirror pod. The static pod may still live.
		return Action{Kind: Wait, Until: f.Node.AbsentSince.Add(orphanGrace), Why: why + ", and its node does not exist"}
	case node.asserted():
		return Action{Kind: Quarantine, Reason: node.reason(), Why: why + ", and its node is gone or out of service"}
	case node == nodeSilent && !f.Policy.NodeDown.Take:
		return noneFromSilent(f)
	case node == nodeSilent:
		// extraGrace is the time for a DEL. A silent node gets no DEL, so it gets no extraGrace.
		due := silentSince(f.Node.Object, f.Now).Add(f.Policy.NodeDown.After)
		if grace > 0 {
			due = latest(due, lostAt.Add(grace))
		}
		return f.quarantineAt(due, node.reason(), fmt.Sprintf("%s, and its node %s is not Ready", why, spec.NodeName))
	}
	// The node works. Its DEL has extraGrace after the loss. An ADD that has just bound the lease has
	// the same time.
	return f.quarantineAt(latest(lostAt, spec.Since.Time).Add(f.Policy.ExtraGrace+grace), reason, why)
}

// decideWarm is for Warm leases, which their own agent releases. If that agent may not work, the
// controller takes the lease. Otherwise unused addresses could exhaust a pool.
func decideWarm(f Facts) Action {
	spec := &f.Lease.Spec
	if !f.Node.Known || spec.NodeName == "" {
		return none("the node could not be read")
	}
	node := stateOf(f.Node)
	switch {
	case node == nodeReady && f.AgentAbsentSince.IsZero():
		return none("its own agent releases a Warm lease")
	case node == nodeReady:
		return f.quarantineAt(f.AgentAbsentSince.Add(warmGrace), v1alpha1.ReasonAgentGone,
			fmt.Sprintf("node %s, which kept the address ready, has no working agent", spec.NodeName))
	case node.asserted():
		return Action{Kind: Quarantine, Reason: node.reason(), Why: fmt.Sprintf("node %s is gone or out of service", spec.NodeName)}
	case !f.Policy.NodeDown.Take:
		return none(fmt.Sprintf("node %s is not Ready, and reclaim.nodeDown is %s", spec.NodeName, f.Policy.NodeDown))
	}
	grace := warmGrace
	if f.Policy.NodeDown.DeletePods {
		grace = f.Policy.NodeDown.After
	}
	return f.quarantineAt(silentSince(f.Node.Object, f.Now).Add(grace), node.reason(),
		fmt.Sprintf("node %s, which kept the address ready, is not Ready", spec.NodeName))
}

func decideRetained(f Facts) Action {
	// The successor may be a Bound lease that an earlier pod of the name left behind, so the UID counts.
	if s := f.Successor; s != nil && f.Pod.Object != nil && belongsTo(&s.Spec, f.Pod.Object) {
		return hasAnother(s)
	}
	if f.Reserved != nil {
		return isReserved(f.Reserved)
	}
	end := endOfRetention(&f.Lease.Spec, f.Owner, f.Policy.RetentionLimit, f.Now)
	switch {
	case !end.At.IsZero() && !f.Now.Before(end.At):
		return Action{Kind: EndRetention, Why: end.Why}
	case f.Owner.Unwatched:
		return awaitUnwatched(f, end)
	case end.At.IsZero():
		return Action{Kind: None, Tell: f.Owner.Unreadable != "", Why: end.Why}
	}
	return Action{Kind: Wait, Until: end.At, Tell: true, Why: keptUntil(end)}
}

// awaitUnwatched looks again at an owner that no event reports. The message has the reason if the
// owner cannot be read: the address stays until it can (R11).
func awaitUnwatched(f Facts, end retentionEnd) Action {
	a := Action{Kind: Wait, Until: f.Now.Add(ownerPeriod), Tell: !f.Owner.Known() || f.Owner.Unreadable != "", Why: end.Why}
	if !end.At.IsZero() {
		a.Tell, a.Why = true, keptUntil(end)
		if end.At.Before(a.Until) {
			a.Until = end.At
		}
	}
	return a
}

func keptUntil(end retentionEnd) string {
	return fmt.Sprintf("kept until %s: %s", end.At.UTC().Format(time.RFC3339), end.Why)
}

// decideKeptForPod is for addresses of sandboxes that have ended, while their pod lives. The next
// sandbox gets the address, so the lease ends with the pod. The DEL has fenced the old sandbox.
func decideKeptForPod(f Facts) Action {
	holder, pod := f.Lease.Spec.Holder, f.Pod.Object
	switch {
	case !f.Pod.Known:
		return none("the pod could not be read")
	case pod == nil && isStaticUID(holder.PodUID) && f.Now.Before(f.Pod.AbsentSince.Add(mirrorGrace)):
		return Action{Kind: Wait, Until: f.Pod.AbsentSince.Add(mirrorGrace), Why: "the kubelet may make the mirror pod again"}
	case pod == nil:
		return endFor("pod %s/%s does not exist", holder)
	case !isHolder(pod, holder.PodUID):
		return endFor("pod %s/%s exists with another UID", holder)
	case pod.IsFinished():
		return endFor("pod %s/%s has finished", holder)
	case isTerminating(pod):
		return endFor("pod %s/%s is Terminating", holder)
	case f.Successor != nil && belongsTo(&f.Successor.Spec, pod):
		return hasAnother(f.Successor)
	case f.Reserved != nil:
		return isReserved(f.Reserved)
	}
	return none("the pod lives, and its next sandbox gets the address")
}

func endFor(why string, holder *v1alpha1.Holder) Action {
	return Action{Kind: EndRetention, Why: fmt.Sprintf(why, holder.Namespace, holder.Pod)}
}

// hasAnother ends the retention of an address whose pod has the address of l instead.
func hasAnother(l *v1alpha1.IPLease) Action {
	return Action{Kind: EndRetention, Why: fmt.Sprintf("pod %s/%s now has %s on interface %s",
		l.Spec.Holder.Namespace, l.Spec.Holder.Pod, l.Spec.Address, l.Spec.Holder.Interface)}
}

// isReserved ends the retention of an address that is kept for somebody else. The next pod of its holder leaves it
// anyway, and may be waiting for an address whose holder waits for this one.
func isReserved(by *v1alpha1.ReservedIP) Action {
	return Action{Kind: EndRetention, Why: fmt.Sprintf("ReservedIP %s keeps the address for %s", by.Name, by.Spec.For)}
}

func none(why string) Action { return Action{Kind: None, Why: why} }

func noneFromSilent(f Facts) Action {
	return Action{Kind: None, Tell: true, Why: fmt.Sprintf("node %s is not Ready, and reclaim.nodeDown is %s", f.Lease.Spec.NodeName, f.Policy.NodeDown)}
}

func (f Facts) quarantineAt(due time.Time, reason v1alpha1.LeaseReason, why string) Action {
	return f.when(due, Action{Kind: Quarantine, Reason: reason, Why: why})
}

// when returns an action if it is due, and waits for it otherwise.
func (f Facts) when(due time.Time, a Action) Action {
	if f.Now.Before(due) {
		return Action{Kind: Wait, Until: due, Why: a.Why}
	}
	return a
}

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
