// SPDX-License-Identifier: Apache-2.0

package segment

import (
	"fmt"
	"net"
	"net/netip"
	"time"
)

// HearingWindow is how long a valid claim or ack of another node proves that this parent hears
// other nodes. It is longer than two intervals of the claims (R3), so one frame may be lost.
const HearingWindow = 2 * time.Minute

// MinRounds is the least number of unanswered rounds for Silent (RFC 5227 section 1.1, PROBE_NUM).
const MinRounds = 3

// Verdict is the outcome of a verification.
type Verdict string

const (
	// Fenced: the previous holder's kernel drops every frame from the address. Safe.
	Fenced Verdict = "Fenced"
	// Silent: no host uses the address, and the node would have heard one. Safe.
	Silent Verdict = "Silent"
	// Answered: another host uses the address: a conflict.
	Answered Verdict = "Answered"
	// Unknown: the node heard nothing, which proves nothing. Not safe.
	Unknown Verdict = "Unknown"
	// Unverified: no host was asked, because the pool does not enforce. Judge never returns it.
	Unverified Verdict = "Unverified"
)

// Safe reports whether the address may be handed out (R1).
func (v Verdict) Safe() bool { return v == Fenced || v == Silent }

// Evidence is the result of a verification. Judge returns the verdict on it. The caller of Verify
// supplies the first five fields.
type Evidence struct {
	// SlotDead: the previous holder's slot on this node is dead.
	SlotDead bool
	// Asserted: Kubernetes asserts the end of the previous holder: its Node object is gone or out
	// of service.
	Asserted bool
	// OthersShare: another node shares this segment and could be heard.
	OthersShare bool
	// Unguarded: the previous holder has no guard, or may send past it, so a claim alone does not
	// silence it.
	Unguarded bool
	// Guessed: nothing shows that this parent leads to the previous holder. This node has not heard
	// it there, and neither the pool nor a pod here names the parent.
	Guessed bool

	// HeldHere: an older lease of the address is installed here. Then the kernel reports only acks.
	HeldHere bool

	// Claimed is when the first claim was sent, or zero.
	Claimed time.Time
	// Carrier and Observed: the parent had carrier and the observer was attached, before and after.
	Carrier, Observed bool
	// Acked: an authenticated ack for the claimed token or a newer one came from the parent AckMAC.
	Acked  bool
	AckMAC net.HardwareAddr
	// Answer is the conflict, if there was one.
	Answer Answer
	// ByPrevious: the conflict's MAC is the previous holder's, and no other host is known to have it.
	ByPrevious bool
	// Unanswered is the number of whole probe rounds without an answer that counts.
	Unanswered int
	// Heard: a valid claim or ack of another node came in on this parent, HeardAgo before the end.
	Heard    bool
	HeardAgo time.Duration
	// Canary is the host that answered a probe in this verification; invalid if none did. Asked is the
	// number of canaries that were asked.
	Canary netip.Addr
	Asked  int
	// Shared: hosts of this node may be behind the parent, so a canary needs another node that vouches
	// for it.
	Shared bool
}

// Judge returns the verdict, by the rules R1 and R2. The first row that applies decides:
//
//	a stranger answered                       Answered, fenced or not: a fence silences its holder only
//	acked, or the slot here is dead           Fenced; frames of the previous holder are late ones
//	the previous holder answered              Answered: it is alive and unguarded, or did not hear the claim
//	no carrier, or no observer                Unknown: the node could hear nothing
//	an older lease is installed here          Unknown: the kernel reports no speaker
//	fewer than three unanswered rounds        Unknown: the node did not listen for long enough
//	the previous holder's end is asserted     Silent
//	it has no guard, or may send past it      Unknown: a claim on its way has not silenced it (R1)
//	no other node shares the segment          Silent: there is no node to hear
//	the parent was guessed                    Unknown: the previous holder may be on another segment
//	no other node was heard for 2 minutes     Unknown: a deaf listener (R2)
//	no canary answered                        Unknown: nobody may have heard the probes (R2)
//	otherwise                                 Silent
func Judge(e Evidence) Verdict {
	switch {
	case e.Answer.Conflict && !e.ByPrevious:
		return Answered
	case e.Acked, e.SlotDead:
		return Fenced
	case e.Answer.Conflict:
		return Answered
	case !e.Carrier, !e.Observed, e.HeldHere, e.Unanswered < MinRounds:
		return Unknown
	case e.Unguarded && !e.Asserted:
		return Unknown
	case e.Asserted, !e.OthersShare, !e.Guessed && e.hearing() && e.Canary.IsValid():
		return Silent
	}
	return Unknown
}

