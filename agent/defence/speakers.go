// SPDX-License-Identifier: Apache-2.0

package defence

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fenceline/fenceline/agent/attachment"
	"github.com/fenceline/fenceline/agent/segment"
	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/bpf"
	"github.com/fenceline/fenceline/internal/audit"
	"github.com/fenceline/fenceline/internal/loop"
)

const (
	// speakersPause is the longest time between two looks at the virtual addresses, retryPause that after an error.
	speakersPause = time.Minute
	retryPause    = 2 * time.Second
	// mostKnown bounds the MACs of pods that an address has.
	mostKnown = 64
	// mostAhead is how far the clock of another node may be ahead: a record of a later time does not count.
	mostAhead = time.Minute
	// gather bounds the records of an address that moves to and fro.
	gather = 300 * time.Millisecond
)

// SpeakerOptions are the options of Speakers. All are required.
type SpeakerOptions struct {
	Options
	// Client writes the status of reservations.
	Client client.Client
	// Virtuals returns the virtual addresses of the pod of an entry, with their reservations, which are read-only.
	Virtuals func(context.Context, *attachment.Entry, []*v1alpha1.IPPool) (map[netip.Addr]*v1alpha1.ReservedIP, error)
	// Exclusive returns all exclusive virtual addresses, also those of pods on other nodes alone.
	Exclusive func(context.Context) (map[netip.Addr]bool, error)
	// Live reads reservations past the cache.
	Live client.Reader
	// Configured returns the MAC of the interface of a pod that has an address; has: one has it.
	Configured func(e *attachment.Entry, addr netip.Addr) (mac net.HardwareAddr, has bool, err error)
	// OpenSegment returns the segment of a parent.
	OpenSegment func(parent int) (Segment, error)
	Turns       Turns
	// IsPods reports whether a MAC is that of a pod of another node which may speak for the addresses of a reservation.
	IsPods func(ctx context.Context, mac net.HardwareAddr, r *v1alpha1.ReservedIP) (bool, error)
	// Late counts a frame of a pod that is not the speaker any more.
	Late func(pool string)
}

// Speakers finds out which pod speaks for each virtual address of the node's pods. The agent of the speaker's node
// records it. Safe for concurrent use.
type Speakers struct {
	SpeakerOptions
	wake loop.Wake
	pace *pace
	// referee has the turns of exclusive addresses.
	referee *referee

	mu    sync.Mutex
	heard map[bpf.Key]*virtual
}

// virtual is a virtual address on a parent of this node.
type virtual struct {
	by   *v1alpha1.ReservedIP
	pods []*attachment.Entry // of this node
	end  func() error
	// last is the MAC that announced the address last, strange a MAC that is not known to be a pod's, and known those
	// that are.
	last, strange net.HardwareAddr
	known         map[string]bool
	// isPaced says that the pace let the strange MAC pass: a look that failed is made again.
	isPaced bool
	// news is to be recorded: a pod of this node has announced the address.
	news *v1alpha1.Speaker
	// Of an exclusive address: the turn of a pod of this node, and the last wish for it. recalled: a wish that an agent
	// before has not heard was looked for. had are the slots whose pods had the address on an interface in a turn.
	turn     *turn
	wish     *wish
	recalled bool
	had      []uint32
}

// NewSpeakers returns Speakers, which listen while Run runs.
func NewSpeakers(o SpeakerOptions) *Speakers {
	s := &Speakers{SpeakerOptions: o, wake: loop.NewWake(), pace: newPace(o.Clock), heard: map[bpf.Key]*virtual{}}
	s.referee = newReferee(s)
	return s
}

// Wake makes the next pass of Run come soon: a reservation or a pod has changed.
func (s *Speakers) Wake() {
	s.referee.asked.Up() // a record mutes a pod at once
	s.wake.Up()
}

// Run follows the virtual addresses until ctx ends.
func (s *Speakers) Run(ctx context.Context) error {
	var turns sync.WaitGroup
	defer turns.Wait()
	turns.Go(func() {
		_ = loop.Loop{Clock: s.Clock, Wake: s.referee.asked, Failed: func(err error) {
			s.Log.Info("a pod waits for its turn to speak for a virtual address; the agent tries again", "why", err.Error())
		}}.Pace(ctx, s.referee.takeTurns)
	})
	return loop.Loop{Clock: s.Clock, Wake: s.wake, Gather: gather, Failed: func(err error) {
		s.Log.Info("the speaker of a virtual address is not recorded yet; the agent tries again", "why", err.Error())
	}}.Pace(ctx, s.pass)
}

func (s *Speakers) pass(ctx context.Context) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, recordTimeout)
	defer cancel()
	wanted, err := s.wanted(ctx)
	if err != nil {
		return retryPause, err // the API server is away: it listens on
	}
	errs := []error{s.forget(ctx, wanted), s.listen(wanted)}
	for key, v := range wanted {
		if !v.by.Spec.Virtual.Exclusive {
			errs = append(errs, s.record(ctx, key, v))
		}
		errs = append(errs, s.judge(ctx, key, v.by))
	}
	s.referee.asked.Up()
	if err := errors.Join(errs...); err != nil {
		return retryPause, err
	}
	return speakersPause, nil
}

