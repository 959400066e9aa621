package segment

import (
	"github.com/go-logr/logr"
	"k8s.io/utils/clock"
)

// Config of Segments. Kernel is required.
type Config struct {
	Kernel Kernel
	// Clock of schedules and rate limits; nil means the real one.
	Clock clock.Clock
	Log   logr.Logger
	// Holdings returns the addresses that pods of this node hold at present:
	// their claims are repeated and defended. Nil means none. It is called about
	// once a second and upon conflicts, concurrently.
	Holdings func() []Holding
	// OthersShare tells whether another node has the segment of a parent, so that
	// there is somebody to be heard; it decides the deafness metric. Nil means yes.
	OthersShare func(parent int) bool
	// OnFenced is told of each address held here that a newer claim fenced, and
	// OnConflict of each second speaker, at most every 10 s per address. Both are
	// called from the event loop and must not block. Nil means nobody cares.
	OnFenced   func(Fence)
	OnConflict func(Conflict)
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
	if c.OnFenced == nil {
		c.OnFenced = func(Fence) {}
	}
	if c.OnConflict == nil {
		c.OnConflict = func(Conflict) {}
	}
	return c
}
