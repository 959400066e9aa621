// SPDX-License-Identifier: Apache-2.0

package page

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"time"

	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/internal/story"
)

const (
	// maxViewers bounds the pages that are open at a time.
	maxViewers = 64
	// backlog is the number of changes that a page may be behind. A page that is further behind is
	// disconnected, and reads everything again.
	backlog = 4096
	// remembered is the number of happenings that a new page gets.
	remembered = 100
)

// Happening is a line of the feed.
type Happening struct {
	At time.Time `json:"at"`
	// Kind is conflict, reclaim or fence.
	Kind    string `json:"kind"`
	Address string `json:"address"`
	Lease   string `json:"lease"`
	Pool    string `json:"pool"`
	Text    string `json:"text"`
}

// Feed passes changes to all open pages. Safe for concurrent use.
type Feed struct {
	mu        sync.Mutex
	viewers   map[chan []byte]bool
	happening []Happening // the oldest first
	// pools are those that there are, by name. They are read-only.
	pools map[string]*v1alpha1.IPPool
}

func newFeed() *Feed {
	return &Feed{viewers: map[chan []byte]bool{}, pools: map[string]*v1alpha1.IPPool{}}
}

// join returns the messages for a new page, first the happenings so far. The channel is closed if the
// page is too slow. leave must be called once.
func (f *Feed) join() (messages <-chan []byte, leave func(), ok bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.viewers) >= maxViewers {
		return nil, nil, false
	}
	c := make(chan []byte, backlog)
	c <- message("hello", f.happening)
	f.viewers[c] = true
	return c, func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		delete(f.viewers, c)
	}, true
}

// message encodes one server-sent event. JSON has no line breaks.
func message(kind string, v any) []byte {
	data, err := json.Marshal(v)
	if err != nil {
		panic(err) // the types of this package can be encoded
	}
	return bytes.Join([][]byte{[]byte("event: " + kind + "\ndata: "), data, []byte("\n\n")}, nil)
}

// send passes a change to all pages. The caller holds mu.
func (f *Feed) send(kind string, v any) {
	if len(f.viewers) == 0 {
		return
	}
	m := message(kind, v)
	for c := range f.viewers {
		select {
		case c <- m:
		default:
			delete(f.viewers, c)
			close(c)
		}
	}
}

// Pool reports a pool that is new or has changed.
func (f *Feed) Pool(pool *v1alpha1.IPPool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.pools[pool.Name] = pool
	f.send("pool", poolOf(pool))
}

// PoolGone reports a pool that is gone.
func (f *Feed) PoolGone(name string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.pools, name)
	f.send("pool-gone", name)
}

// Speakers reports the speakers of a reservation that are new or gone. was is nil for a new one, and is is nil for one
// that is gone. A page learns of a reservation itself by the counts of its pool.
func (f *Feed) Speakers(was, is *v1alpha1.ReservedIP) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.viewers) == 0 {
		return
	}
	rows := func(pool *v1alpha1.IPPool, r *v1alpha1.ReservedIP) []Lease {
		if r == nil {
			return nil
		}
		return speakersOf(pool, []v1alpha1.ReservedIP{*r})
	}
	for _, pool := range f.pools {
		before, now := rows(pool, was), rows(pool, is)
		for _, row := range before {
			if !slices.ContainsFunc(now, func(o Lease) bool { return o.Address == row.Address }) {
				f.send("lease-gone", row)
			}
		}
		for _, row := range now {
			if !slices.Contains(before, row) {
				f.send("lease", row)
			}
		}
	}
}

// Lease reports a change of a lease. was is nil for a new one, and is is nil for one that is gone.
func (f *Feed) Lease(was, is *v1alpha1.IPLease, now time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if is == nil {
		f.send("lease-gone", leaseOf(was))
	} else if was == nil || was.ResourceVersion != is.ResourceVersion {
		f.send("lease", leaseOf(is))
	}
	if h, ok := happened(was, is, now); ok {
		f.remember(h)
		f.send("happening", h)
	}
}

// Present reports a lease that was there before the feed.
func (f *Feed) Present(lease *v1alpha1.IPLease) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.send("lease", leaseOf(lease))
	if h, ok := happened(nil, lease, lease.Spec.Since.Time); ok {
		f.remember(h)
	}
}

