package reclaim

import (
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fenceline/fenceline/apis/v1alpha1"
)

const (
	// verifierPatience is how long the first verifier may take without an answer.
	verifierPatience = 5 * time.Second
	// unknownPause is how long an answer of Unknown of the first verifier stands.
	unknownPause = 10 * time.Second
	// maxBackoff is where both end, which double with each change of the
	// verifier: nobody is served by many who cannot tell being asked all the time.
	maxBackoff = 10 * time.Minute
	// conflictPatience is how long the other speaker of a conflict may go unheard by a
	// node that does not free the address: one that hears it notes so every 10 min.
	conflictPatience = 2 * maxBackoff
)

// decideQuarantined looks after the verification: whether somebody is on it, and
// whether what is known of the previous holder's machine has changed.
func decideQuarantined(f Facts) Action {
	spec := &f.Lease.Spec
	// Also after a conflict: it may have been the previous holder who answered.
	if a, ok := decideNewAssertion(f); ok {
		return a
	}
	if spec.Reason == v1alpha1.ReasonConflict {
		return decideConflict(f)
	}
	if spec.NodeName == "" || !f.Verifier.Alive {
		return Action{Kind: Reassign, Why: fmt.Sprintf("verifier %q is not there", spec.NodeName)}
	}
	patience, why := backoff(verifierPatience, f.Verifier.Changes), fmt.Sprintf("verifier %s has not answered", spec.NodeName)
	if spec.Message != "" {
		// A verifier that cannot decide says so in the message (Unknown).
		patience, why = backoff(unknownPause, f.Verifier.Changes), fmt.Sprintf("verifier %s: %s", spec.NodeName, spec.Message)
	}
	if due := f.Verifier.AskedAt.Add(patience); f.Now.Before(due) {
		return Action{Kind: Wait, Until: due, Why: why}
	}
	return Action{Kind: Reassign, Why: why}
}

// decideConflict: the node that met the conflict probes again and again with its
// own back-off. It gives the lease into other hands only if it is gone, away for
// longer than that back-off lasts, or deaf: one that hears neither the other
// speaker nor anybody else could not tell when that one has left.
func decideConflict(f Facts) Action {
	spec, verifier := &f.Lease.Spec, f.Verifier
	since, patience, why := verifier.AwaySince, maxBackoff, fmt.Sprintf("node %s, which met the conflict, is not there", spec.NodeName)
	switch {
	case spec.NodeName == "" || verifier.Node.Absent():
		return Action{Kind: Reassign, Why: fmt.Sprintf("node %q, which met the conflict, does not exist", spec.NodeName)}
	case !verifier.Node.Known, verifier.Alive && spec.Conflict == nil:
		return none("its node probes again")
	case verifier.Alive:
		since, patience = latest(verifier.AskedAt, spec.Conflict.LastSeen.Time), conflictPatience
		why = fmt.Sprintf("node %s probes again, and cannot tell whether the other speaker has left", spec.NodeName)
	}
	if due := since.Add(patience); f.Now.Before(due) {
		return Action{Kind: Wait, Until: due, Why: why}
	}
	return Action{Kind: Reassign, Why: why}
}

// decideNewAssertion: a machine that was only silent is now said to be off, which
// lets a verifier take silence for proof where it could not before.
func decideNewAssertion(f Facts) (Action, bool) {
	previous := f.Lease.Spec.Previous
	if previous == nil || previous.Node == "" || !f.Node.Known {
		return Action{}, false
	}
	node := stateOf(f.Node)
	if !node.asserted() || isAssertion(previous.Reason) {
		return Action{}, false
	}
	return Action{Kind: Quarantine, Reason: node.reason(),
		Why: fmt.Sprintf("node %s is gone or out of service", previous.Node)}, true
}

func isAssertion(reason v1alpha1.LeaseReason) bool {
	return reason == v1alpha1.ReasonNodeGone || reason == v1alpha1.ReasonOutOfService
}

// backoff doubles a pause with each change of the verifier.
func backoff(pause time.Duration, changes int) time.Duration {
	for ; changes > 0 && pause < maxBackoff; changes-- {
		pause *= 2
	}
	return min(pause, maxBackoff)
}

// quarantined returns the spec of a lease that is taken from its holder. The
// holder stays on record: it names the pod, for people and so that the next pod
// of a StatefulSet finds its address. previous tells the verifier whom to fence;
// one that is recorded already was never proven safe, so it stays. So does what is
// known of it where a take-over was not confirmed: the reason is then its successor's,
// which has not spoken yet, and the end of that one's machine proves nothing.
func quarantined(old v1alpha1.IPLeaseSpec, reason v1alpha1.LeaseReason, verifier string, now time.Time) v1alpha1.IPLeaseSpec {
	spec := *old.DeepCopy()
	if spec.Previous == nil {
		spec.Previous = &v1alpha1.PreviousHolder{Node: old.NodeName, Session: old.Session}
		if h := old.Holder; h != nil {
			spec.Previous.PodUID, spec.Previous.MAC, spec.Previous.Guarded = h.PodUID, h.MAC, h.Guarded
		}
	}
	if old.Previous == nil || old.State == v1alpha1.StateQuarantined {
		spec.Previous.Reason, spec.Previous.Since = reason, metav1.NewTime(now)
	}
	spec.State = v1alpha1.StateQuarantined
	spec.Reason = reason
	spec.Since = metav1.NewTime(now)
	// The session is the holder's life; nobody may act on it without verification (R8).
	spec.Session = ""
	return reassigned(spec, verifier)
}

// reassigned returns the spec of a Quarantined lease with another verifier. The
// last verifier's message goes: a message is an answer.
func reassigned(old v1alpha1.IPLeaseSpec, verifier string) v1alpha1.IPLeaseSpec {
	spec := *old.DeepCopy()
	spec.Message = ""
	if verifier != "" {
		spec.NodeName = verifier
	}
	return spec
}
