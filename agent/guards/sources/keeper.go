// SPDX-License-Identifier: Apache-2.0

package sources

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fenceline/fenceline/agent/attachment"
	"github.com/fenceline/fenceline/agent/pod"
	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/bpf"
	"github.com/fenceline/fenceline/cni/agentapi"
	"github.com/fenceline/fenceline/internal/event"
	"github.com/fenceline/fenceline/internal/loop"
)

// The pauses between two reads of an interface double from shortest to longest: the kernel of a new
// pod makes its link-local addresses a moment after the ADD. A frame from an unknown one makes the
// pause short again. After an error, the next try comes after patience at the latest.
const (
	shortest = 50 * time.Millisecond
	longest  = time.Minute
	patience = 5 * time.Second
)

// Kernel has the parts of a *bpf.Kernel that a Keeper needs.
type Kernel struct {
	Sources interface {
		Set(slot uint32, s bpf.Sources) error
		Of(slot uint32) bpf.Sources
		Offences() (map[bpf.Offence]uint64, error)
	}
	Sockets interface {
		Allow(slot uint32, allowed bool) error
	}
}

// Interfaces reads and changes the interfaces of pods. *pod.Finder implements it.
type Interfaces interface {
	// LinkLocal returns the link-local addresses that the kernel gave an interface.
	LinkLocal(netns, ifname string) ([]netip.Addr, error)
	// Autoconfigure switches autoconfiguration from router advertisements on or off.
	Autoconfigure(netns, ifname string, on bool) error
	// KeepARP makes an interface answer ARP for its own addresses only, and ask by them.
	KeepARP(netns, ifname string) error
}

// Options of a Keeper. All are required.
type Options struct {
	event.Reporter
	// Session is the current life of this node.
	Session string
	// Entries returns every entry of the journal; they are read-only.
	Entries func() []*attachment.Entry
	Pools   client.Reader
	// Virtuals returns the virtual addresses for which the pod of an entry may speak. Calls are concurrent.
	Virtuals   func(context.Context, *attachment.Entry, []*v1alpha1.IPPool) (map[netip.Addr]*v1alpha1.ReservedIP, error)
	Kernel     Kernel
	Interfaces Interfaces
}

// Keeper keeps the kernel's settings for the sources of pods up to date. Safe for concurrent use.
type Keeper struct {
	Options
	wake loop.Wake
	met  chan bpf.Event
	// told has the times of the last events; only reporting uses it.
	told map[reported]time.Time

	// mu orders the settings of slots, and guards interfaces.
	mu         sync.Mutex
	interfaces map[guarded]*state
}

// guarded is an interface with its guard: after a repeated ADD, another interface has the name.
type guarded struct {
	agentapi.Attachment
	slot uint32
}

func of(e *attachment.Entry) guarded { return guarded{e.Attachment(), e.Slot} }

// state is that of one interface.
type state struct {
	// local and err are the result of the last read, pause the time until the next one.
	local []netip.Addr
	err   error
	read  time.Time
	pause time.Duration
	// off: this process has switched autoconfiguration off. alone: it keeps the ARP of the interface on it.
	off, alone bool
}

// New returns a Keeper.
func New(o Options) *Keeper {
	return &Keeper{
		Options: o, wake: loop.NewWake(), interfaces: map[guarded]*state{},
		met: make(chan bpf.Event, reportsAhead), told: map[reported]time.Time{},
	}
}

// Wake makes the next pass of Run come soon: a pool or a pod has changed.
func (k *Keeper) Wake() { k.wake.Up() }

// Run applies the pools to all pods, and reports frames that the guards object to, until ctx ends.
func (k *Keeper) Run(ctx context.Context) error {
	var reporter sync.WaitGroup
	reporter.Go(func() { k.reporting(ctx) })
	defer reporter.Wait()
	return loop.Loop{Clock: k.Clock, Wake: k.wake, Failed: func(err error) {
		k.Log.Error(err, "the source guard of a pod is not as its pool says yet; the agent tries again")
	}}.Pace(ctx, k.pass)
}

// pass applies the pools to all pods. It returns the time until an interface is to be read again.
func (k *Keeper) pass(ctx context.Context) (pause time.Duration, err error) {
	var errs []error
	applied, read := map[guarded]bool{}, map[string]*v1alpha1.IPPool{}
	for _, e := range k.Entries() {
		applied[of(e)] = e.Phase == attachment.Bound && e.Session == k.Session
		if applied[of(e)] {
			errs = append(errs, k.apply(ctx, e, read))
		}
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	pause, err = longest, errors.Join(errs...)
	if err != nil {
		pause = patience
	}
	for g, i := range k.interfaces {
		here, present := applied[g]
		// Without its pools, an interface is not read.
		if left := i.pause - k.Clock.Since(i.read); here && left > 0 {
			pause = min(pause, left)
		}
		if !present {
			delete(k.interfaces, g)
		}
	}
	return pause, err
}

// readSoon makes the next pass read an interface again.
func (k *Keeper) readSoon(e *attachment.Entry) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if i := k.interfaces[of(e)]; i != nil {
		i.pause = shortest
	}
	k.Wake()
}

// Apply tells the kernel what the interface of an entry may send. If a pool cannot be read, its settings at
// the ADD count, or nothing changes if they are not recorded. Apply keeps the last settings if all its pools were deleted. An interface without a
// guard is no error: its pod is gone, or recovery will attach the guard.
func (k *Keeper) Apply(ctx context.Context, e *attachment.Entry) error {
	return k.apply(ctx, e, map[string]*v1alpha1.IPPool{})
}