// needsCanary reports whether a canary that answers makes the verdict Silent.
func (e Evidence) needsCanary() bool {
	without := Judge(e)
	e.Canary = netip.IPv6Unspecified()
	return without == Unknown && Judge(e) == Silent
}

// hearing reports whether the parent is known to hear other nodes.
func (e Evidence) hearing() bool { return e.Heard && e.HeardAgo <= HearingWindow }

// String returns one sentence that explains the verdict, for conditions and messages.
func (e Evidence) String() string {
	switch Judge(e) {
	case Fenced:
		if e.Acked {
			return fmt.Sprintf("the previous holder's kernel acknowledged the claim from %s", e.AckMAC)
		}
		return "the previous holder's slot on this node is dead"
	case Answered:
		if e.ByPrevious {
			return fmt.Sprintf("the previous holder %s still answers and did not acknowledge the claim", e.Answer.MAC)
		}
		return fmt.Sprintf("%s answers for the address", e.Answer.MAC)
	case Silent:
		return fmt.Sprintf("%d probe rounds were not answered, and %s", e.Unanswered, e.whySilenceCounts())
	}
	switch {
	case !e.Carrier:
		return "the parent has no carrier"
	case e.HeldHere:
		return "an earlier holder's lease is still installed on this node, so no answer could be heard"
	case !e.Observed:
		return "the observer is not attached to the parent"
	case e.Unanswered < MinRounds:
		return fmt.Sprintf("only %d of %d probe rounds were completed", e.Unanswered, MinRounds)
	case e.Unguarded:
		return "no host answered, but the previous holder has no guard, or may send past it, and its node has not acknowledged that its VF is off:" +
			" its agent may not live or hear the claim, or the driver of the PF may have refused (event VFWallMissing of that node); " + ifOff
	case e.Guessed:
		return "no host answered, but nothing shows that this parent leads to the previous holder: this node never heard it there," +
			" and has no pod of the pool. If the parent carries the pool, name it in the pool's spec.parents; " + ifOff
	case e.hearing() && e.Asked == 0 && e.Shared:
		return "no host answered, but this node knows no host on the parent that should: hosts of the node itself are behind the parent," +
			" and no other node has claimed another address of this family lately; " + ifOff
	case e.hearing() && e.Asked == 0:
		return "no host answered, but this node knows no host on the parent that should: neither has the pool a gateway," +
			" nor was another address heard. Set spec.gateway of the pool; " + ifOff
	case e.hearing():
		return "no host answered, but neither did those that should: the parent hears others, but they may not hear it." +
			" Check its cable, VLAN and port security; " + ifOff
	case e.Heard:
		return fmt.Sprintf("no host answered, but no other node was heard on the parent for %s: check its cable and VLAN; %s", e.HeardAgo.Round(time.Second), ifOff)
	}
	return "no host answered, but no other node has ever been heard on the parent; " + ifOff
}

// ifOff is the remedy if the previous holder's machine is off. No frame can prove that.
const ifOff = "if the previous holder's machine is off, taint its node node.kubernetes.io/out-of-service or delete the Node object"

func (e Evidence) whySilenceCounts() string {
	switch {
	case e.Asserted:
		return "the previous holder's node is gone or out of service"
	case !e.OthersShare:
		return "no other node shares the segment"
	}
	return fmt.Sprintf("another node was heard on the parent %s ago, and %s answered", e.HeardAgo.Round(time.Second), e.Canary)
}
