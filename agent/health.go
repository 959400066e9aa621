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
	// InstallPlugin installs the plugin if it is not installed yet.
	InstallPlugin func() error

	// synced is set once the caches were synced.
	synced atomic.Bool
}

// Check returns the reason why ADD would fail for every pod, or nil.
func (r *Ready) Check(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, syncWithin)
	defer cancel()
	// Check waits for the caches only until they were synced once. The first ADD may start another
	// watch. If Check waited for that watch, the runtime would report the whole node as not Ready.
	if !r.synced.Load() && !r.CachesSynced(ctx) {
		return errors.New("the API server has not answered since the agent started")
	}
	r.synced.Store(true)
	if !r.KeySettled() {
		return errors.New("there is no claim key yet; is the controller running?")
	}
	if err := r.State(); err != nil {
		return err
	}
	return r.InstallPlugin()
}