// apply is Apply, with the pools that were read before, by their names; nil: the pool is gone.
func (k *Keeper) apply(ctx context.Context, e *attachment.Entry, read map[string]*v1alpha1.IPPool) error {
	pools, err := k.pools(ctx, e, read)
	if err != nil || len(pools) == 0 {
		return err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if err := k.Kernel.Sockets.Allow(e.Slot, transmitDirectly(pools, len(e.Addresses))); err != nil {
		return err
	}
	i := k.look(e)
	virtuals, unknown := k.Virtuals(ctx, e, pools)
	s, err := Plan(e, pools, i.local, virtuals)
	if err != nil {
		return fmt.Errorf("sources of %s of pod %s/%s: %w", e.Interface, e.PodNamespace, e.PodName, err)
	}
	if unknown != nil { // the API server is away: the virtual addresses stay as they are
		s = withOld(s, k.Kernel.Sources.Of(e.Slot))
	}
	if i.err != nil && s.Mode != bpf.SourcesOff && !pod.IsGone(i.err) {
		return i.err
	}
	if !s.Equal(k.Kernel.Sources.Of(e.Slot)) {
		err := k.Kernel.Sources.Set(e.Slot, s)
		if errors.Is(err, bpf.ErrNoGuard) {
			return nil
		}
		if err != nil {
			return err
		}
	}
	if pod.IsGone(i.err) {
		return nil
	}
	return errors.Join(k.autoconfigure(e, i, mayAutoconfigure(s)), k.keepARP(e, pools))
}

// withOld returns sources with all that the old ones allow.
func withOld(s, old bpf.Sources) bpf.Sources {
	if s.Mode != bpf.SourcesOff && bytes.Equal(s.MAC, old.MAC) {
		s.Prefixes, s.MACs, s.Allow = append(s.Prefixes, old.Prefixes...), append(s.MACs, old.MACs...), s.Allow|old.Allow
		tidy(&s)
	}
	return s
}

// keepARP keeps the ARP of a pod with several interfaces in one subnet on the interface of each
// address. Otherwise its kernel answers for each address on all of them, and the guard drops these answers.
func (k *Keeper) keepARP(e *attachment.Entry, pools []*v1alpha1.IPPool) error {
	for _, o := range k.beside(e) {
		if !slices.ContainsFunc(o.Addresses, func(a attachment.Address) bool { return inSubnet(a.Addr, pools) }) {
			continue
		}
		for _, x := range []*attachment.Entry{e, o} {
			i := k.interfaces[of(x)]
			if i == nil || i.alone {
				continue // the other one's own turn comes
			}
			if err := k.Interfaces.KeepARP(x.NetNS, x.Interface); err != nil && !pod.IsGone(err) {
				return err
			}
			i.alone = true
		}
	}
	return nil
}

// beside returns the other interfaces of the pod of an entry.
func (k *Keeper) beside(e *attachment.Entry) (all []*attachment.Entry) {
	for _, o := range k.Entries() {
		if o.NetNS == e.NetNS && e.NetNS != "" && o.Session == e.Session && o.Interface != e.Interface {
			all = append(all, o)
		}
	}
	return all
}

func inSubnet(addr netip.Addr, pools []*v1alpha1.IPPool) bool {
	return slices.ContainsFunc(pools, func(p *v1alpha1.IPPool) bool {
		subnet, err := netip.ParsePrefix(p.Spec.Subnet)
		return err == nil && subnet.Contains(addr)
	})
}

// look returns the state of an interface, which it reads if that is due. An interface that is gone
// has no address: its guard stays strict.
func (k *Keeper) look(e *attachment.Entry) *state {
	i := k.interfaces[of(e)]
	if i == nil {
		i = &state{}
		k.interfaces[of(e)] = i
	}
	if now := k.Clock.Now(); now.Sub(i.read) >= i.pause {
		i.local, i.err = k.Interfaces.LinkLocal(e.NetNS, e.Interface)
		i.read, i.pause = now, min(max(2*i.pause, shortest), longest)
		if i.err != nil && !pod.IsGone(i.err) {
			i.pause = min(i.pause, patience)
		}
	}
	return i
}

// autoconfigure switches autoconfiguration off where the guard would drop its addresses. It
// switches on only what this process has switched off: any other setting is the pod's.
func (k *Keeper) autoconfigure(e *attachment.Entry, i *state, on bool) error {
	if on != i.off {
		return nil
	}
	if err := k.Interfaces.Autoconfigure(e.NetNS, e.Interface, on); err != nil {
		return err
	}
	i.off = !on
	return nil
}

// pools returns the pools of an entry's addresses, without those that are gone. It reads each pool once:
// with a copy of its pool for each pod, 125 of the 220 MB of garbage of 110 ADDs came from here.
func (k *Keeper) pools(ctx context.Context, e *attachment.Entry, read map[string]*v1alpha1.IPPool) (all []*v1alpha1.IPPool, err error) {
	for _, address := range e.Addresses {
		pool, ok := read[address.Pool]
		if !ok {
			pool = &v1alpha1.IPPool{}
			err := k.Pools.Get(ctx, client.ObjectKey{Name: address.Pool}, pool)
			switch {
			case apierrors.IsNotFound(err):
				pool = nil
			case err != nil && address.Given != nil:
				pool = address.PoolThen()
			case err != nil:
				return nil, fmt.Errorf("read pool %s: %w", address.Pool, err)
			}
			read[address.Pool] = pool
		}
		if pool != nil {
			all = append(all, pool)
		}
	}
	return all, nil
}
