// SPDX-License-Identifier: Apache-2.0

package lease

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"strconv"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fenceline/fenceline/apis/v1alpha1"
)

const (
	// attempts bounds the tries of a write. Each further try needs another writer in between.
	attempts = 5
	// LateWrite is the time in which a write may still come true after its caller has given up: by default,
	// an API server ends a request after a minute.
	LateWrite = 70 * time.Second
)

// Options of a Store. All but View and CountError are required.
type Options struct {
	// Client writes. Reader reads past any cache, and so always the present state.
	Client client.Client
	Reader client.Reader
	// Node and Session ("<Node UID>/<boot ID>") are written into leases as their owner.
	Node, Session string
	// View is told the lease of each answer.
	View  *View
	Clock clock.PassiveClock
	// CountError counts each failed call to the API server, by verb: create, update, delete, get or
	// list. AlreadyExists, NotFound and Conflict are answers, not failures.
	CountError func(verb string, err error)
}

// Store reads and writes leases as one node. Every write is guarded by uid
// and resourceVersion. Safe for concurrent use.
type Store struct {
	o Options

	mu sync.Mutex
	// late has the leases whose write may still come true, with the end of LateWrite.
	late map[string]time.Time
}

// NewStore returns a Store.
func NewStore(o Options) *Store { return &Store{o: o, late: map[string]time.Time{}} }

// Request asks for one address.
type Request struct {
	Pool, Network string
	Addr          netip.Addr
	// Parent is the name of the interface on this node whose segment carries the address.
	Parent string
	// Holder is empty if the address is to be kept ready: the lease is created Warm.
	Holder v1alpha1.Holder
	// Retention is copied into the lease. The controller follows it once the lease is Retained.
	Retention *v1alpha1.LeaseRetention
}

// Create binds a free address, or keeps it ready. If the address has a lease, the error is a
// *TakenError. If that lease is of this node, session and container, an earlier try succeeded, and
// Create returns it. If the answer is lost, the error is ErrUncertain.
func (s *Store) Create(ctx context.Context, r Request) (*v1alpha1.IPLease, error) {
	name := v1alpha1.LeaseName(r.Network, r.Addr)
	var err error
	for range attempts {
		l := &v1alpha1.IPLease{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: first(r, s.owner())}
		if err = s.counted("create", s.o.Client.Create(ctx, l)); err == nil {
			s.o.View.Saw(l)
			return l, nil
		}
		if !apierrors.IsAlreadyExists(err) {
			return nil, fmt.Errorf("create lease %s: %w", name, s.uncertain(name, err))
		}
		// The name is the lock. The holder of the lease decides.
		present, getErr := s.Get(ctx, name)
		switch {
		case errors.Is(getErr, ErrGone):
			// Freed in between: the next try may create it.
		case getErr != nil:
			return nil, fmt.Errorf("create lease %s: %w", name, s.uncertain(name, getErr))
		case s.heldBy(present, r.Holder.ContainerID, r.Holder.Interface):
			return present, nil
		default:
			return nil, fmt.Errorf("create lease %s: %w", name, &TakenError{present})
		}
	}
	return nil, fmt.Errorf("create lease %s: %w", name, err)
}

// uncertain marks an error after which a write may have happened, and remembers the lease for ReadLate.
func (s *Store) uncertain(name string, err error) error {
	if err = uncertain(err); errors.Is(err, ErrUncertain) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.late[name] = s.o.Clock.Now().Add(LateWrite)
	}
	return err
}

// ReadLate reads the leases whose creation or update had no answer, so that the View has them if the write came
// true. Each is read by every call within LateWrite, and once after it.
func (s *Store) ReadLate(ctx context.Context) error {
	s.mu.Lock()
	late := maps.Clone(s.late)
	s.mu.Unlock()
	var errs []error
	for name, end := range late {
		now := s.o.Clock.Now()
		if _, err := s.Get(ctx, name); err != nil && !errors.Is(err, ErrGone) {
			errs = append(errs, err)
			continue
		}
		s.mu.Lock()
		if !now.Before(end) && s.late[name].Equal(end) {
			delete(s.late, name)
		}
		s.mu.Unlock()
	}
	return errors.Join(errs...)
}

// Get reads a lease by name, past any cache. It returns ErrGone if there is none.
func (s *Store) Get(ctx context.Context, name string) (*v1alpha1.IPLease, error) {
	l, before := &v1alpha1.IPLease{}, s.o.View.Revision(name)
	err := s.counted("get", s.o.Reader.Get(ctx, client.ObjectKey{Name: name}, l))
	if apierrors.IsNotFound(err) {
		s.o.View.Gone(name, before)
		return nil, fmt.Errorf("get lease %s: %w", name, ErrGone)
	}
	if err != nil {
		return nil, fmt.Errorf("get lease %s: %w", name, err)
	}
	s.o.View.Saw(l)
	return l, nil
}