// wanted returns the virtual addresses of the pods of this node.
func (s *Speakers) wanted(ctx context.Context) (map[bpf.Key]*virtual, error) {
	all := map[bpf.Key]*virtual{}
	for e := range s.Attachments.Bound() {
		found, err := s.Virtuals(ctx, e, s.poolsOf(ctx, e))
		if err != nil {
			return nil, err
		}
		for addr, by := range found {
			key := bpf.Key{Segment: uint32(e.ParentIndex), Addr: addr}
			if all[key] == nil {
				all[key] = &virtual{by: by, known: map[string]bool{}}
			}
			all[key].pods = append(all[key].pods, e)
		}
	}
	return all, nil
}

// poolsOf returns the pools of an entry, which are read-only, without those that are gone.
func (s *Speakers) poolsOf(ctx context.Context, e *attachment.Entry) (pools []*v1alpha1.IPPool) {
	for _, a := range e.Addresses {
		pool := &v1alpha1.IPPool{}
		if err := s.Cache.Get(ctx, client.ObjectKey{Name: a.Pool}, pool, client.UnsafeDisableDeepCopy); err == nil {
			pools = append(pools, pool)
		}
	}
	return pools
}

// forget removes the turns of addresses that are not exclusive any more, and ends those that are not wanted.
func (s *Speakers) forget(ctx context.Context, wanted map[bpf.Key]*virtual) error {
	exclusive, err := s.Exclusive(ctx)
	if err != nil {
		return err
	}
	return s.Turns.ForgetTurns(func(key bpf.Key) bool { return exclusive[key.Addr] }, func(key bpf.Key) bool { return wanted[key] != nil })
}

// listen begins to listen for new virtual addresses, and ends it for those that are gone.
func (s *Speakers) listen(wanted map[bpf.Key]*virtual) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var errs []error
	for key, v := range s.heard {
		// The entry by which the kernel tells of frames went with the turns.
		if now := wanted[key]; now == nil || v.by.Spec.Virtual.Exclusive && !now.by.Spec.Virtual.Exclusive {
			errs = append(errs, v.end())
			delete(s.heard, key)
		}
	}
	for key, v := range wanted {
		if old := s.heard[key]; old != nil {
			old.by, old.pods = v.by, v.pods
			continue
		}
		seg, err := s.OpenSegment(int(key.Segment))
		if err == nil {
			v.end, err = seg.Listen(key.Addr, s.Heard)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("listen for %s: %w", key.Addr, err))
			continue
		}
		s.heard[key] = v
	}
	return errors.Join(errs...)
}

// Heard takes a frame that speaks for a virtual address. It does not block on the API server.
func (s *Speakers) Heard(ev bpf.Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	v := s.heard[ev.Key]
	if v == nil || ev.Kind.Tentative() || ev.Type != bpf.EventHit && ev.Type != bpf.EventTurn {
		return
	}
	own := v.podOf(ev.MAC, ev.Key.Addr, ev.Where)
	if v.by.Spec.Virtual.Exclusive && (own != nil || ev.Type == bpf.EventTurn) {
		s.asks(v, ev)
		return
	}
	if ev.Type == bpf.EventTurn {
		return
	}
	before := v.last
	if ev.Announces {
		v.last = ev.MAC
	}
	now := speakerOf(v.by, ev.Key.Addr)
	if own != nil {
		s.heardOwn(v, own, ev, now, before)
		return
	}
	if ev.Announces && v.news != nil {
		v.news = nil // a newer speaker, which its own agent records
	}
	mac := ev.MAC.String()
	if isVRRP := bytes.Equal(v.by.Spec.Virtual.MAC(ev.Key.Addr), ev.MAC); isVRRP && ev.Where == bpf.WhereObserverIngress || v.known[mac] {
		return
	}
	if v.strange == nil {
		v.strange = ev.MAC
		s.wake.Up()
	}
}

// heardOwn takes a frame of a pod of this node. before is the MAC of the announcement before.
func (s *Speakers) heardOwn(v *virtual, e *attachment.Entry, ev bpf.Event, now v1alpha1.Speaker, before net.HardwareAddr) {
	mac := ev.MAC.String()
	isSpeaker := now.Pod == e.PodName && now.Node == s.Node
	from := cmp.Or(now.Pod, "nobody")
	if isSpeaker {
		from = cmp.Or(before.String(), now.MAC)
	}
	switch {
	case !ev.Announces:
		if !isSpeaker && v.news == nil && now.Pod != "" {
			s.Late(e.Addresses[0].Pool)
		}
	case v.news != nil && v.news.Pod == e.PodName && v.news.MAC == mac, isSpeaker && now.MAC == mac && (before == nil || bytes.Equal(before, ev.MAC)):
	default:
		v.news = &v1alpha1.Speaker{
			Address: ev.Key.Addr.String(), Pod: e.PodName, Node: s.Node, MAC: mac, Since: metav1.NewMicroTime(s.Clock.Now()),
		}
		r := e.Audit(attachment.Address{Addr: ev.Key.Addr, Network: v.by.Spec.Network}, s.Node, "moved from "+from)
		r.MAC = mac
		audit.Log(s.Log, audit.Move, r)
		s.wake.Up()
	}
}

