package segment

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/fenceline/fenceline/bpf"
)

// defendInterval is the least time between two defences of an address, and
// between two reports of its conflicts (RFC 5227 section 2.4, DEFEND_INTERVAL).
// Unlike there, no repetition makes this node give up: of two claims the
// greater token wins for good, and the kernel of the other obeys.
const defendInterval = 10 * time.Second

// meetConflict reports a second speaker for an address held here and answers
// it, if the pool enforces, with the holder's own claim and an announcement: at
// once the first time, then at most every defendInterval. The limit is asked
// before anything else, so that a flood costs little.
func (s *Segments) meetConflict(ev bpf.Event) {
	now := s.clock.Now()
	if ev.Kind.Tentative() || !s.conflicts.ready(ev.Key, now) {
		return // who only asks does not speak, and the holder itself answers
	}
	h, ok := s.holding(ev.Key)
	if !ok || contains(h.Ignore, ev.MAC) {
		return
	}
	silent, err := s.mustBeSilent(ev.Key, h.Slot)
	if err != nil {
		s.log.Error(err, "conflict not judged", "address", h.Addr.String())
		return
	}
	if silent {
		return // the second speaker is the rightful one
	}
	s.conflicts.note(ev.Key, now)
	seg, open := s.Get(h.Parent)
	defend := open && claims(h.Mode)
	s.onConflict(Conflict{Holding: h, MAC: ev.MAC, Source: sourceOf(ev.Where), Kind: ev.Kind, At: ev.At, Defended: defend})
	if defend {
		s.background(func(ctx context.Context) { seg.defend(ctx, h, ev) })
	}
}

// defend claims once, to all and to the second speaker, and announces. A frame of
// the speaker's own has the MAC that is to acknowledge; an older claim comes
// from its parent, whose MAC no holder has, so whoever holds the address is asked.
func (s *Segment) defend(ctx context.Context, h Holding, second bpf.Event) {
	c := h.claim()
	if second.Type != bpf.EventOldClaim {
		c.PreviousMAC = second.MAC
	}
	err := s.claimOnce(ctx, c, second.MAC)
	if err == nil {
		err = s.announce(ctx, h.announcement(), []time.Duration{0})
	}
	if err != nil && !errors.Is(err, errClosed) {
		s.set.log.Info("defence failed", "address", h.Addr.String(), "parent", s.name, "reason", err.Error())
	}
}

// holding finds the holding of key.
func (s *Segments) holding(key bpf.Key) (Holding, bool) {
	all := s.holdings()
	i := slices.IndexFunc(all, func(h Holding) bool { return h.key() == key })
	if i < 0 {
		return Holding{}, false
	}
	return all[i], true
}

func sourceOf(w bpf.Where) Source {
	if w == bpf.WhereGuardIngress || w == bpf.WhereGuardEgress {
		return SourceGuard
	}
	return SourceObserver
}