// Delete frees the address of a lease as last read. It succeeds if the lease is
// gone, and returns ErrNotMine if its node, session, state or container has
// changed since; other edits do not matter. The caller has fenced the holder (R6).
func (s *Store) Delete(ctx context.Context, l *v1alpha1.IPLease) error {
	present := l
	var conflict error
	for range attempts {
		asRead := client.Preconditions{UID: &present.UID, ResourceVersion: &present.ResourceVersion}
		conflict = s.counted("delete", s.o.Client.Delete(ctx, present, asRead))
		if conflict == nil || apierrors.IsNotFound(conflict) {
			s.o.View.Gone(l.Name, revisionOf(present))
			return nil
		}
		if !apierrors.IsConflict(conflict) {
			return fmt.Errorf("delete lease %s: %w", l.Name, conflict)
		}
		var err error
		if present, err = s.reread(ctx, l); errors.Is(err, ErrGone) {
			return nil
		} else if err != nil {
			return fmt.Errorf("delete lease %s: %w", l.Name, err)
		}
	}
	return fmt.Errorf("delete lease %s: changed %d times meanwhile: %w", l.Name, attempts, conflict)
}

// Update applies a transition to a lease as last read and returns the lease as written; it does not
// change l. It returns ErrGone if the lease is gone, and ErrNotMine if its node, session, state or
// container has changed since. After other edits it applies the transition to the newer spec.
func (s *Store) Update(ctx context.Context, l *v1alpha1.IPLease, t Transition) (*v1alpha1.IPLease, error) {
	present := l
	var conflict error
	for range attempts {
		next := present.DeepCopy()
		next.RecordToken() // a transition that binds the lease begins with a new holder
		spec, err := t(next.Spec, s.owner())
		if err != nil {
			return nil, fmt.Errorf("update lease %s: %w", l.Name, err)
		}
		next.Spec = spec
		next.EndTracking()
		conflict = s.counted("update", s.o.Client.Update(ctx, next))
		switch {
		case conflict == nil:
			s.o.View.Saw(next)
			return next, nil
		case apierrors.IsNotFound(conflict):
			s.o.View.Gone(l.Name, revisionOf(present))
			return nil, fmt.Errorf("update lease %s: %w", l.Name, ErrGone)
		case !apierrors.IsConflict(conflict):
			return nil, fmt.Errorf("update lease %s: %w", l.Name, s.uncertain(l.Name, conflict))
		}
		if present, err = s.reread(ctx, l); err != nil {
			return nil, fmt.Errorf("update lease %s: %w", l.Name, err)
		}
	}
	return nil, fmt.Errorf("update lease %s: changed %d times meanwhile: %w", l.Name, attempts, conflict)
}

// reread returns the lease as it is now if only edits have happened to it since l.
func (s *Store) reread(ctx context.Context, l *v1alpha1.IPLease) (*v1alpha1.IPLease, error) {
	present, err := s.Get(ctx, l.Name)
	if err != nil {
		return nil, err
	}
	if !sameHands(l, present) {
		return nil, fmt.Errorf("%w: %s", ErrNotMine, describe(&present.Spec))
	}
	return present, nil
}

// sameHands reports whether a lease was only edited: same node, session, state and container.
func sameHands(a, b *v1alpha1.IPLease) bool {
	return a.UID == b.UID && a.Spec.State == b.Spec.State && a.Spec.NodeName == b.Spec.NodeName &&
		a.Spec.Session == b.Spec.Session && containerID(a) == containerID(b)
}

func containerID(l *v1alpha1.IPLease) string {
	if l.Spec.Holder == nil {
		return ""
	}
	return l.Spec.Holder.ContainerID
}

// heldBy reports whether a lease is Bound to a container of this node and session.
func (s *Store) heldBy(l *v1alpha1.IPLease, container, ifname string) bool {
	h := l.Spec.Holder
	return l.Spec.State == v1alpha1.StateBound && l.Spec.NodeName == s.o.Node && l.Spec.Session == s.o.Session &&
		h != nil && h.ContainerID == container && h.Interface == ifname
}

func (s *Store) owner() Owner { return Owner{s.o.Node, s.o.Session, s.o.Clock.Now()} }

// counted counts a failed call. An answer is not a failure.
func (s *Store) counted(verb string, err error) error {
	if err != nil && s.o.CountError != nil &&
		!apierrors.IsAlreadyExists(err) && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		s.o.CountError(verb, err)
	}
	return err
}

// Token returns the fencing token of a lease as returned by Create, TakeOver or,
// for a verifier, Get: the resourceVersion as a number, which grows with every
// write (KEP-5504). Later writes do not change the holder's token.
func Token(l *v1alpha1.IPLease) (uint64, error) {
	token, err := strconv.ParseUint(l.ResourceVersion, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("token of lease %s: resourceVersion %q: %w", l.Name, l.ResourceVersion, err)
	}
	return token, nil
}
