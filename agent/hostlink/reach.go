// SPDX-License-Identifier: Apache-2.0

package hostlink

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fenceline/fenceline/agent/attachment"
	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/internal/loop"
	"github.com/fenceline/fenceline/internal/poolset"
)

const (
	interval = time.Minute
	// lasting is the number of measurements in a row that make a fault.
	lasting = 5
	// many pods are asked at most in one measurement, and several silent ones end it.
	many, several = 8, 3
	// few is the least number of silent pods that counts.
	few = 2
	// speakers is the number of addresses among which pods of other nodes are looked for.
	speakers = 256
)

// ReachOptions of a Reach. All are required.
type ReachOptions struct {
	// Entries returns the entries of the journal, which are read-only.
	Entries func() []*attachment.Entry
	// NodeAddresses returns the addresses of the Node object.
	NodeAddresses func() []netip.Addr
	// Speakers returns addresses that other hosts have used on a parent, the latest first.
	Speakers func(parent uint32, v4 bool, limit int) ([]netip.Addr, error)
	// OnSegment reports whether a host answers for an address on a parent.
	OnSegment func(ctx context.Context, parent int, addr netip.Addr) (bool, error)
	// Pools reads the pools, which tell pods from other hosts.
	Pools client.Reader
	Log   logr.Logger
	Clock clock.Clock
}

// Reach measures whether the node reaches the pods of other nodes by its own network.
//
// The request of a pod to a Service goes by its host link to its node, which sends it to the backend. If
// the node network and the underlay do not reach each other, requests to backends on other nodes hang.
//
// Each minute the node asks pods of other nodes in turn, until one answers. A pod or a firewall may
// drop such questions, and a pod may have ended. So only a pod that answers on the segment at that
// moment counts as silent. A fault needs more than one such pod, several times in a row.
//
// Reach knows whether the node reaches pods of other nodes. Fault is safe for concurrent use.
type Reach struct {
	ReachOptions
	// patience is the time for each answer.
	patience time.Duration
	mu       sync.Mutex
	v4, v6   family
}

// family has the measurements of IPv4 or IPv6.
type family struct {
	// silent counts the measurements in a row without an answer. fault is the finding of the last one.
	silent int
	fault  error
	// failures has the state of the questions that cannot be asked. Only Run uses it.
	failures loop.Backoff
}

// NewReach returns a Reach.
func NewReach(o ReachOptions) *Reach { return &Reach{ReachOptions: o, patience: time.Second} }

// Fault returns an error if no pod of another node has answered this node for minutes.
func (r *Reach) Fault(v4 bool) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.of(v4).fault
}

func (r *Reach) of(v4 bool) *family {
	if v4 {
		return &r.v4
	}
	return &r.v6
}

// Run measures until ctx ends.
func (r *Reach) Run(ctx context.Context) error {
	return loop.Loop{Clock: r.Clock, Period: interval, Later: true}.Every(ctx, r.measure)
}

// measure makes one measurement of each family.
func (r *Reach) measure(ctx context.Context) {
	for _, v4 := range []bool{true, false} {
		silent, err := r.ask(ctx, v4)
		switch failures := &r.of(v4).failures; {
		case err == nil:
			failures.Reset()
		case ctx.Err() == nil && failures.IsNew(err):
			r.Log.Error(err, "the agent cannot ask on all parents whether this node reaches pods of other nodes")
		}
		r.note(v4, silent)
	}
}

// note counts a measurement. Fewer than few silent pods prove nothing: the count begins anew.
func (r *Reach) note(v4 bool, silent []netip.Addr) {
	r.mu.Lock()
	defer r.mu.Unlock()
	f := r.of(v4)
	if len(silent) < few {
		f.silent, f.fault = 0, nil
		return
	}
	if f.silent++; f.silent == lasting {
		f.fault = fmt.Errorf("no pod of another node answers this node, such as %s, although they answer on the underlay; so Services with backends on other nodes fail: give the nodes and the routers of the underlay routes to each other, and let a firewall between them pass", silent[0])
	}
}

// ask asks pods of other nodes, and returns those that answer only on the segment; none if one has
// answered this node. An error says that some could not be asked.
func (r *Reach) ask(ctx context.Context, v4 bool) (silent []netip.Addr, err error) {
	if !slices.ContainsFunc(r.NodeAddresses(), func(a netip.Addr) bool { return a.Is4() == v4 }) {
		return nil, nil // Services of this family have no way to other nodes anyway
	}
	var failed []error
	asked := 0
	for _, parent := range parents(r.Entries(), v4) {
		if ctx.Err() != nil {
			break
		}
		pods, err := r.pods(ctx, parent, v4)
		if err != nil {
			failed = append(failed, err)
		}
		for _, pod := range pods {
			if len(silent) == several || asked == many {
				return silent, errors.Join(failed...)
			}
			asked++
			if answers(ctx, pod, r.patience) {
				return nil, errors.Join(failed...)
			}
			alive, err := r.OnSegment(ctx, parent, pod)
			if err != nil {
				failed = append(failed, err)
				break // a parent that is down proves nothing about the others
			}
			if alive {
				silent = append(silent, pod)
			}
		}
	}
	return silent, errors.Join(failed...)
}

// parents returns the parents of the pods whose Services go by host links.
func parents(entries []*attachment.Entry, v4 bool) (found []int) {
	for _, e := range entries {
		ofFamily := func(a attachment.Address) bool { return a.Addr.Is4() == v4 }
		if e.Routing != nil && e.Routing.HostLink && e.Routing.First && slices.ContainsFunc(e.Addresses, ofFamily) {
			found = append(found, e.ParentIndex)
		}
	}
	slices.Sort(found)
	return slices.Compact(found)
}

// pods returns the addresses of pools that other hosts have used on a parent.
func (r *Reach) pods(ctx context.Context, parent int, v4 bool) ([]netip.Addr, error) {
	all, err := r.Speakers(uint32(parent), v4, speakers)
	if err != nil || len(all) == 0 {
		return nil, err
	}
	list := &v1alpha1.IPPoolList{}
	if err := r.Pools.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list the pools to tell pods from other hosts: %w", err)
	}
	sets := make([]poolset.Set, 0, len(list.Items))
	for i := range list.Items {
		set, _ := poolset.Addresses(&list.Items[i]) // a pool with an error has no pods
		sets = append(sets, set)
	}
	given := poolset.Union(sets...)
	return slices.DeleteFunc(all, func(a netip.Addr) bool { return !given.Contains(a) }), nil
}