func (f *Feed) remember(h Happening) {
	at, _ := slices.BinarySearchFunc(f.happening, h, func(a, b Happening) int { return cmp.Or(a.At.Compare(b.At), -1) })
	f.happening = slices.Insert(f.happening, at, h)
	if len(f.happening) > remembered {
		f.happening = slices.Delete(f.happening, 0, 1)
	}
}

// happened returns the line of the feed for a change of a lease, if it has one.
func happened(was, is *v1alpha1.IPLease, now time.Time) (Happening, bool) {
	wasQuarantined := was != nil && was.Spec.State == v1alpha1.StateQuarantined
	isQuarantined := is != nil && is.Spec.State == v1alpha1.StateQuarantined
	lease := cmp.Or(is, was)
	spec := &lease.Spec
	h := Happening{At: now, Address: spec.Address, Lease: lease.Name, Pool: spec.Pool}
	switch {
	case isQuarantined && spec.Reason == v1alpha1.ReasonConflict && !(wasQuarantined && was.Spec.Reason == spec.Reason):
		h.Kind, h.Text = "conflict", "another host uses the address"
		if spec.Conflict != nil && spec.Conflict.MAC != "" {
			h.Text = fmt.Sprintf("the host with MAC %s uses the address", spec.Conflict.MAC)
		}
	case isQuarantined && !wasQuarantined:
		h.Kind, h.Text = "reclaim", fmt.Sprintf("taken from %s: %s", story.LastHolder(spec), spec.Reason)
	case wasQuarantined && !isQuarantined && was.Spec.Previous != nil:
		h.Kind, h.Text = "fence", fmt.Sprintf("%s is fenced, gone or silent", story.LastHolder(&was.Spec))
	default:
		return h, false
	}
	return h, true
}

// Watching returns a Server.Watch that follows the informers of a cache.
func Watching(informers cache.Informers) func(context.Context, *Feed) error {
	return func(ctx context.Context, feed *Feed) error {
		leases := toolscache.ResourceEventHandlerDetailedFuncs{
			AddFunc: func(o any, isInInitialList bool) {
				if lease := o.(*v1alpha1.IPLease); isInInitialList {
					feed.Present(lease)
				} else {
					feed.Lease(nil, lease, time.Now())
				}
			},
			UpdateFunc: func(was, is any) { feed.Lease(was.(*v1alpha1.IPLease), is.(*v1alpha1.IPLease), time.Now()) },
			DeleteFunc: func(o any) {
				if lease, ok := last(o).(*v1alpha1.IPLease); ok {
					feed.Lease(lease, nil, time.Now())
				}
			},
		}
		pools := toolscache.ResourceEventHandlerFuncs{
			AddFunc:    func(o any) { feed.Pool(o.(*v1alpha1.IPPool)) },
			UpdateFunc: func(_, o any) { feed.Pool(o.(*v1alpha1.IPPool)) },
			DeleteFunc: func(o any) {
				if pool, ok := last(o).(*v1alpha1.IPPool); ok {
					feed.PoolGone(pool.Name)
				}
			},
		}
		speakers := toolscache.ResourceEventHandlerFuncs{
			AddFunc:    func(o any) { feed.Speakers(nil, o.(*v1alpha1.ReservedIP)) },
			UpdateFunc: func(was, is any) { feed.Speakers(was.(*v1alpha1.ReservedIP), is.(*v1alpha1.ReservedIP)) },
			DeleteFunc: func(o any) {
				if r, ok := last(o).(*v1alpha1.ReservedIP); ok {
					feed.Speakers(r, nil)
				}
			},
		}
		for object, handler := range map[client.Object]toolscache.ResourceEventHandler{
			&v1alpha1.IPLease{}: leases, &v1alpha1.IPPool{}: pools, &v1alpha1.ReservedIP{}: speakers,
		} {
			informer, err := informers.GetInformer(ctx, object)
			if err == nil {
				_, err = informer.AddEventHandler(handler)
			}
			if err != nil {
				return fmt.Errorf("watch %T: %w", object, err)
			}
		}
		return nil
	}
}

// last returns the last known state of a deleted object.
func last(o any) any {
	if unknown, ok := o.(toolscache.DeletedFinalStateUnknown); ok {
		return unknown.Obj
	}
	return o
}
