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
	// OnAsked is called after each question to canaries, with the name of the parent. answered: a
	// canary answered, so another host hears the parent. Calls are concurrent and must not block.
	// Nil means no call.
	OnAsked func(parent string, answered bool)
	// OnSource is called for frames that a source guard objects to. It must not block either. Nil means
	// no call.
	OnSource func(bpf.Event)
}

// Holder has the addresses that pods of this node hold.
type Holder interface {
	// Holdings returns the addresses whose claims are repeated and that are defended. It is called
	// about once a second and for each conflict, concurrently.
	Holdings() []Holding
	// Fenced handles a newer claim that has fenced an address held here. Met handles a second
	// speaker for such an address, at most every 10 s per address. The event loop calls both, so
	// they must not block.
	Fenced(Fence)
	Met(Conflict)
}

func (c Config) withDefaults() Config {
	if c.Clock == nil {
		c.Clock = clock.RealClock{}
	}
	if c.OnSource == nil {
		c.OnSource = func(bpf.Event) {}
	}
	if c.OnAsked == nil {
		c.OnAsked = func(string, bool) {}
	}
	return c
}
