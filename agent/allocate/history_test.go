// SPDX-License-Identifier: Apache-2.0

package allocate

import "sync"

// history is which leases there were when. Every lease is told before anybody
// can meet it, and its end after it: at each moment the history knows all
// leases that there are. Safe for concurrent use; nil remembers nothing.
type history struct {
	mu     sync.Mutex
	events []event
}

type event struct {
	lease string
	by    int // +1 or -1
}

func (h *history) add(lease string, by int) {
	if h == nil {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.events = append(h.events, event{lease, by})
}

// now is a moment.
func (h *history) now() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.events)
}

// everAllTaken tells whether at one moment from the first to the last, both
// included, every one of the leases was there.
func (h *history) everAllTaken(leases []string, from, to int) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	wanted := map[string]bool{}
	for _, l := range leases {
		wanted[l] = true
	}
	count, taken := map[string]int{}, 0
	for i := 0; i <= to; i++ {
		if i >= from && taken == len(wanted) {
			return true
		}
		if i == len(h.events) || !wanted[h.events[i].lease] {
			continue
		}
		was := count[h.events[i].lease] > 0
		count[h.events[i].lease] += h.events[i].by
		switch is := count[h.events[i].lease] > 0; {
		case is && !was:
			taken++
		case was && !is:
			taken--
		}
	}
	return false
}
