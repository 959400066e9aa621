// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"context"
	"net/netip"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/test/capture"
)

// remains sends frames with a forged MAC past the guard, where only the MAC shows their sender.
// SECURITY.md lists the promises.
func (s *siege) remains(ctx context.Context, w *way) {
	chronicle := s.keepChronicle(ctx, s.namespace)
	remote, sibling := s.victims[0], s.victims[1]
	for _, v := range []party{remote, sibling} {
		s.isNoticed(ctx, w, chronicle, v)
	}
	s.isTakenForSibling(ctx, w, sibling)
}

// isNoticed announces a pod's address with a MAC of nobody. If the frame comes to the underlay, the
// lease of the address must name the MAC.
func (s *siege) isNoticed(ctx context.Context, w *way, c *chronicle, v party) {
	strange, sent := strangeMAC(), time.Now()
	passed := s.passes(ctx, w, allowed+"gratuitous ARP with a MAC of nobody for the "+v.name, func(mark []byte) []byte {
		return ethernet(broadcast, strange, unix.ETH_P_ARP, arp(arpReply, strange, v.four, broadcast, v.four), mark)
	})
	noticed := "It is stopped."
	if passed {
		c.wait(ctx, clientLimit, v.four, sent, "Bound with a conflict", func(e entry) bool {
			return e.Spec.State == v1alpha1.StateBound && e.Spec.Conflict != nil && e.Spec.Conflict.MAC == strange.String()
		})
		noticed = "It comes to the underlay, and the lease names the MAC."
	}
	s.story.Say("Past the queue, with a MAC of nobody: gratuitous ARP for %s of pod %s. %s", v.four, v.name, noticed)
}

// isTakenForSibling sends with the MAC of the sibling. The frame is judged as the sibling's, so it
// must not carry the attacker's address.
func (s *siege) isTakenForSibling(ctx context.Context, w *way, sibling party) {
	before := counted(ctx, s.sibling)
	udp := func(source netip.Addr) func([]byte) []byte {
		return func(mark []byte) []byte {
			return shout(sibling, unix.ETH_P_IP, packet4(source, allHosts, unix.IPPROTO_UDP, 0, datagram(9, 9, mark)))
		}
	}
	passed := s.passes(ctx, w, "UDP of the attacker with the MAC of the sibling", udp(s.own.four))
	grown := counted(ctx, s.sibling).since(before)
	must(!passed && grown[whySlot] > 0 && len(grown) == 1,
		"own address with the MAC of the sibling: on the underlay %t, counted: %s", passed, grown)
	s.story.Say("Past the queue, with the MAC of the sibling: UDP from the attacker's address is dropped, and counted for the sibling: %s.", grown)
	passed = s.passes(ctx, w, allowed+"UDP of the sibling with its MAC", udp(sibling.four))
	s.story.Say("The same from the sibling's address cannot be told from the sibling's frames. On the underlay: %t.", passed)
}

// passes reports whether a frame has come to the underlay before an own frame that follows it.
func (s *siege) passes(ctx context.Context, w *way, what string, frame func(mark []byte) []byte) bool {
	s.shoot(w.session, frame(s.mark(what)))
	s.isItself(ctx, w)
	return slices.ContainsFunc(s.capture.Frames(), func(f capture.Frame) bool { return s.marked(f.Payload) == what })
}
