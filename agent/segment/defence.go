// SPDX-License-Identifier: Apache-2.0

package segment

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/fenceline/fenceline/bpf"
)

// defendInterval is the least time between two defences of an address, and between two reports of
// its conflicts (RFC 5227 section 2.4, DEFEND_INTERVAL). Unlike in RFC 5227, this node never gives
// the address up after repeated conflicts: the greater token wins, and the kernel of the other node
// fences its holder.
const defendInterval = 10 * time.Second

// meetConflict answers a second speaker for an address held here with the holder's own claim and an
// announcement, if the pool enforces: at once the first time, then at most once per defendInterval.
// Then it reports the conflict. It checks that limit first, so that a flood costs little.
func (s *Segments) meetConflict(ev bpf.Event, holder Holder) {
	if _, recent := s.conflicts.Get(ev.Key); recent || ev.Kind.Tentative() {
		return // a probe does not use the address, and the holder itself answers the probe
	}
	all := holder.Holdings()
	i := slices.IndexFunc(all, func(h Holding) bool { return h.key() == ev.Key })
	if i < 0 || contains(all[i].Ignore, ev.MAC) {
		return
	}
	h := all[i]
	silent, err := s.mustBeSilent(ev.Key, h.Slot)
	if err != nil {
		s.log.Error(err, "cannot judge a conflict", "address", h.Addr.String())
		return
	}
	if silent {
		return // the second speaker is the rightful holder
	}
	s.conflicts.Set(ev.Key, nil, defendInterval)
	seg, open := s.Get(h.Parent)
	// The claim comes first: a report writes to the log, which may be slow.
	if open && claims(h.Mode) {
		s.background(func(ctx context.Context) { seg.defend(ctx, h, ev) })
	}
	source := SourceObserver
	if ev.Where == bpf.WhereGuardIngress || ev.Where == bpf.WhereGuardEgress {
		source = SourceGuard
	}
	holder.Met(Conflict{Holding: h, MAC: ev.MAC, Source: source})
}

// defend claims once, by broadcast and by unicast to the second speaker, and announces. It asks no
// holder for an ack: the fence is enough.
func (s *Segment) defend(ctx context.Context, h Holding, second bpf.Event) {
	err := s.claimOnce(ctx, h.claim(), second.MAC)
	if err == nil {
		err = s.announce(ctx, h.Announcement, []time.Duration{0})
	}
	if err != nil && !errors.Is(err, errClosed) {
		s.set.log.Info("defence failed", "address", h.Addr.String(), "parent", s.name, "reason", err.Error())
	}
}
