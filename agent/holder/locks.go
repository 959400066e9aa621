package holder

import (
	"sync"

	"github.com/fenceline/fenceline/agent/journal"
)

// attachment names one interface of one container.
type attachment struct{ containerID, ifname string }

func attachmentOf(e *journal.Entry) attachment { return attachment{e.ContainerID, e.Interface} }

// locks serialises work on one attachment: the plugin's calls, the release
// worker and the answers of watches meet here.
type locks struct {
	mu   sync.Mutex
	held map[attachment]*heldLock
}

type heldLock struct {
	sync.Mutex
	users int
}

// lock returns the function that unlocks.
func (l *locks) lock(a attachment) func() {
	l.mu.Lock()
	if l.held == nil {
		l.held = map[attachment]*heldLock{}
	}
	one := l.held[a]
	if one == nil {
		one = &heldLock{}
		l.held[a] = one
	}
	one.users++
	l.mu.Unlock()

	one.Lock()
	return func() {
		one.Unlock()
		l.mu.Lock()
		defer l.mu.Unlock()
		if one.users--; one.users == 0 {
			delete(l.held, a)
		}
	}
}
