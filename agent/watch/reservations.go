// SPDX-License-Identifier: Apache-2.0

package watch

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/internal/poolset"
)

// Reservations are the ReservedIPs of the cluster: packed, and as a whole those whose status agents read, which are of
// virtual addresses or of machines. A usual cache would hold 1 kB for each. A reflector writes them. Safe for concurrent
// use.
type Reservations struct {
	client client.WithWatch
	// filled is closed after the first list.
	filled chan struct{}

	mu sync.Mutex
	// texts are in order, and belong to packed if that is not nil.
	texts  []string
	packed *poolset.Packed
	whole  map[string]*v1alpha1.ReservedIP
	// listed is their list, if somebody asked since the last change.
	listed []v1alpha1.ReservedIP
	told   []func(reservationChange)
}

// reservationChange is one of a reservation. was and is are nil if it is not kept as a whole.
type reservationChange struct {
	was, is *v1alpha1.ReservedIP
	// spec: not only the status has changed.
	spec bool
}

func newReservations(c client.WithWatch) *Reservations {
	return &Reservations{client: c, filled: make(chan struct{}), whole: map[string]*v1alpha1.ReservedIP{}}
}

// Run watches until ctx ends.
func (s *Reservations) Run(ctx context.Context) error {
	toolscache.NewReflectorWithOptions(&toolscache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			all := &v1alpha1.ReservedIPList{}
			return all, s.client.List(ctx, all, &client.ListOptions{Raw: &o, Limit: o.Limit, Continue: o.Continue})
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			return s.client.Watch(ctx, &v1alpha1.ReservedIPList{}, &client.ListOptions{Raw: &o})
		},
	}, &v1alpha1.ReservedIP{}, s, toolscache.ReflectorOptions{Name: "reservations"}).RunWithContext(ctx)
	return nil
}

// Transformer has the reflector drop what nobody reads as soon as it can.
func (s *Reservations) Transformer() toolscache.TransformFunc {
	return cache.TransformStripManagedFields()
}

// Add implements toolscache.ReflectorStore, as the next functions do.
func (s *Reservations) Add(o any) error { return s.Update(o) }

// Update takes a reservation that is new or has changed.
func (s *Reservations) Update(o any) error {
	r := o.(*v1alpha1.ReservedIP)
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.set(r.Name, r)
}

// Delete takes one that is gone.
func (s *Reservations) Delete(o any) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.set(o.(*v1alpha1.ReservedIP).Name, nil)
}

// Replace takes all that there are.
func (s *Reservations) Replace(all []any, _ string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	gone := map[string]bool{}
	for _, text := range s.texts {
		gone[poolset.PackedName(text)] = true
	}
	for _, o := range all {
		r := o.(*v1alpha1.ReservedIP)
		delete(gone, r.Name)
		if err := s.set(r.Name, r); err != nil {
			return err
		}
	}
	for name := range gone {
		if err := s.set(name, nil); err != nil {
			return err
		}
	}
	select {
	case <-s.filled:
	default:
		close(s.filled)
	}
	return nil
}

// Resync does nothing.
func (s *Reservations) Resync() error { return nil }

// set replaces a reservation; nil removes it. It needs mu.
func (s *Reservations) set(name string, r *v1alpha1.ReservedIP) error {
	at, found := slices.BinarySearchFunc(s.texts, name, func(text, name string) int { return strings.Compare(poolset.PackedName(text), name) })
	change, text := reservationChange{was: s.whole[name]}, ""
	s.listed = nil
	delete(s.whole, name)
	if r != nil {
		var err error
		if text, err = poolset.Pack(r); err != nil {
			return fmt.Errorf("pack ReservedIP %s: %w", name, err)
		}
		if r.Spec.Virtual != nil || r.Machine() != "" {
			r.ManagedFields = nil
			change.is, s.whole[name] = r, r
		}
	}
	if change.spec = !found && r != nil || found && s.texts[at] != text; change.spec {
		if s.packed != nil {
			s.packed, s.texts = nil, slices.Clone(s.texts)
		}
		switch {
		case r == nil:
			s.texts = slices.Delete(s.texts, at, at+1)
		case found:
			s.texts[at] = text
		default:
			s.texts = slices.Insert(s.texts, at, text)
		}
	}
	for _, tell := range s.told {
		tell(change)
	}
	return nil
}

// all returns the reservations as they are now.
func (s *Reservations) all() *poolset.Packed {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.packed == nil {
		s.packed = poolset.NewPacked(s.texts)
	}
	return s.packed
}

// get returns a reservation that is kept as a whole.
func (s *Reservations) get(name string) (*v1alpha1.ReservedIP, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r := s.whole[name]; r != nil {
		return r, nil
	}
	return nil, apierrors.NewNotFound(schema.GroupResource{Group: v1alpha1.GroupVersion().Group, Resource: "reservedips"}, name)
}

// list returns those that are kept as a whole. Nobody may change the list.
func (s *Reservations) list() []v1alpha1.ReservedIP {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.listed == nil {
		for _, name := range slices.Sorted(maps.Keys(s.whole)) {
			s.listed = append(s.listed, *s.whole[name])
		}
	}
	return s.listed
}

// changes is a source of one request for all changes that pass, and for what there is when it starts.
func (s *Reservations) changes(passes func(reservationChange) bool) source.Source {
	return source.Func(func(_ context.Context, q queue) error {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.told = append(s.told, func(c reservationChange) {
			if passes(c) {
				q.Add(reconcile.Request{})
			}
		})
		if len(s.texts) > 0 {
			q.Add(reconcile.Request{})
		}
		return nil
	})
}

// respecified passes changes of a spec, judged also those of the conditions of a virtual address, and spoken all of a
// virtual address.
func respecified(c reservationChange) bool { return c.spec }

func judged(c reservationChange) bool {
	return c.spec || isVirtual(c.was) && isVirtual(c.is) && !equality.Semantic.DeepEqual(c.was.Status.Conditions, c.is.Status.Conditions)
}

func spoken(c reservationChange) bool { return isVirtual(c.was) || isVirtual(c.is) }

func isVirtual(r *v1alpha1.ReservedIP) bool { return r != nil && r.Spec.Virtual != nil }
