package reclaim

import (
	"fmt"
	"time"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/controller/retention"
)

const (
	// orphanGrace is how long a pod outlives its Node object before it is
	// deleted: what the pod garbage collector of Kubernetes waits, for the case
	// that the node registers anew.
	orphanGrace = 40 * time.Second
	// mirrorGrace covers the time in which a kubelet makes a static pod's lost
	// mirror pod again: its pod lives on without any object.
	mirrorGrace = 5 * time.Minute
)

// Decide says what to do with a lease. It never asks for the address of a pod
// that Kubernetes believes Running (R12), nor for any on missing data (R11).
func Decide(f Facts) Action {
	if f.Lease.DeletionTimestamp != nil {
		return none("the lease is being deleted")
	}
	switch f.Lease.Spec.State {
	case v1alpha1.StateBound:
		return decideBound(f)
	case v1alpha1.StateWarm:
		return decideWarm(f)
	case v1alpha1.StateQuarantined:
		return decideQuarantined(f)
	case v1alpha1.StateRetained:
		return decideRetained(f)
	default:
		return none("the lease is in no known state")
	}
}

func decideBound(f Facts) Action {
	spec := &f.Lease.Spec
	if spec.Holder == nil || spec.Holder.Pod == "" || spec.Holder.PodUID == "" || spec.NodeName == "" {
		return Action{Kind: None, Tell: true, Why: "the record names no holder"}
	}
	if !f.Pod.Known || !f.Node.Known {
		return none("pod or node could not be read")
	}
	pod := f.Pod.Object
	if pod != nil && isHolder(pod, spec.Holder.PodUID) {
		return decidePresent(f)
	}
	return decideLost(f)
}

// decidePresent is for leases whose holder's pod exists.
func decidePresent(f Facts) Action {
	pod, holder, node := f.Pod.Object, f.Lease.Spec.Holder, stateOf(f.Node)
	switch {
	case pod.Spec.HostNetwork:
		return none("the pod is on the host's network")
	case isFinished(pod):
		due := finishedAt(pod).Add(gracePeriod(pod)).Add(f.Policy.ExtraGrace)
		return quarantineAt(f.Now, due, v1alpha1.ReasonPodFinished,
			fmt.Sprintf("pod %s/%s is %s", pod.Namespace, pod.Name, pod.Status.Phase))
	case node.asserted():
		return decideAsserted(f, node)
	case !isTerminating(pod):
		return decideRunning(f, node)
	case !f.Policy.Terminating:
		return none("the pool takes no addresses of terminating pods")
	case node == nodeSilent && !f.Policy.takesFromSilent(holder):
		return noneFromSilent(f)
	default:
		// deletionTimestamp already includes the pod's grace period.
		due := pod.DeletionTimestamp.Add(f.Policy.ExtraGrace)
		return quarantineAt(f.Now, due, v1alpha1.ReasonPodTerminating,
			fmt.Sprintf("pod %s/%s is still Terminating", pod.Namespace, pod.Name))
	}
}

// decideAsserted is for pods that exist on a machine that somebody says is off.
// They are deleted as Kubernetes' garbage collector would, at once: no
// EndpointSlice may go on offering the address.
func decideAsserted(f Facts, node nodeState) Action {
	pod := f.Pod.Object
	why := fmt.Sprintf("node %s is out of service", f.Lease.Spec.NodeName)
	if node == nodeGone {
		why = fmt.Sprintf("node %s does not exist", f.Lease.Spec.NodeName)
	}
	if isForceDeleted(pod) {
		return Action{Kind: Quarantine, Reason: node.reason(), Why: why}
	}
	if node == nodeGone {
		if due := f.Node.AbsentSince.Add(orphanGrace); f.Now.Before(due) {
			return Action{Kind: Wait, Until: due, Why: why}
		}
	}
	return Action{Kind: DeletePod, Reason: node.reason(), Force: true, Why: why}
}

