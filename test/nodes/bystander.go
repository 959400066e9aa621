// SPDX-License-Identifier: Apache-2.0

package nodes

import "sync"

// Moment is an event that a bystander sees.
type Moment string

// The moments between plugin and agent, between agent and API server, and on the wire. "Sent": the
// API server has not got the call yet. "Done": the caller does not know yet that it took effect.
const (
	AddCalled   Moment = "ADD is called"
	AddAnswered Moment = "ADD is answered"
	DelCalled   Moment = "DEL is called"
	DelAnswered Moment = "DEL is answered"

	GetSent    Moment = "GET of a lease is sent"
	CreateSent Moment = "create of a lease is sent"
	CreateDone Moment = "create of a lease is done"
	UpdateSent Moment = "update of a lease is sent"
	UpdateDone Moment = "update of a lease is done"
	DeleteSent Moment = "delete of a lease is sent"
	DeleteDone Moment = "delete of a lease is done"

	Probed    Moment = "a probe is on the wire"
	Claimed   Moment = "a claim is on the wire"
	Announced Moment = "an address speaks on the wire"
)

// bystander waits for one moment at a time. Safe for concurrent use.
type bystander struct {
	mu    sync.Mutex
	watch *watch
}

// watch is the action at the n-th moment of a kind.
type watch struct {
	moment Moment
	nth    int
	act    func() error
	met    chan struct{}
}

// At runs act at the n-th such moment from now on. It replaces an earlier watch. A call between
// plugin, agent and API server waits until act has returned; an error of act closes the connection
// of that call. met is closed after act.
func (b *bystander) At(m Moment, nth int, act func() error) (met <-chan struct{}) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.watch = &watch{m, nth, act, make(chan struct{})}
	return b.watch.met
}

// see reports that a moment has come, and runs act if it is the watched one.
func (b *bystander) see(m Moment) error {
	b.mu.Lock()
	w := b.watch
	if w == nil || w.moment != m {
		b.mu.Unlock()
		return nil
	}
	w.nth--
	if w.nth > 0 {
		b.mu.Unlock()
		return nil
	}
	b.watch = nil
	b.mu.Unlock()
	defer close(w.met)
	return w.act()
}
