package holder

import "sync"

// overtaken are the ADDs under way whose lease a verifier of this node has
// declared dead, because Kubernetes wants their pods no more. Their guards may
// come to life after that, so they must not answer. Safe for concurrent use.
type overtaken struct {
	mu  sync.Mutex
	all map[attachment]bool
}

func (o *overtaken) add(a attachment) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.all == nil {
		o.all = map[attachment]bool{}
	}
	o.all[a] = true
}

func (o *overtaken) has(a attachment) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.all[a]
}

// forget ends what add began, with the ADD.
func (o *overtaken) forget(a attachment) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.all, a)
}
