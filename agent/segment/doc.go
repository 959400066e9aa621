// Package segment does what the node agent does on the wire of one L2 segment:
// it probes addresses (RFC 5227, RFC 4862), claims them, verifies that a
// previous holder is fenced or silent, announces new holders, repeats the
// claims of this node's holders and defends them.
//
// It sends through packet sockets and never reads from them: what others say
// is seen by the observer, the kernel program on the parent, which reports it
// as events and, since events may be lost, as state. The package therefore
// hears remote hosts, local siblings and answers to its own probes alike, which
// no socket on the parent does.
//
// Invariants that live here:
//
//   - R1: the verdict of a verification is a pure function of its Evidence
//     (Judge), and only Fenced and Silent make an address fit to be handed out.
//   - R2: silence heard by a deaf listener is Unknown, never Silent.
//   - R3: every holder's claim is repeated about once a minute.
//   - R10: claim, wait 20 ms, announce only if still unfenced; and whoever is
//     fenced neither repeats its claim, nor defends, nor announces.
//
// Addresses are IPv4 or IPv6 without zone. Times named "boot time" are
// CLOCK_BOOTTIME as the kernel programs read it. A pool's mode binds every
// method: Observe sends no claim, Off no frame at all.
package segment
