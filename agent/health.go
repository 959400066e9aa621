// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"sync/atomic"
	"time"
)

// syncWithin is how long one check waits for the caches: a probe has a timeout of one second.
const syncWithin = 500 * time.Millisecond

// Ready knows whether ADD can be served. Safe for concurrent use.
type Ready struct {
	// CachesSynced waits until the caches are synced or ctx ends, and reports whether they are.
	CachesSynced func(context.Context) bool
	// KeySettled reports whether a claim key is known, or is not waited for any longer.
	KeySettled func() bool
	// State reports why the state of the agent cannot be written, or nil.
	State func() error
	// Outage reports whether the API server is away.
	Outage func() (since time.Time, away bool)
	// InstallPlugin installs the plugin if it is not installed yet.
	InstallPlugin func() error

	// synced is set once the caches were synced, and without once the API server was away before.
	synced, without atomic.Bool
}

// Serves returns the reason why no call can be served, or nil. An agent that has started while the API server
// was away serves the pods that it knows: the node stays Ready, so that their next sandboxes start.
func (r *Ready) Serves(ctx context.Context) error {
	if _, away := r.Outage(); away {
		r.without.Store(true)
	}
	if r.without.Load() && !r.areSynced(ctx, 0) {
		return errors.Join(r.State(), r.InstallPlugin())
	}
	return r.Check(ctx)
}

// areSynced reports whether the caches were synced once. The first ADD may start another watch. A wait
// for that watch would have the runtime report the whole node as not Ready.
func (r *Ready) areSynced(ctx context.Context, within time.Duration) bool {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	if !r.synced.Load() && r.CachesSynced(ctx) {
		r.synced.Store(true)
	}
	return r.synced.Load()
}

// Check returns the reason why ADD would fail for every pod, or nil.
func (r *Ready) Check(ctx context.Context) error {
	if !r.areSynced(ctx, syncWithin) {
		return errors.New("the API server has not answered since the agent started")
	}
	if !r.KeySettled() {
		return errors.New("there is no claim key yet; is the controller running?")
	}
	if err := r.State(); err != nil {
		return err
	}
	return r.InstallPlugin()
}
