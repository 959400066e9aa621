// SPDX-License-Identifier: Apache-2.0

package segment

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/utils/clock"

	"github.com/fenceline/fenceline/agent/segment/claim"
	"github.com/fenceline/fenceline/bpf"
)

// Segments is the set of open segments of this node. Safe for concurrent use.
type Segments struct {
	kernel   Kernel
	clock    clock.Clock
	log      logr.Logger
	onAsked  func(parent string, answered bool)
	onSource func(bpf.Event)

	watches    *watches
	conflicts  *cache.Expiring // as keys the addresses that were defended within defendInterval
	claimKeys  atomic.Pointer[[]claim.Key]
	claimsSent atomic.Uint64

	// openParent, openPort and jitter (0 to 1) are replaced by tests without a network.
	openParent func(parent int) (parentWire, error)
	openPort   func(Announcement) (podPort, error)
	jitter     func() float64

	// life ends with Close. tasks are the background goroutines.
	life  context.Context
	end   context.CancelCauseFunc
	tasks sync.WaitGroup

	// opening serialises Open, in which the kernel may take long. mu guards open.
	opening sync.Mutex
	mu      sync.Mutex
	open    map[int]*Segment
}

// errClosed is the cause that ends background goroutines at Close.
var errClosed = errors.New("segments are closed")

// New returns an empty set. Claims fail with ErrNoKey until SetKeys. Run handles events.
func New(c Config) *Segments {
	c.Clock = cmp.Or[clock.Clock](c.Clock, clock.RealClock{})
	if c.OnSource == nil {
		c.OnSource = func(bpf.Event) {}
	}
	if c.OnAsked == nil {
		c.OnAsked = func(string, bool) {}
	}
	s := &Segments{
		kernel: c.Kernel, clock: c.Clock, log: c.Log, onAsked: c.OnAsked, onSource: c.OnSource,
		watches:    newWatches(c.Kernel),
		conflicts:  cache.NewExpiringWithClock(c.Clock),
		openParent: func(parent int) (parentWire, error) { return OpenParent(parent) },
		openPort:   func(a Announcement) (podPort, error) { return OpenPort(a.NetNS, a.Interface, a.NodeEnd) },
		jitter:     rand.Float64,
		open:       make(map[int]*Segment),
	}
	s.SetKeys()
	s.life, s.end = context.WithCancelCause(context.Background())
	return s
}

// SetKeys replaces the claim keys. With two keys, during a rotation, each claim is sent under both.
func (s *Segments) SetKeys(keys ...claim.Key) { s.claimKeys.Store(&keys) }

// HasKey reports whether claims can be signed.
func (s *Segments) HasKey() bool { return len(s.keys()) > 0 }

// Open attaches the observer to a parent and opens its sockets, in the calling thread's network
// namespace. If the segment is open already, Open returns it and attaches the observer again if
// that is missing. It does the same for the observers that take claims at uplinks.
func (s *Segments) Open(parent int) (*Segment, error) {
	seg, err := s.openObserved(parent)
	if err != nil {
		return nil, err
	}
	vid, uplinks, err := seg.wire.Uplinks()
	if err == nil && vid != 0 {
		err = s.kernel.Observers.SetUplinks(parent, vid, uplinks)
	}
	if err != nil {
		s.log.Info("claims may not reach this parent while ovs-vswitchd is dead; the agent tries again", "parent", seg.name, "why", err.Error())
	}
	return seg, nil
}

