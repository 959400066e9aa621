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
}

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
	pool, grid, leases, err := s.readPool(r.Context(), r.PathValue("name"))
	if err != nil {
		s.refuse(w, "read pool "+r.PathValue("name"), err)
		return
	}
	rows := make([]Lease, len(leases))
	for i := range leases {
		rows[i] = leaseOf(&leases[i])
	}
	s.answer(w, struct {
		Pool   Pool    `json:"pool"`
		Grid   Grid    `json:"grid"`
		Leases []Lease `json:"leases"`
	}{poolOf(pool), grid, rows})
}

func (s *Server) readPool(ctx context.Context, name string) (*v1alpha1.IPPool, Grid, []v1alpha1.IPLease, error) {
	pool := &v1alpha1.IPPool{}
	if err := s.Reader.Get(ctx, client.ObjectKey{Name: name}, pool); err != nil {
		return nil, Grid{}, nil, err
	}
	var reserved v1alpha1.ReservedIPList
	var leases v1alpha1.IPLeaseList
	for list, options := range map[client.ObjectList][]client.ListOption{
		&reserved: nil, &leases: {client.MatchingFields{cache.LeasesByPool: name}},
	} {
		if err := s.Reader.List(ctx, list, append(options, client.UnsafeDisableDeepCopy)...); err != nil {
			return nil, Grid{}, nil, err
		}
	}
	return pool, GridOf(pool, reserved.Items, leases.Items), leases.Items, nil
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
