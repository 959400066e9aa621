// SPDX-License-Identifier: Apache-2.0

package allocate

import (
	"context"
	"maps"
	"net/netip"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/utils/clock"

	"github.com/fenceline/fenceline/internal/loop"
)

// savePeriod is how often rotations are saved. They are a hint, so no ADD waits for the save.
const savePeriod = 5 * time.Second

// Rotations stores the position of each rotation. The document of the journal implements it.
type Rotations interface {
	Get() (last map[string]netip.Addr, known bool)
	Put(last map[string]netip.Addr) error
}

// SaveRotations saves the position of each rotation, periodically and when ctx ends.
func (a *Allocator) SaveRotations(ctx context.Context, to Rotations, c clock.Clock, log logr.Logger) error {
	l := loop.Loop{Clock: c, Period: savePeriod, Later: true, Failed: func(err error) {
		log.Error(err, "the order of addresses begins anew after a restart")
	}}
	_ = l.Try(ctx, func(context.Context) error { return a.saveTo(to) })
	return a.saveTo(to)
}

func (a *Allocator) saveTo(to Rotations) error {
	last := a.Last()
	if saved, _ := to.Get(); maps.Equal(last, saved) {
		return nil
	}
	return to.Put(last)
}
