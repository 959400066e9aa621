package holder

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"k8s.io/utils/ptr"

	"github.com/fenceline/fenceline/agent/allocate"
	"github.com/fenceline/fenceline/agent/ipam"
	"github.com/fenceline/fenceline/agent/lease"
	"github.com/fenceline/fenceline/agent/segment"
	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/cni/agentapi"
)

// claimTimeout bounds a claim after the answer: tens of milliseconds, unless
// the parent's pacer is crowded.
const claimTimeout = 2 * time.Second

// freshDoubt is how long the kernel's word on a proof may have been given
// before its lease is bound: a write takes milliseconds, unless the API server
// is slow.
const freshDoubt = 50 * time.Millisecond

// bindNew gets an address that is kept for nobody: one that is ready, or else a free one.
func (a *adding) bindNew(ctx context.Context, f ipam.Family) (boundAddress, error) {
	b, ok, err := a.bindReady(ctx, f)
	if err == nil && !ok {
		b, err = a.bindFree(ctx, f)
	}
	if err == nil {
		a.h.Warm.Used(b.pool.Name, a.link.Parent)
	}
	return b, err
}

// bindReady binds a lease that is ready, in the order of the pools: a later
// pool's is taken only where the earlier ones look full. A requested address is
// this node's to give also if it is not ready.
func (a *adding) bindReady(ctx context.Context, f ipam.Family) (b boundAddress, ok bool, err error) {
	for _, c := range f.Pools {
		if c.Closed != nil {
			continue
		}
		if f.Requested.IsValid() || ptr.Deref(c.Pool.Spec.Warm, 0) > 0 {
			wish := a.warmWish(c)
			wish.Addr, wish.Any = f.Requested, f.Requested.IsValid()
			if b, ok, err = a.bindWarm(ctx, c.Pool, wish); ok || err != nil {
				return b, ok, err
			}
		}
		// A pool that the controller has not counted yet does not look full.
		if s := &c.Pool.Status; s.Free > 0 || s.Total == 0 {
			break
		}
	}
	return boundAddress{}, false, nil
}

// bindLast binds any Warm lease of this node, which must not keep its own pods
// from an address.
func (a *adding) bindLast(ctx context.Context, f ipam.Family) (b boundAddress, ok bool, err error) {
	for _, c := range f.Pools {
		if c.Closed != nil {
			continue
		}
		wish := a.warmWish(c)
		wish.Any = true
		if b, ok, err = a.bindWarm(ctx, c.Pool, wish); ok || err != nil {
			break
		}
	}
	return b, ok, err
}

func (a *adding) warmWish(c ipam.Candidate) WarmWish {
	return WarmWish{
		Pool: c.Pool.Name, Parent: a.link.Parent, ParentIndex: a.link.ParentIndex,
		Mode: c.Pool.ConflictMode(), Has: c.Set.Contains,
	}
}

// bindWarm binds one of the Warm leases that will do; ok is false when there is
// none. Those that somebody has ended meanwhile are passed over.
func (a *adding) bindWarm(ctx context.Context, pool *v1alpha1.IPPool, wish WarmWish) (b boundAddress, ok bool, err error) {
	intents := len(a.entry.Addresses)
	for {
		w, ok := a.h.Warm.Take(wish)
		if !ok {
			return boundAddress{}, false, nil
		}
		l, doubt, err := a.writeBinding(ctx, pool, w)
		if errors.Is(err, lease.ErrNotMine) || errors.Is(err, lease.ErrGone) {
			a.h.Warm.Ended(w)
			a.entry.Addresses = a.entry.Addresses[:intents]
			continue
		}
		if err != nil {
			// If it was written all the same, the next Take finds out.
			a.h.Warm.PutBack(w)
			return boundAddress{}, false, err
		}
		b, outcome, err := a.speak(ctx, pool, l, doubt)
		a.h.Warm.Ended(w)
		if err == nil && outcome == allocate.Conflict {
			a.entry.Addresses = a.entry.Addresses[:intents]
			continue
		}
		return b, err == nil, err
	}
}

// doubt is what has come up against an address while its lease was bound.
type doubt struct {
	segment.Doubt
	who segment.Answer
}

