// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"net"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// AnswerTime is the time after the write of a Bound lease in which the controller does not take the
// address: an ADD that is answered meanwhile need not read its lease again.
const AnswerTime = 5 * time.Second

// RecordToken records the fencing token of the holder of a Bound lease, if no write has done so yet.
// Call it before each write that does not bind the lease: the write changes the resourceVersion.
func (l *IPLease) RecordToken() {
	if l.Spec.Holder != nil {
		l.Spec.Holder.Token = l.HolderToken()
	}
}

// LastToken returns the fencing token of the last holder that may still use the address, or 0 if it
// is not known. A write that did not record the token, such as an edit by a person, makes the result
// a number that is no holder's token.
func (l *IPLease) LastToken() uint64 {
	if l.Spec.Previous != nil {
		return uint64(l.Spec.Previous.Token)
	}
	return uint64(l.HolderToken())
}

// LastMAC returns the MAC of the last holder that may still use the address, or nil if it is not
// known. It is the MAC of the holder of LastToken, and may also be that of its next sandbox.
func (l *IPLease) LastMAC() net.HardwareAddr {
	text := ""
	if p := l.Spec.Previous; p != nil {
		text = p.MAC
	} else if h := l.Spec.Holder; h != nil {
		text = h.MAC
	}
	mac, _ := net.ParseMAC(text)
	return mac
}

// LastUnguarded reports whether the last holder that may still use the address has no guard.
func (l *IPLease) LastUnguarded() bool {
	if p := l.Spec.Previous; p != nil {
		return p.PodUID != "" && !p.Guarded // a Warm lease has had no holder
	}
	return l.Spec.State == StateBound && l.Spec.Holder != nil && !l.Spec.Holder.Guarded
}

// IsHold reports whether a lease holds the address of a record of another IPAM, whose pod is not proven gone.
func (l *IPLease) IsHold() bool {
	return l.Spec.State == StateQuarantined && l.Spec.Previous != nil && l.Spec.Previous.Reason == ReasonMovingIn
}

// IsHoldOf reports whether a lease only holds an address for a move: nothing but the record of the other IPAM speaks
// against its end. A lease that was quarantined for another reason needs its evidence (R1).
func (l *IPLease) IsHoldOf(move string) bool {
	return l.Labels[LabelMove] == move && l.Spec.State == StateQuarantined && (l.IsHold() || l.Spec.Reason == ReasonMovingIn)
}

// WithRecord returns a message about a lease that was made for a Move, with its record.
func (l *IPLease) WithRecord(why string) string {
	if record := l.Annotations[AnnotationMoveRecord]; record != "" {
		return why + " (record " + record + ")"
	}
	return why
}

// HolderToken returns the fencing token of the present holder: the recorded one, or the resourceVersion of a Bound lease
// that was not written since. It returns 0 if the token is not known.
func (l *IPLease) HolderToken() int64 {
	switch h := l.Spec.Holder; {
	case h == nil:
		return 0
	case h.Token != 0 || l.Spec.State != StateBound:
		return h.Token
	}
	token, err := strconv.ParseInt(l.ResourceVersion, 10, 64)
	if err != nil {
		return 0
	}
	return token
}

// ConflictMAC returns the MAC of the host for which the address is Quarantined, or "".
func (s *IPLeaseSpec) ConflictMAC() MAC {
	if s.State != StateQuarantined || s.Reason != ReasonConflict || s.Conflict == nil {
		return ""
	}
	return s.Conflict.MAC
}

// EndTracking makes the next update remove the managedFields of the lease. Later updates then write
// none. Tracking the writer of each field takes a third of the cost of a write in the API server.
// Audit lines name the writers, and leases are never written by server-side apply.
func (l *IPLease) EndTracking() {
	l.ManagedFields = []metav1.ManagedFieldsEntry{{}} // nil would keep it
}