// podOf returns the pod of this node that sent a frame, nil for a frame of another host.
func (v *virtual) podOf(mac net.HardwareAddr, addr netip.Addr, where bpf.Where) *attachment.Entry {
	i := slices.IndexFunc(v.pods, func(e *attachment.Entry) bool { return e.MAC == mac.String() })
	// Two pods of one node have the same MAC of VRRP: the first one stands for both.
	if i < 0 && where == bpf.WhereObserverEgress && bytes.Equal(v.by.Spec.Virtual.MAC(addr), mac) {
		i = 0
	}
	if i < 0 {
		return nil
	}
	return v.pods[i]
}

// speakerOf returns the speaker on record.
func speakerOf(r *v1alpha1.ReservedIP, addr netip.Addr) v1alpha1.Speaker {
	for _, s := range r.Status.Speakers {
		if s.Address == addr.String() {
			return s
		}
	}
	return v1alpha1.Speaker{}
}

// take returns the news of an address that is to be recorded.
func (s *Speakers) take(key bpf.Key, done *v1alpha1.Speaker) *v1alpha1.Speaker {
	s.mu.Lock()
	defer s.mu.Unlock()
	v := s.heard[key]
	if v == nil {
		return nil
	}
	if done != nil && v.news == done {
		v.news = nil
	}
	return v.news
}

// record writes that a pod of this node speaks for an address, unless a newer speaker is on record.
func (s *Speakers) record(ctx context.Context, key bpf.Key, of *virtual) error {
	r, news := of.by, s.take(key, nil)
	if news == nil {
		return nil
	}
	old := speakerOf(r, key.Addr)
	isNewer := old.Since.After(news.Since.Time) && !old.Since.After(s.Clock.Now().Add(mostAhead))
	if isNewer || old.Pod == news.Pod && old.Node == news.Node && old.MAC == news.MAC {
		s.take(key, news)
		return nil
	}
	r = r.DeepCopy()
	news.Token = old.Token
	r.Status.Speakers = append(slices.DeleteFunc(r.Status.Speakers, func(o v1alpha1.Speaker) bool { return o.Address == news.Address }), *news)
	if err := s.Client.Status().Update(ctx, r); err != nil {
		if apierrors.IsConflict(err) {
			err = errors.New("the record has changed meanwhile") // its change wakes the next pass as well
		}
		return fmt.Errorf("record %s as the speaker of %s on ReservedIP %s: %w", news.Pod, key.Addr, r.Name, err)
	}
	s.take(key, news)
	s.mu.Lock()
	if v := s.heard[key]; v != nil {
		v.by = r
	}
	s.mu.Unlock()
	s.moved(r, key.Addr, old, *news)
	return nil
}

// moved reports that another pod speaks for an address, unless it is the same one by another MAC of its own.
func (s *Speakers) moved(r *v1alpha1.ReservedIP, addr netip.Addr, old, now v1alpha1.Speaker) {
	if old.Pod == now.Pod && old.Node == now.Node {
		return
	}
	note := "%s moved from %s to %s (node %s)"
	s.Events.Eventf(r, nil, corev1.EventTypeNormal, "SpeakerMoved", "Watch", note, addr, cmp.Or(old.Pod, "nobody"), now.Pod, s.Node)
}

// judge reports a host that speaks for an address and is no pod that may.
func (s *Speakers) judge(ctx context.Context, key bpf.Key, r *v1alpha1.ReservedIP) error {
	s.mu.Lock()
	v := s.heard[key]
	if v == nil || v.strange == nil {
		s.mu.Unlock()
		return nil
	}
	mac, e := v.strange, v.pods[0]
	if !v.isPaced && !s.pace.allow(r.Name+"/"+key.String()+mac.String()) {
		v.strange = nil
		s.mu.Unlock()
		return nil
	}
	v.isPaced = true // a look at the API server costs it a list of leases
	s.mu.Unlock()
	ours, err := s.IsPods(ctx, mac, r)
	if err != nil {
		return fmt.Errorf("look whether %s, which speaks for %s, is a pod: %w", mac, key.Addr, err)
	}
	s.mu.Lock()
	v.strange, v.isPaced = nil, false
	if ours {
		if len(v.known) >= mostKnown {
			clear(v.known)
		}
		v.known[mac.String()] = true
	}
	s.mu.Unlock()
	if ours {
		return nil
	}
	s.Conflict(e.Addresses[0].Pool, segment.SourceObserver)
	audit.Log(s.Log, audit.Conflict, e.Audit(attachment.Address{Addr: key.Addr, Network: r.Spec.Network}, s.Node, "speaker "+mac.String()))
	s.Events.Eventf(r, nil, corev1.EventTypeWarning, "AddressConflict", "Watch", "%s also uses %s, and is no pod that may speak for it", mac, key.Addr)
	return nil
}