// writeBinding makes a Warm lease this pod's: one write, journalled before. The
// kernel is asked beside it whether the address is as proven as it was, and again
// after a slow one.
func (a *adding) writeBinding(ctx context.Context, pool *v1alpha1.IPPool, w WarmLease) (*v1alpha1.IPLease, doubt, error) {
	addr, err := netip.ParseAddr(w.Spec.Address)
	if err != nil {
		return nil, doubt{}, fmt.Errorf("address of lease %s: %w", w.Name, err)
	}
	a.entry.Addresses = append(a.entry.Addresses, addressOf(pool, addr))
	if err := a.intend(); err != nil {
		return nil, doubt{}, err
	}
	asked := a.h.Clock.Now()
	doubts := make(chan doubt, 1)
	go func() { doubts <- a.h.doubt(w) }()
	l, err := a.h.Leases.BindWarm(ctx, w.IPLease, lease.Request{
		Pool: pool.Name, Network: pool.Spec.Network, Addr: addr, Parent: a.link.Parent, Holder: a.who,
		Retention: recordedRetention(a.pod),
	})
	found := <-doubts
	if err == nil && found.Doubt == segment.DoubtNone && a.h.Clock.Since(asked) > freshDoubt {
		found = a.h.doubt(w)
	}
	return l, found, err
}

// doubt asks the kernel about a lease that was taken; one that was not ready is unproven.
func (h *Holders) doubt(w WarmLease) (found doubt) {
	if !w.Ready {
		return doubt{Doubt: segment.DoubtUnproven}
	}
	found.Doubt, found.who = h.Warm.Doubt(w)
	return found
}

// speak lets the pod speak for a lease that was Warm a moment ago. An address in
// doubt is proven first, as one that was free (R4).
func (a *adding) speak(ctx context.Context, pool *v1alpha1.IPPool, l *v1alpha1.IPLease, d doubt) (boundAddress, allocate.Outcome, error) {
	token, err := lease.Token(l)
	if err != nil {
		return boundAddress{}, allocate.Conflict, err
	}
	held := &a.entry.Addresses[len(a.entry.Addresses)-1]
	held.LeaseUID, held.Token = string(l.UID), token
	switch {
	case d.Doubt == segment.DoubtSpoken && pool.ConflictMode() != v1alpha1.ModeObserve:
		outcome, err := a.setAside(ctx, pool, l, *held, d.who.MAC.String(), d.who.Source)
		return boundAddress{}, outcome, err
	case d.Doubt != segment.DoubtNone:
		outcome, err := a.prove(ctx, pool, l, *held)
		return boundAddress{pool: pool, address: *held}, outcome, err
	}
	c, err := a.install(pool, *held)
	return boundAddress{pool: pool, address: *held, unclaimed: &c}, allocate.Granted, err
}

// claimLate claims an address after the answer, and announces it only if nobody
// has a newer claim (R10). The runtime has not brought the link up yet.
func (a *adding) claimLate(b boundAddress) {
	// An agent that ends answers the ADDs that it has begun, and claims for them.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(a.h.background), claimTimeout)
	defer cancel()
	err := a.seg.ClaimAndConfirm(ctx, *b.unclaimed)
	switch {
	case err == nil:
		b.unclaimed = nil
		a.announce(b)
	case errors.Is(err, segment.ErrFenced):
		// As a fence that is heard at any other time: a GET decides (R7).
		a.h.pending.add(attachmentOf(&a.entry))
	default:
		// The claim is repeated within a minute (R3), and the pod announces itself.
		a.h.Log.Info("an address is used and not claimed yet", "address", b.address.Addr, "why", err.Error())
	}
}

// comingFree counts the leases of the pools that will end within seconds.
func (h *Holders) comingFree(ctx context.Context, f ipam.Family) (coming int, err error) {
	for _, c := range f.Pools {
		n, err := h.Leases.ComingFree(ctx, c.Pool.Name)
		if err != nil {
			return 0, err
		}
		coming += n
	}
	return coming, nil
}

// crowded says that a pool is full for the moment only.
func crowded(err error, coming int) error {
	return agentapi.Errorf(agentapi.CodeTryAgainLater, "%w; %d of these leases are kept ready by other nodes or being verified, and will end", err, coming)
}
