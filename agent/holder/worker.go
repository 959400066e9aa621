package holder

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/fenceline/fenceline/agent/journal"
	"github.com/fenceline/fenceline/agent/lease"
	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/bpf"
)

const (
	// auditPeriod is how often the journal is compared with the cached leases,
	// in case that no event told of a difference.
	auditPeriod = time.Minute
	// retryFirst and retryMost bound the back-off of what failed. While the API
	// server is away each try is one call.
	retryFirst = 100 * time.Millisecond
	retryMost  = time.Second
	// firstPatience is how long a try waits for the API server at first: one that
	// is just starting may accept a request and never answer it. Each try that
	// was too short doubles it, up to askTimeout.
	firstPatience = time.Second
)

// Changed tells that a watch saw the lease of that name change or go. The watch
// decides nothing: a GET does (R7).
func (h *Holders) Changed(name string) {
	for _, e := range h.Journal.All() {
		for _, address := range e.Addresses {
			if address.LeaseName == name {
				h.pending.add(attachmentOf(e))
			}
		}
	}
}

// LookAgain has every lease looked at, when there is reason to trust no watch.
func (h *Holders) LookAgain() {
	for _, e := range h.Journal.All() {
		h.pending.add(attachmentOf(e))
	}
}

// Fenced tells that a newer claim was heard for an address held here.
func (h *Holders) Fenced(key bpf.Key) {
	if e, _, ok := h.Holder(key); ok {
		h.pending.add(attachmentOf(&e))
	}
}

// Run resumes the whole journal, and from then on what is pending: at once, and
// again until it succeeds. It returns when ctx ends. Call it once.
func (h *Holders) Run(ctx context.Context) error {
	h.LookAgain()
	var wait time.Duration
	retry, patience, told := retryFirst, firstPatience, ""
	audited := h.Clock.Now()
	for {
		timer := h.Clock.NewTimer(wait)
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil
		case <-h.pending.wake:
		case <-timer.C():
		}
		timer.Stop()
		if h.Clock.Since(audited) >= auditPeriod {
			audited = h.Clock.Now()
			h.suspect(ctx)
			if err := h.freeWithoutEntry(ctx); err != nil {
				h.Log.Info("leases without an entry in the journal wait for the next audit", "why", err.Error())
			}
		}
		left, err := h.resume(ctx, patience)
		if lost := h.setAsideLastBoot(ctx); lost != nil {
			left, err = left+1, errors.Join(err, lost)
		}
		if left == 0 {
			wait, retry, patience, told = auditPeriod, retryFirst, firstPatience, ""
			continue
		}
		if errors.Is(err, context.DeadlineExceeded) {
			patience = min(2*patience, askTimeout)
		}
		// The same sentence each second would bury the others.
		if why := err.Error(); why != told && !errors.Is(err, errBusy) {
			told = why
			h.Log.Info("entries of the journal wait to be resumed", "entries", left, "why", why)
		}
		wait, retry = retry, min(2*retry, retryMost)
	}
}

// worth orders phases by who is resumed first.
func worth(p journal.Phase) int {
	if p == journal.Bound {
		return 1
	}
	return 0
}

// resume resumes what is pending, with patience for each: first what gives
// addresses back, for which others wait, and of that the oldest first. It
// returns how many entries are left, and why the first of them is. While the
// API server is away one call fails for all; another one the next time, since
// what looks like that may be about one pod, as a webhook that does not answer is.
func (h *Holders) resume(ctx context.Context, patience time.Duration) (left int, first error) {
	todo := h.pending.take()
	away := false
	entries := slices.Clone(h.Journal.All())
	slices.SortStableFunc(entries, func(a, b *journal.Entry) int {
		return cmp.Or(cmp.Compare(h.unresumed[attachmentOf(a)], h.unresumed[attachmentOf(b)]), cmp.Compare(worth(a.Phase), worth(b.Phase)))
	})
	for _, e := range entries {
		a := attachmentOf(e)
		if !todo[a] {
			continue
		}
		if !away {
			err := h.resumeEntry(ctx, a, patience)
			if err == nil {
				delete(h.unresumed, a)
				continue
			}
			if first == nil || errors.Is(first, errBusy) {
				first = err
			}
			if away = lease.IsUnavailable(err); away {
				h.unresumed[a]++
			}
		}
		h.pending.putBack(a)
		left++
	}
	if left == 0 {
		clear(h.unresumed)
	}
	return left, first
}

// suspect makes pending what the cache does not show as ours.
func (h *Holders) suspect(ctx context.Context) {
	for _, e := range h.Journal.All() {
		if e.Phase != journal.Bound || e.Session != h.Session || !h.looksHeld(ctx, e) {
			h.pending.add(attachmentOf(e))
		}
	}
}

func (h *Holders) looksHeld(ctx context.Context, e *journal.Entry) bool {
	for _, address := range e.Addresses {
		l := &v1alpha1.IPLease{}
		err := h.Cache.Get(ctx, clientKey(address.LeaseName), l)
		if err != nil || !holds(l, h.Node, e) || l.Spec.Session != h.Session || string(l.UID) != address.LeaseUID ||
			lease.IsBehind(l, address.Token) {
			return false
		}
	}
	return true
}
