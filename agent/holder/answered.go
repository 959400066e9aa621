package holder

import (
	"sync"
	"time"

	"github.com/fenceline/fenceline/cni/agentapi"
)

// pinDelay is how long after the answer a guard is pinned. Until then the
// plugin sets the interface up, which takes the lock of all network devices
// that a pin holds for tens of milliseconds.
const pinDelay = 30 * time.Millisecond

// giveWayLatest is how long others wait for the end of ADDs that are under way:
// one that waits for a full pool takes many seconds.
const giveWayLatest = time.Second

// unanswered are the ADDs that have succeeded and whose answer is on its way.
// Safe for concurrent use.
type unanswered struct {
	mu  sync.Mutex
	all map[attachment]*adding
}

func (u *unanswered) put(a *adding) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.all == nil {
		u.all = map[attachment]*adding{}
	}
	u.all[attachmentOf(&a.entry)] = a
}

// take returns an ADD once, or nil.
func (u *unanswered) take(a attachment) *adding {
	u.mu.Lock()
	defer u.mu.Unlock()
	add := u.all[a]
	delete(u.all, a)
	return add
}

// Answered begins what an ADD has left for after its answer: the claim of an
// address that was Warm, the announcement, the pin of the guard. An agent that
// ends before makes up for it when it starts again.
func (h *Holders) Answered(of agentapi.Attachment) {
	a := h.unanswered.take(attachment{of.ContainerID, of.Interface})
	if a == nil {
		return
	}
	for _, b := range a.bound {
		a.announce(b)
	}
	h.tasks.Go(func() {
		h.rest(pinDelay)
		// Before it takes its turn, so that many pins wait together.
		h.GiveWay()
		h.pin(a.entry)
		h.prepare(a.entry.ParentIndex)
	})
}

// GiveWay leaves machine and API server to the ADDs that are under way: it waits
// until none is, a second at the most.
func (h *Holders) GiveWay() { h.waitForADDs(giveWayLatest) }

// waitForADDs waits until none is under way, d has passed, or the agent ends.
func (h *Holders) waitForADDs(d time.Duration) {
	end := h.Clock.Now().Add(d)
	for h.underWay.Load() > 0 && h.background.Err() == nil && h.Clock.Now().Before(end) {
		h.rest(pinDelay)
	}
}

// rest waits, unless the agent ends.
func (h *Holders) rest(d time.Duration) {
	t := h.Clock.NewTimer(d)
	defer t.Stop()
	select {
	case <-h.background.Done():
	case <-t.C():
	}
}
