// SPDX-License-Identifier: Apache-2.0

package page

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/controller/cache"
	"github.com/fenceline/fenceline/internal/access"
	"github.com/fenceline/fenceline/internal/inventory"
	"github.com/fenceline/fenceline/internal/poolset"
	"github.com/fenceline/fenceline/internal/story"
)

// Pool is a pool in the list of pools.
type Pool struct {
	Name       string             `json:"name"`
	Subnet     string             `json:"subnet"`
	Network    string             `json:"network,omitempty"`
	Disabled   bool               `json:"disabled,omitempty"`
	Generation int64              `json:"generation"`
	Counts     map[string]int64   `json:"counts"`
	Conditions []metav1.Condition `json:"conditions"`
}

// Lease is a lease in a grid.
type Lease struct {
	Name      string `json:"name"`
	Pool      string `json:"pool"`
	Address   string `json:"address"`
	State     string `json:"state"` // its letter
	Reason    string `json:"reason,omitempty"`
	Node      string `json:"node,omitempty"`
	Namespace string `json:"namespace,omitempty"`
	Pod       string `json:"pod,omitempty"`
	MAC       string `json:"mac,omitempty"`
	// Said explains a virtual address, which has no lease.
	Said string `json:"said,omitempty"`
}

// virtual is the letter of a virtual address for which a pod speaks. Such an address has a row like a lease.
const virtual = "V"

func poolOf(p *v1alpha1.IPPool) Pool {
	s := &p.Status
	return Pool{
		Name: p.Name, Subnet: p.Spec.Subnet, Network: p.Spec.Network, Disabled: p.Spec.Disable != nil && *p.Spec.Disable,
		Generation: p.Generation,
		Counts: map[string]int64{
			"total": s.Total, "used": s.Used, "free": s.Free, "reserved": s.Reserved,
			"B": s.Bound, "W": s.Warm, "Q": s.Quarantined, "R": s.Retained,
		},
		Conditions: slices.Clone(s.Conditions),
	}
}

func leaseOf(l *v1alpha1.IPLease) Lease {
	s := &l.Spec
	row := Lease{Name: l.Name, Pool: s.Pool, Address: s.Address, State: letter(inventory.OfLease(l)), Reason: string(s.Reason), Node: s.NodeName}
	if h := s.Holder; h != nil {
		row.Namespace, row.Pod, row.MAC = h.Namespace, h.Pod, h.MAC
	}
	if s.Conflict != nil && s.State == v1alpha1.StateQuarantined {
		row.MAC = cmp.Or(s.Conflict.MAC, row.MAC)
	}
	return row
}

// speakersOf returns rows of the virtual addresses of a pool for which pods speak.
func speakersOf(pool *v1alpha1.IPPool, reservations []v1alpha1.ReservedIP) (rows []Lease) {
	for _, s := range inventory.Speakers(pool, reservations) {
		rows = append(rows, Lease{
			Name: s.Address, Pool: pool.Name, Address: s.Address, State: virtual, Node: s.Node,
			Namespace: s.By.Spec.Virtual.Namespace, Pod: s.Pod, MAC: s.MAC, Said: story.Speaker(s.By, s.Address, time.Time{}),
		})
	}
	return rows
}

func (s *Server) pools(w http.ResponseWriter, r *http.Request) {
	var list v1alpha1.IPPoolList
	if err := s.Reader.List(r.Context(), &list, client.UnsafeDisableDeepCopy); err != nil {
		s.refuse(w, "list pools", err)
		return
	}
	all := make([]Pool, len(list.Items))
	for i := range list.Items {
		all[i] = poolOf(&list.Items[i])
	}
	slices.SortFunc(all, func(a, b Pool) int { return cmp.Compare(a.Name, b.Name) })
	s.answer(w, all)
}

func (s *Server) pool(w http.ResponseWriter, r *http.Request) {
	pool, grid, rows, err := s.readPool(r.Context(), r.PathValue("name"))
	if err != nil {
		s.refuse(w, "read pool "+r.PathValue("name"), err)
		return
	}
	s.answer(w, struct {
		Pool   Pool    `json:"pool"`
		Grid   Grid    `json:"grid"`
		Leases []Lease `json:"leases"`
	}{poolOf(pool), grid, rows})
}

