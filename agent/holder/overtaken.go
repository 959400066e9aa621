package holder

import "sync"

// overtaken are the ADDs under way, and which of them a verifier of this node has
// taken the lease of, because Kubernetes wants their pods no more. Their guards may
// come to life after that, so they must not answer. Safe for concurrent use.
type overtaken struct {
	mu  sync.Mutex
	all map[attachment]bool
}

// begin makes an ADD known. What was killed before it is no word about it.
func (o *overtaken) begin(a attachment) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.all == nil {
		o.all = map[attachment]bool{}
	}
	o.all[a] = false
}

// add overtakes an ADD, if one is under way.
func (o *overtaken) add(a attachment) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if _, underWay := o.all[a]; underWay {
		o.all[a] = true
	}
}

func (o *overtaken) has(a attachment) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.all[a]
}

// forget ends what begin began, with the ADD.
func (o *overtaken) forget(a attachment) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.all, a)
}
