// SPDX-License-Identifier: Apache-2.0

package cniserver

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	testclock "k8s.io/utils/clock/testing"

	"github.com/fenceline/fenceline/cni/agentapi"
	"github.com/fenceline/fenceline/cni/spool"
	"github.com/fenceline/fenceline/test/check"
)

func (r *rig) spoolIsEmpty() bool {
	list, err := r.spool.List()
	return err == nil && len(list) == 0
}

func TestCallsSpooledBeforeTheStartAreCarriedOut(t *testing.T) {
	d := spool.Dir(t.TempDir())
	for _, id := range []string{"one", "two"} {
		check.OK(t, d.Put(delOf(id)))
	}
	r := start(t, &brain{}, withSpool(d))
	check.Becomes(t, patience, "the spool is empty", r.spoolIsEmpty)
	got := r.brain.deleted()
	slices.Sort(got)
	check.List(t, got, []string{"one", "two"}, "carried out")
}

func TestACallSpooledWhileTheServerRunsIsCarriedOut(t *testing.T) {
	// A stopped clock: only the appearance of the file can be the reason.
	r := start(t, &brain{}, withClock(testclock.NewFakeClock(time.Now())))
	check.Becomes(t, patience, "the spool is there", func() bool {
		_, err := os.Stat(string(r.spool))
		return err == nil
	})
	check.OK(t, r.spool.Put(delOf("abc")))
	check.Becomes(t, patience, "the spool is empty", r.spoolIsEmpty)
	check.List(t, r.brain.deleted(), []string{"abc"}, "carried out")
}

func TestASpooledCallThatFailsStaysAndIsTriedAgain(t *testing.T) {
	c := testclock.NewFakeClock(time.Now())
	var tries atomic.Int32
	var ready atomic.Bool
	r := start(t, &brain{del: func(context.Context, agentapi.DelRequest) error {
		tries.Add(1)
		if !ready.Load() {
			return errors.New("no slot to kill yet")
		}
		return nil
	}}, withClock(c))
	check.Becomes(t, patience, "the period runs", c.HasWaiters)
	check.OK(t, r.spool.Put(delOf("abc")))
	check.Becomes(t, patience, "it was tried", func() bool { return tries.Load() > 0 })
	check.Must(t, !r.spoolIsEmpty(), "the call is lost")
	ready.Store(true)
	check.Becomes(t, patience, "the next period carries it out", func() bool {
		c.Step(30 * time.Second)
		return r.spoolIsEmpty()
	})
}

func TestAMalformedFileIsCarriedOutByItsName(t *testing.T) {
	d := spool.Dir(t.TempDir())
	check.OK(t, os.WriteFile(filepath.Join(string(d), "abc@eth0.json"), []byte("{"), 0o600))
	r := start(t, &brain{}, withSpool(d))
	check.Becomes(t, patience, "the spool is empty", r.spoolIsEmpty)
	r.brain.mu.Lock()
	defer r.brain.mu.Unlock()
	got := r.brain.dels
	check.That(t, len(got) == 1 && got[0].Attachment == attachment("abc"), "carried out %+v", got)
}

// TestASpooledDELGoesBeforeAnADDOfTheSameAttachment: carried out after it, the
// DEL would free the address of a living pod.
func TestASpooledDELGoesBeforeAnADDOfTheSameAttachment(t *testing.T) {
	failing := errors.New("not now")
	var del atomic.Pointer[error]
	del.Store(&failing)
	added := make(chan struct{}, 1)
	r := start(t, &brain{
		del: func(context.Context, agentapi.DelRequest) error { return *del.Load() },
		add: func(context.Context, agentapi.AddRequest) (*agentapi.AddResponse, error) {
			added <- struct{}{}
			return &agentapi.AddResponse{}, nil
		},
	}, withClock(testclock.NewFakeClock(time.Now())))
	check.OK(t, r.spool.Put(delOf("abc")))

	_, err := r.Add(t.Context(), addOf("abc"))
	e, ok := errors.AsType[*agentapi.Error](err)
	check.Must(t, ok && e.Code == agentapi.CodeTryAgainLater, "ADD while the DEL fails: %v, want code 11", err)
	check.Must(t, len(added) == 0, "the backend was asked to add")

	var fine error
	del.Store(&fine)
	check.Value(r.Add(t.Context(), addOf("abc")))(t)
	check.That(t, len(added) == 1 && r.spoolIsEmpty() && slices.Equal(r.brain.deleted(), []string{"abc"}),
		"added %d times, deleted %v, spool empty: %v", len(added), r.brain.deleted(), r.spoolIsEmpty())
}

func TestADELOfTheRuntimeSettlesTheSpooledOneUnlessItIsChained(t *testing.T) {
	r := start(t, &brain{del: func(_ context.Context, r agentapi.DelRequest) error {
		if r.Pod.Name == "spooled" {
			return errors.New("not now")
		}
		return nil
	}}, withClock(testclock.NewFakeClock(time.Now())))
	spooled, chained := delOf("abc"), delOf("abc")
	spooled.Pod.Name = "spooled"
	chained.Chained = true
	check.OK(t, r.spool.Put(spooled))
	for _, c := range []struct {
		request agentapi.DelRequest
		empty   bool
	}{{chained, false}, {delOf("abc"), true}} {
		check.OK(t, r.Del(t.Context(), c.request))
		check.That(t, r.spoolIsEmpty() == c.empty, "after a DEL with chained %v the spool is empty: %v", c.request.Chained, !c.empty)
	}
}

func TestANodeThatCannotWatchItsSpoolLooksFromTimeToTime(t *testing.T) {
	c := testclock.NewFakeClock(time.Now())
	r := start(t, &brain{}, withClock(c), withoutWatch)
	check.Becomes(t, patience, "the period runs", c.HasWaiters)
	check.OK(t, r.spool.Put(delOf("abc")))
	check.Becomes(t, patience, "the next period carries it out", func() bool {
		c.Step(30 * time.Second)
		return r.spoolIsEmpty()
	})
}

func TestWhatAKilledPluginLeftInTheSpoolIsRemoved(t *testing.T) {
	d := spool.Dir(t.TempDir())
	old, young := filepath.Join(string(d), ".put-1"), filepath.Join(string(d), ".put-2")
	for path, age := range map[string]time.Duration{old: 2 * time.Hour, young: 0} {
		written := time.Now().Add(-age)
		check.OK(t, errors.Join(os.WriteFile(path, []byte("{"), 0o600), os.Chtimes(path, written, written)))
	}
	start(t, &brain{}, withSpool(d))
	check.Becomes(t, patience, "the old file is gone", func() bool {
		_, err := os.Stat(old)
		return errors.Is(err, os.ErrNotExist)
	})
	_, err := os.Stat(young)
	check.That(t, err == nil, "a plugin may still write it: %v", err)
}