// readPool returns a pool, its grid, and rows of its virtual addresses and of its leases, which come last.
func (s *Server) readPool(ctx context.Context, name string) (*v1alpha1.IPPool, Grid, []Lease, error) {
	pool := &v1alpha1.IPPool{}
	if err := s.Reader.Get(ctx, client.ObjectKey{Name: name}, pool); err != nil {
		return nil, Grid{}, nil, err
	}
	reservations, err := poolset.Reservations(ctx, s.Reader)
	if err != nil {
		return nil, Grid{}, nil, err
	}
	var leases v1alpha1.IPLeaseList
	if err := s.Reader.List(ctx, &leases, client.MatchingFields{cache.LeasesByPool: name}, client.UnsafeDisableDeepCopy); err != nil {
		return nil, Grid{}, nil, err
	}
	rows := slices.Grow(speakersOf(pool, reservations), len(leases.Items))
	for i := range leases.Items {
		rows = append(rows, leaseOf(&leases.Items[i]))
	}
	return pool, GridOf(pool, reservations, leases.Items), rows, nil
}

func (s *Server) lease(w http.ResponseWriter, r *http.Request) {
	lease, name := &v1alpha1.IPLease{}, r.PathValue("name")
	if err := s.Reader.Get(r.Context(), client.ObjectKey{Name: name}, lease); err != nil {
		s.refuse(w, "read lease "+name, err)
		return
	}
	action, err := s.Explain(r.Context(), lease)
	if err != nil {
		s.refuse(w, "explain lease "+name, err)
		return
	}
	s.answer(w, struct {
		Lease     Lease                `json:"lease"`
		Sentences []string             `json:"sentences"`
		Created   metav1.Time          `json:"created"`
		Record    v1alpha1.IPLeaseSpec `json:"record"`
	}{leaseOf(lease), append(story.Of(lease.Spec.Address, &lease.Spec, time.Time{}), action.Sentence(time.Time{})), lease.CreationTimestamp, lease.Spec})
}

const (
	// heartbeat shows the page that the connection lives.
	heartbeat = 10 * time.Second
	// writeTimeout ends the stream of a page that does not read.
	writeTimeout = 10 * time.Second
	// unreviewed ends the stream of a client whose rights the API server has not confirmed for this time.
	unreviewed = 30 * time.Second
)

// events streams changes as server-sent events until the client goes, is too slow, or loses its rights.
// A client whose rights cannot be reviewed loses them within a minute.
func (s *Server) events(w http.ResponseWriter, r *http.Request) {
	messages, leave, ok := s.feed.join()
	if !ok {
		http.Error(w, "Too many viewers", http.StatusServiceUnavailable)
		return
	}
	defer leave()
	w.Header().Set("Content-Type", "text/event-stream")
	out := http.NewResponseController(w)
	beat := time.NewTicker(heartbeat)
	defer beat.Stop()
	allowed := time.Now()
	for {
		var message []byte
		select {
		case <-r.Context().Done():
			return
		case <-beat.C:
			switch err := s.Judge.Allows(r, needs(r)); {
			case err == nil:
				allowed = time.Now()
			case access.IsRefusal(err) || time.Since(allowed) >= unreviewed:
				return
			}
			message = []byte(":\n\n")
		case message, ok = <-messages:
			if !ok {
				return
			}
		}
		_ = out.SetWriteDeadline(time.Now().Add(writeTimeout)) // a recorder in tests has no deadlines
		if _, err := w.Write(message); err != nil {
			return
		}
		if len(messages) == 0 {
			if err := out.Flush(); err != nil {
				return
			}
		}
	}
}

func (s *Server) answer(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	if err := json.NewEncoder(w).Encode(v); err != nil {
		s.Log.V(1).Info("an answer of the page was not written", "why", err.Error())
	}
}

func (s *Server) refuse(w http.ResponseWriter, what string, err error) {
	if apierrors.IsNotFound(err) {
		http.Error(w, "Not found", http.StatusNotFound)
		return
	}
	s.Log.Error(err, "the page could not be served", "attempt", what)
	http.Error(w, fmt.Sprintf("%s: see the log of the controller", what), http.StatusInternalServerError)
}
