// SPDX-License-Identifier: Apache-2.0

package segment

import (
	"github.com/go-logr/logr"
	"k8s.io/utils/clock"

	"github.com/fenceline/fenceline/bpf"
)

// Config of Segments. Kernel is required.
type Config struct {
	Kernel Kernel
	// Clock of schedules and rate limits; nil means the real one.
	Clock clock.Clock
	Log   logr.Logger
	// Holdings returns the addresses that pods of this node hold now. Segments repeats their claims
	// and defends them. It calls Holdings about once a second and for each conflict, concurrently.
	// Nil means no holdings.
	Holdings func() []Holding
	// OthersShare reports whether another node shares the parent's segment and could be heard. The
	// metric of deafness uses it. Nil means yes.
	OthersShare func(parent int) bool
	// Expected reports whether another node has an address that this node should hear on the parent.
	// It decides whether an alert fires, not what silence proves. Default: as OthersShare.
	Expected func(parent int) bool
	// OnFenced is called for each address held here that a newer claim has fenced, OnConflict for
	// each second speaker, at most every 10 s per address. The event loop calls both, so they must
	// not block. Nil means no call.
	OnFenced   func(Fence)
	OnConflict func(Conflict)
	// OnAsked is called after each question to canaries, with the name of the parent: answered reports
	// whether one has answered, so that another host hears the parent. It is called concurrently, and
	// must not block. Nil means no call.
	OnAsked func(parent string, answered bool)
	// OnSource is called for frames that a source guard objects to. It must not block either. Nil means
	// no call.
	OnSource func(bpf.Event)
}

func (c Config) withDefaults() Config {
	if c.Clock == nil {
		c.Clock = clock.RealClock{}
	}
	if c.Holdings == nil {
		c.Holdings = func() []Holding { return nil }
	}
	if c.OthersShare == nil {
		c.OthersShare = func(int) bool { return true }
	}
	if c.Expected == nil {
		c.Expected = c.OthersShare
	}
	if c.OnFenced == nil {
		c.OnFenced = func(Fence) {}
	}
	if c.OnSource == nil {
		c.OnSource = func(bpf.Event) {}
	}
	if c.OnAsked == nil {
		c.OnAsked = func(string, bool) {}
	}
	if c.OnConflict == nil {
		c.OnConflict = func(Conflict) {}
	}
	return c
}
