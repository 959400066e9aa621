// SPDX-License-Identifier: Apache-2.0

package defence

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fenceline/fenceline/agent/segment"
	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/internal/audit"
	"github.com/fenceline/fenceline/internal/loop"
)

// machinesPause is the time between two looks at the addresses of machines. A host that is heard in between is found
// by the next one.
const machinesPause = time.Minute

// MachineOptions are the options of Machines. All are required.
type MachineOptions struct {
	Options
	// Client writes the status of reservations.
	Client client.Client
	// Heard returns the host that used an address on a parent last, and how long ago. ok is false if there is none.
	Heard func(parent int, addr netip.Addr) (mac net.HardwareAddr, ago time.Duration, ok bool, err error)
}

// Machines finds hosts that use addresses which are kept for machines, and are not these machines. It reads what the
// observers have heard, so an address costs the kernel nothing. All nodes of a segment hear the same: the first one
// records it, and the others find its record.
type Machines struct{ MachineOptions }

// Run looks until ctx ends.
func (m *Machines) Run(ctx context.Context) error {
	return loop.Loop{Clock: m.Clock, Period: machinesPause, Later: true, Failed: func(err error) {
		m.Log.Info("what was heard of the address of a machine is not recorded yet; the agent tries again", "why", err.Error())
	}}.Try(ctx, m.pass)
}

func (m *Machines) pass(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, recordTimeout)
	defer cancel()
	all := &v1alpha1.ReservedIPList{}
	if err := m.Cache.List(ctx, all, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("list reservations: %w", err)
	}
	var on []place
	var errs []error
	for i := range all.Items {
		r := &all.Items[i]
		if r.Machine() == "" || r.Status.ObservedGeneration != r.Generation || r.Status.InUse > 0 {
			continue // a pod that holds an address speaks for it, and the condition InUse says so
		}
		if on == nil {
			on = m.places(ctx)
		}
		errs = append(errs, m.look(ctx, r, on))
	}
	return errors.Join(errs...)
}

// place is a pool of a parent's pods.
type place struct {
	parent int
	pool   *v1alpha1.IPPool
}

func (m *Machines) places(ctx context.Context) []place {
	all := []place{}
	for e := range m.Attachments.Bound() {
		for _, a := range e.Addresses {
			if slices.ContainsFunc(all, func(p place) bool { return p.parent == e.ParentIndex && p.pool.Name == a.Pool }) {
				continue
			}
			pool := &v1alpha1.IPPool{}
			if err := m.Cache.Get(ctx, client.ObjectKey{Name: a.Pool}, pool, client.UnsafeDisableDeepCopy); err == nil {
				all = append(all, place{e.ParentIndex, pool})
			}
		}
	}
	return all
}

// look records the hosts that were heard of the addresses of a machine, if that is news.
func (m *Machines) look(ctx context.Context, r *v1alpha1.ReservedIP, on []place) error {
	now := m.Clock.Now()
	since := machinesPause
	if free := meta.FindStatusCondition(r.Status.Conditions, v1alpha1.ConditionInUse); free != nil {
		since = min(since, now.Sub(free.LastTransitionTime.Time)) // before, a pod had one of the addresses
	}
	is := r // until there is news: most looks find none
	var news []audit.Record
	for _, text := range r.Spec.IPs {
		addr, err := netip.ParseAddr(text)
		if err != nil {
			continue // the controller says so
		}
		for _, p := range on {
			if !p.pool.Reaches(r.Spec.Network, addr) {
				continue
			}
			host, ago, ok, err := m.Heard(p.parent, addr)
			if err != nil {
				return fmt.Errorf("look who uses %s: %w", addr, err)
			}
			was, mac := speakerOf(is, addr), host.String()
			if !ok || ago >= since || p.pool.IgnoresMAC(mac) || !isNews(was, r.Machine(), mac, now) {
				continue
			}
			if is == r {
				is = r.DeepCopy()
			}
			is.Status.Speakers = append(slices.DeleteFunc(is.Status.Speakers, func(s v1alpha1.Speaker) bool { return s.Address == addr.String() }),
				v1alpha1.Speaker{Address: addr.String(), Node: m.Node, MAC: mac, Since: metav1.NewMicroTime(now)})
			if mac != r.Machine() {
				news = append(news, audit.Record{
					Address: addr, Network: r.Spec.Network, Pool: p.pool.Name, Node: m.Node, MAC: r.Machine(), Reason: "speaker " + mac,
				})
			}
		}
	}
	if is == r {
		return nil
	}
	if err := m.Client.Status().Update(ctx, is); apierrors.IsConflict(err) {
		return nil // another node was first, and its record is in the cache at the next look
	} else if err != nil {
		return fmt.Errorf("record on ReservedIP %s who uses the addresses of a machine: %w", r.Name, err)
	}
	for _, record := range news {
		m.Conflict(record.Pool, segment.SourceObserver)
		audit.Log(m.Log, audit.Conflict, record)
	}
	return nil
}

// isNews reports whether a host that was heard is to be recorded. While a machine and a stranger both speak, the record
// stays with the stranger, and is written again at most each recordMost.
func isNews(was v1alpha1.Speaker, machine, heard v1alpha1.MAC, now time.Time) bool {
	isOld := now.Sub(was.Since.Time) >= recordMost
	switch {
	case heard == was.MAC:
		return false
	case heard == machine:
		return was.MAC != "" && isOld
	}
	return was.MAC == "" || was.MAC == machine || isOld
}
