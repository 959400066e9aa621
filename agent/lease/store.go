package lease

import (
	"context"
	"errors"
	"net/netip"

	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fenceline/fenceline/apis/v1alpha1"
)

// Options of a Store. All but CountError are required.
type Options struct {
	// Client writes. Reader reads past any cache: the truth.
	Client client.Client
	Reader client.Reader
	// Node and Session ("<Node UID>/<boot ID>") are written into leases as their owner.
	Node, Session string
	Clock         clock.PassiveClock
	// CountError is told of each failed call to the API server, by verb:
	// create, update, delete, get or list. AlreadyExists and NotFound are answers.
	CountError func(verb string, err error)
}

// Store reads and writes leases as one node. Every write is guarded by uid
// and resourceVersion. Safe for concurrent use.
type Store struct{ o Options }

// NewStore returns a Store.
func NewStore(o Options) *Store { return &Store{o} }

// Request is the wish for one address.
type Request struct {
	Pool, Network string
	Addr          netip.Addr
	// Parent is the name of the interface on this node whose segment carries the address.
	Parent string
	Holder v1alpha1.Holder
	// Retention is copied into the lease, for the controller to act upon once it is Retained.
	Retention *v1alpha1.LeaseRetention
}

// Create binds a free address. An address with a lease is a *TakenError,
// unless that lease is this node's, of this session and container: then it is
// returned, since an earlier try has succeeded unnoticed.
// When the answer is lost, the error is ErrUncertain.
func (s *Store) Create(ctx context.Context, r Request) (*v1alpha1.IPLease, error) {
	return nil, errors.ErrUnsupported
}

// Get reads a lease by name. ErrGone when there is none.
func (s *Store) Get(ctx context.Context, name string) (*v1alpha1.IPLease, error) {
	return nil, errors.ErrUnsupported
}

// Delete frees the address of a lease as last read: Bound, Warm or
// Quarantined with this node. A lease that is gone is success. ErrNotMine
// when it changed hands since; edits that leave node, session, state and
// container as they were do not matter.
func (s *Store) Delete(ctx context.Context, l *v1alpha1.IPLease) error {
	return errors.ErrUnsupported
}

// DeleteHeldBy frees an address by the name of its lease, if its holder is
// this container on this node in this session, and whatever its uid. For
// creates whose answer was lost. A lease that is gone is success.
func (s *Store) DeleteHeldBy(ctx context.Context, name, containerID, ifname string) error {
	return errors.ErrUnsupported
}

// TakeOver binds a Retained or Quarantined lease, or one Bound to an older
// sandbox of the same pod, to the holder of the request.
func (s *Store) TakeOver(ctx context.Context, old *v1alpha1.IPLease, r Request) (*v1alpha1.IPLease, error) {
	return nil, errors.ErrUnsupported
}

// Update writes the spec that a transition function made of the lease as last
// read. ErrNotMine and ErrGone as for Delete. It returns the lease as written;
// l is left alone.
func (s *Store) Update(ctx context.Context, l *v1alpha1.IPLease, next v1alpha1.IPLeaseSpec) (*v1alpha1.IPLease, error) {
	return nil, errors.ErrUnsupported
}

// Retain keeps the address for the pod's name after DEL.
func (s *Store) Retain(ctx context.Context, l *v1alpha1.IPLease) (*v1alpha1.IPLease, error) {
	return nil, errors.ErrUnsupported
}

// Quarantine sets a Bound lease aside because somebody else spoke for the
// address at ADD. keepHolder is for static addresses, which wait for the same pod.
func (s *Store) Quarantine(ctx context.Context, l *v1alpha1.IPLease, e Evidence, keepHolder bool) (*v1alpha1.IPLease, error) {
	return nil, errors.ErrUnsupported
}

// RecordConflict notes on a Bound lease that somebody else speaks for the address.
func (s *Store) RecordConflict(ctx context.Context, l *v1alpha1.IPLease, e Evidence) (*v1alpha1.IPLease, error) {
	return nil, errors.ErrUnsupported
}

// Confirm clears previous after a take-over was verified.
func (s *Store) Confirm(ctx context.Context, l *v1alpha1.IPLease) (*v1alpha1.IPLease, error) {
	return nil, errors.ErrUnsupported
}

// Unverified sets a lease aside again whose take-over could not be verified.
func (s *Store) Unverified(ctx context.Context, l *v1alpha1.IPLease, message string) (*v1alpha1.IPLease, error) {
	return nil, errors.ErrUnsupported
}

// Settle writes what a verification of a Quarantined lease found: it is
// deleted (nil is returned), Retained, or stays with the finding.
func (s *Store) Settle(ctx context.Context, l *v1alpha1.IPLease, f Finding, e Evidence) (*v1alpha1.IPLease, error) {
	return nil, errors.ErrUnsupported
}

// OfPod returns the leases of all pods of that name, whatever their uid,
// session and state; for taking static addresses over, and a newer sandbox's.
func (s *Store) OfPod(ctx context.Context, namespace, pod string) ([]v1alpha1.IPLease, error) {
	return nil, errors.ErrUnsupported
}

// TakenIn returns the addresses of a pool that have a lease in any state:
// the truth of one moment after the call.
func (s *Store) TakenIn(ctx context.Context, pool string) (map[netip.Addr]struct{}, error) {
	return nil, errors.ErrUnsupported
}

// Token returns the fencing token of a lease as Create, TakeOver or, for a
// verifier, Get returned it. Later writes do not change the holder's token.
func Token(l *v1alpha1.IPLease) (uint64, error) { return 0, errors.ErrUnsupported }
