// SPDX-License-Identifier: Apache-2.0

package defence

import (
	"github.com/fenceline/fenceline/agent/attachment"
	"github.com/fenceline/fenceline/agent/segment"
	"github.com/fenceline/fenceline/agent/segment/claim"
	"github.com/fenceline/fenceline/bpf"
	"github.com/fenceline/fenceline/internal/audit"
)

// Wire tells segments of the addresses that pods of this node hold, and of those for which they have the turn.
type Wire struct {
	*Defence
	Speakers *Speakers
}

// Holdings returns both.
func (w Wire) Holdings() []segment.Holding {
	return append(w.Defence.Holdings(), w.Speakers.holdings()...)
}

// Fenced handles the fence of either.
func (w Wire) Fenced(f bpf.Event) {
	if !w.Speakers.fenced(f) {
		w.Defence.Fenced(f)
	}
}

func (s *Speakers) holdings() (all []segment.Holding) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for key, v := range s.heard {
		if t := v.turn; t != nil {
			all = append(all, segment.Holding{
				Parent: int(key.Segment), Network: claim.Network(s.Cluster, v.by.Spec.Network), Token: uint64(t.Token),
				Announcement: t.announcement(key.Addr), Ignore: t.params.Ignore,
			})
		}
	}
	return all
}

// fenced reports whether a newer claim took the turn from a pod of this node, and records it.
func (s *Speakers) fenced(f bpf.Event) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	v := s.heard[f.Key]
	if v == nil || v.turn == nil {
		return false
	}
	s.Log.Info("another pod takes the turn to speak for a virtual address", "address", f.Key.Addr, "token", f.Token, "mine", f.Mine, "by", f.MAC.String())
	audit.Log(s.Log, audit.Fence, v.turn.e.Audit(attachment.Address{Addr: f.Key.Addr, Network: v.by.Spec.Network, Token: f.Token}, s.Node, "claimed by "+f.MAC.String()))
	return true
}