// decideRunning is for pods that Kubernetes believes Running, or about to.
func decideRunning(f Facts, node nodeState) Action {
	pod, policy := f.Pod.Object, f.Policy
	if node != nodeSilent || policy.NodeDownAfter <= 0 || !policy.takesFromSilent(f.Lease.Spec.Holder) {
		return none("the pod is alive")
	}
	why := fmt.Sprintf("pod %s/%s is on node %s, which is not Ready", pod.Namespace, pod.Name, f.Lease.Spec.NodeName)
	if due := silentSince(f.Node.Object).Add(policy.NodeDownAfter); f.Now.Before(due) {
		return Action{Kind: Wait, Until: due, Why: why}
	}
	return Action{Kind: DeletePod, Reason: v1alpha1.ReasonPodTerminating, Why: why}
}

// decideLost is for leases whose holder's pod is not there: no pod of that name,
// or another one.
func decideLost(f Facts) Action {
	spec, pod, node := &f.Lease.Spec, f.Pod.Object, stateOf(f.Node)
	reason, lostAt := v1alpha1.ReasonPodGone, f.Pod.AbsentSince
	why := fmt.Sprintf("pod %s/%s does not exist", spec.Holder.Namespace, spec.Holder.Pod)
	if pod != nil {
		reason, lostAt = v1alpha1.ReasonPodReplaced, pod.CreationTimestamp.Time
		why = fmt.Sprintf("pod %s/%s exists with another UID", spec.Holder.Namespace, spec.Holder.Pod)
	}
	switch {
	case node.asserted():
		return Action{Kind: Quarantine, Reason: node.reason(), Why: why + ", and its node is gone or out of service"}
	case node == nodeSilent && !f.Policy.takesFromSilent(spec.Holder):
		return noneFromSilent(f)
	case node == nodeSilent:
		// Nobody is there who could carry a DEL out: nothing to wait for.
		return Action{Kind: Quarantine, Reason: reason, Why: why}
	}
	// The node works: its DEL has extraGrace from the loss on, and an ADD that
	// has just bound the lease has it too.
	grace := f.Policy.ExtraGrace
	if pod == nil && isStaticUID(spec.Holder.PodUID) {
		grace += mirrorGrace
	}
	return quarantineAt(f.Now, latest(lostAt, spec.Since.Time).Add(grace), reason, why)
}

// decideWarm: only its own agent ends a Warm lease, so only a node that is gone
// gives it into other hands.
func decideWarm(f Facts) Action {
	if !f.Node.Absent() || f.Lease.Spec.NodeName == "" {
		return none("its own agent ends a Warm lease")
	}
	return Action{Kind: Quarantine, Reason: v1alpha1.ReasonNodeGone,
		Why: fmt.Sprintf("node %s does not exist", f.Lease.Spec.NodeName)}
}

func decideRetained(f Facts) Action {
	end := retention.Of(&f.Lease.Spec, f.Owner, f.Policy.RetentionLimit, f.Now)
	switch {
	case end.At.IsZero():
		return none("the retention has no end in sight")
	case f.Now.Before(end.At):
		return Action{Kind: Wait, Until: end.At, Why: end.Why}
	default:
		return Action{Kind: EndRetention, Why: end.Why}
	}
}

func none(why string) Action { return Action{Kind: None, Why: why} }

func noneFromSilent(f Facts) Action {
	why := fmt.Sprintf("node %s is not Ready, and reclaim.nodeDown is %s", f.Lease.Spec.NodeName, f.Policy.NodeDown)
	if !f.Lease.Spec.Holder.Guarded {
		why = fmt.Sprintf("node %s is not Ready, and a holder without a guard cannot be fenced", f.Lease.Spec.NodeName)
	}
	return Action{Kind: None, Tell: true, Why: why}
}

func quarantineAt(now, due time.Time, reason v1alpha1.LeaseReason, why string) Action {
	if now.Before(due) {
		return Action{Kind: Wait, Until: due, Why: why}
	}
	return Action{Kind: Quarantine, Reason: reason, Why: why}
}

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