func (s *Segments) openObserved(parent int) (*Segment, error) {
	s.opening.Lock()
	defer s.opening.Unlock()
	if s.life.Err() != nil {
		return nil, fmt.Errorf("open segment of parent %d: %w", parent, errClosed)
	}
	if err := s.kernel.Observers.Attach(parent); err != nil {
		return nil, fmt.Errorf("open segment of parent %d: %w", parent, err)
	}
	if seg, ok := s.Get(parent); ok {
		return seg, nil
	}
	w, err := s.openParent(parent)
	if err != nil {
		return nil, fmt.Errorf("open segment of parent %d: %w", parent, err)
	}
	l, err := w.Link()
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open segment of parent %d: %w", parent, err), w.Close())
	}
	seg := &Segment{set: s, parent: parent, name: l.Name, wire: w, pacer: NewPacer(s.clock)}
	seg.canaries.seg = seg
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open[parent] = seg
	return seg, nil
}

// Get returns the open segment of a parent.
func (s *Segments) Get(parent int) (*Segment, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	seg, ok := s.open[parent]
	return seg, ok
}

// All returns the open segments in no particular order.
func (s *Segments) All() []*Segment {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Values(s.open))
}

// Names returns the names of the parents with an open segment, by ifindex.
func (s *Segments) Names() map[int]string {
	names := map[int]string{}
	for _, seg := range s.All() {
		names[seg.Parent()] = seg.Name()
	}
	return names
}

// Forget closes the sockets of a parent, for instance because its device was deleted. The observer
// stays attached. An unknown parent is no error.
func (s *Segments) Forget(parent int) error {
	s.mu.Lock()
	seg, ok := s.open[parent]
	delete(s.open, parent)
	s.mu.Unlock()
	if !ok {
		return nil
	}
	if err := seg.wire.Close(); err != nil {
		return fmt.Errorf("close segment of %s: %w", seg.name, err)
	}
	return nil
}

// Close ends announcements and defences and closes all sockets. Observers go on enforcing.
func (s *Segments) Close() error {
	s.opening.Lock()
	defer s.opening.Unlock()
	s.mu.Lock()
	s.end(errClosed)
	s.mu.Unlock()
	s.tasks.Wait()
	var errs []error
	for _, seg := range s.All() {
		errs = append(errs, s.Forget(seg.parent))
	}
	return errors.Join(errs...)
}

// background runs fn in a goroutine, unless the set is closed. fn must end with its context.
func (s *Segments) background(fn func(context.Context)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.life.Err() == nil {
		s.tasks.Go(func() { fn(s.life) })
	}
}

// Run handles kernel events, and repeats the claims of the holder's addresses, until ctx ends or
// events cannot be read any more. Call it once.
func (s *Segments) Run(ctx context.Context, holder Holder) error {
	ctx, cancel := context.WithCancel(ctx)
	var repeat sync.WaitGroup
	repeat.Go(func() { s.repeat(ctx, holder) })
	defer repeat.Wait()
	defer cancel()
	if err := s.kernel.Events.ReadEvents(ctx, func(ev bpf.Event) { s.dispatch(ev, holder) }); err != nil && ctx.Err() == nil {
		return fmt.Errorf("read kernel events: %w", err)
	}
	return nil
}

// dispatch handles one kernel event. It does not block.
func (s *Segments) dispatch(ev bpf.Event, holder Holder) {
	switch ev.Type {
	case bpf.EventHit:
		s.watches.deliver(ev)
		s.meetConflict(ev, holder)
	case bpf.EventAck, bpf.EventTurn:
		s.watches.deliver(ev)
	case bpf.EventOldClaim:
		s.meetConflict(ev, holder)
	case bpf.EventSource:
		s.onSource(ev)
	case bpf.EventFenced:
		holder.Fenced(ev)
	}
}

// Config of Segments. Kernel is required.
type Config struct {
	Kernel Kernel
	// Clock of schedules and rate limits; nil means the real one.
	Clock clock.Clock
	Log   logr.Logger
	// OnAsked is called after each question to canaries. answered: a canary answered, so another
	// host hears the parent. Calls are concurrent and must not block. Nil means no call.
	OnAsked func(parent string, answered bool)
	// OnSource, if not nil, is called for frames that a source guard objects to. It must not block.
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
	Fenced(bpf.Event)
	Met(Conflict)
}
