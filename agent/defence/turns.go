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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/flowcontrol"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fenceline/fenceline/agent/attachment"
	"github.com/fenceline/fenceline/agent/segment"
	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/bpf"
	"github.com/fenceline/fenceline/internal/loop"
)

// Pods speak for an exclusive virtual address by turns. The kernel drops the announcement of a pod that does not
// have the turn, and tells of it: the pod wishes to speak. Its agent writes the pod into the status of the
// reservation, which orders all wishes (R5), claims the address with the token of this write, by which the kernel
// of the speaker before fences the address, waits as R10 says, and then lets the pod speak. So without the API
// server, no other pod gets the turn.

const (
	// freshWish is how old a wish may be to count without a look at the wire: while the API server was away, the pod
	// may have become a backup again, which it does not tell.
	freshWish = 5 * time.Second
	// turnRate bounds the turns of this node per second, turnBurst the turns at once: two pods may announce an
	// address by turns for ever.
	turnRate, turnBurst = 1, 16
)

// Turns are the turns in the kernel.
type Turns interface {
	// Turn returns the kernel's entry of an address, and what it has heard of it.
	Turn(bpf.Key) (bpf.Lease, bpf.State, error)
	GiveTurn(e *attachment.Entry, address attachment.Address, mac net.HardwareAddr) error
	EndTurn(key bpf.Key, token uint64) error
	ForgetTurns(isExclusive, maySpeak func(bpf.Key) bool) error
}

// Segment is the segment of a parent. *segment.Segment implements it.
type Segment interface {
	Listen(addr netip.Addr, heard func(bpf.Event)) (end func() error, err error)
	ClaimAndConfirm(context.Context, segment.Claim) error
	Announce(segment.Announcement)
	Answerers(context.Context, netip.Addr) ([]net.HardwareAddr, error)
}

// wish is that of a pod of this node to speak for an exclusive address.
type wish struct {
	e   *attachment.Entry
	mac string
	at  time.Time
	// renews: the pod is on record, with a token that says nothing. It wishes only while that is so.
	renews bool
	// fills: the pod has the address, and the one on record does not. It wishes only while that is so.
	fills bool
}

// turn is that of a pod of this node.
type turn struct {
	v1alpha1.Speaker
	e      *attachment.Entry
	mac    net.HardwareAddr
	params segment.ProbeParams
	// had: the pod had the address on an interface.
	had bool
}

// referee gives and ends the turns. One goroutine uses it.
type referee struct {
	s *Speakers
	// asked tells that a pod wishes to speak, or that a record has changed.
	asked loop.Wake
	limit flowcontrol.PassiveRateLimiter
}

func newReferee(s *Speakers) *referee {
	return &referee{s: s, asked: loop.NewWake(), limit: flowcontrol.NewTokenBucketPassiveRateLimiterWithClock(turnRate, turnBurst, s.Clock)}
}

// step brings the kernel's entry of an exclusive address in line with the record.
type step string

const (
	rest  step = "rest"  // it is so, or the cache is behind
	begin step = "begin" // the speaker on record is a pod of this node that may not speak yet
	renew step = "renew" // the same, and its token says nothing: it has none, or the kernel has heard a newer one
	end   step = "end"   // no pod of this node is the speaker
)

// stepOf decides by the speaker on record, which is e if it is a pod of this node.
func stepOf(on v1alpha1.Speaker, e *attachment.Entry, l bpf.Lease, heard bpf.State) step {
	token, isTurn := uint64(on.Token), l.Flags&bpf.FlagTurns != 0
	switch {
	case isTurn && l.Token > token:
		return rest
	case e == nil && isTurn && l.Slot == 0:
		return rest
	case e == nil:
		return end
	case token == 0:
		return renew
	case isTurn && l.Slot == e.Slot && l.Token == token && l.Flags&bpf.FlagUnproven == 0:
		return rest
	case heard.MaxToken > token:
		return renew
	}
	return begin
}

// next returns the record by which the pod of a wish becomes the speaker; false: it is, or must not be. Its token is
// newer than all that the record, the kernel and the reservation, which has this resourceVersion, know.
func next(w wish, on v1alpha1.Speaker, node string, revision uint64, l bpf.Lease, heard bpf.State, now time.Time) (v1alpha1.Speaker, bool) {
	var e *attachment.Entry
	isOn := on.Pod == w.e.PodName && on.Node == node
	if isOn {
		e = w.e
	}
	to := stepOf(on, e, l, heard)
	if w.renews && !isOn || w.fills && !on.Idle || isOn && on.MAC == w.mac && to != renew {
		return on, false
	}
	taken := v1alpha1.Speaker{
		Address: on.Address, Pod: w.e.PodName, Node: node, MAC: w.mac, Since: on.Since,
		Token: int64(max(revision, uint64(on.Token)+1, l.Token+1, heard.MaxToken+1)),
	}
	if !isOn {
		taken.Since = metav1.NewMicroTime(now)
	}
	return taken, true
}

// asks takes an announcement of an exclusive address: of a pod that does not have the turn, or of one that has it,
// by another MAC of its own. It needs mu.
func (s *Speakers) asks(v *virtual, ev bpf.Event) {
	var e *attachment.Entry
	if i := slices.IndexFunc(v.pods, func(e *attachment.Entry) bool { return uint64(e.Slot) == ev.Token }); ev.Type == bpf.EventTurn && i >= 0 {
		e = v.pods[i]
	} else if ev.Where == bpf.WhereObserverEgress && ev.Announces && v.turn != nil && ev.MAC.String() != v.turn.MAC {
		e = v.turn.e
	}
	if e != nil && v.mayBe(e, ev.MAC, ev.Key.Addr) {
		v.wish = &wish{e: e, mac: ev.MAC.String(), at: s.Clock.Now()}
		s.referee.asked.Up()
	}
}

// mayBe reports whether a MAC is one of a pod, or that of VRRP.
func (v *virtual) mayBe(e *attachment.Entry, mac net.HardwareAddr, addr netip.Addr) bool {
	return len(mac) > 0 && (mac.String() == e.MAC || mac.String() == v.by.Spec.Virtual.MAC(addr).String())
}

// settleAll brings the kernel in line with the records of all exclusive addresses.
func (ref *referee) settleAll(ctx context.Context) error {
	ref.s.mu.Lock()
	all := map[bpf.Key]*virtual{}
	for key, v := range ref.s.heard {
		if v.by.Spec.Virtual.Exclusive {
			all[key] = &virtual{by: v.by, pods: v.pods}
		}
	}
	ref.s.mu.Unlock()
	var errs []error
	for key, v := range all {
		r := &v1alpha1.ReservedIP{}
		err := ref.s.Cache.Get(ctx, client.ObjectKey{Name: v.by.Name}, r, client.UnsafeDisableDeepCopy)
		if apierrors.IsNotFound(err) || err == nil && (r.Spec.Virtual == nil || !r.Spec.Virtual.Exclusive) {
			continue // the next pass ends it
		}
		if err == nil {
			v.by = r
			err = ref.settle(ctx, key, v)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// settle brings the kernel in line with the speaker on record.
func (ref *referee) settle(ctx context.Context, key bpf.Key, v *virtual) error {
	on := speakerOf(v.by, key.Addr)
	e := v.onRecord(on, ref.s.Node)
	l, heard, err := ref.s.Turns.Turn(key)
	if err != nil {
		return err
	}
	ref.recall(key, heard)
	if on.Idle {
		ref.fill(key, v, on)
	}
	switch stepOf(on, e, l, heard) {
	case end:
		ref.remember(key, nil)
		return ref.s.Turns.EndTurn(key, uint64(on.Token))
	case renew:
		ref.s.mu.Lock()
		defer ref.s.mu.Unlock()
		if h := ref.s.heard[key]; h != nil && h.wish == nil {
			h.wish = &wish{e: e, mac: on.MAC, at: ref.s.Clock.Now(), renews: true}
			ref.asked.Up()
		}
	case begin:
		_, err := ref.begin(ctx, key, v.by, e, on, v1alpha1.Speaker{}, "goes on")
		return err
	case rest:
		if e != nil && uint64(on.Token) == l.Token {
			t, err := ref.turnOf(ctx, v.by, e, on)
			if err != nil {
				return err
			}
			ref.remember(key, t)
		}
	}
	return nil
}

// onRecord returns the pod of this node that is the speaker on record, if it is one.
func (v *virtual) onRecord(on v1alpha1.Speaker, node string) *attachment.Entry {
	i := slices.IndexFunc(v.pods, func(e *attachment.Entry) bool { return e.PodName == on.Pod })
	if on.Node != node || i < 0 {
		return nil
	}
	return v.pods[i]
}

// recall notes the wish that the agent before has not heard: the last frame for the address was an announcement
// that the kernel has dropped.
func (ref *referee) recall(key bpf.Key, heard bpf.State) {
	ref.s.mu.Lock()
	defer ref.s.mu.Unlock()
	v := ref.s.heard[key]
	if v == nil || v.recalled {
		return
	}
	v.recalled = true
	i := slices.IndexFunc(v.pods, func(e *attachment.Entry) bool { return v.mayBe(e, heard.HitMAC, key.Addr) })
	if heard.HitWhere == bpf.WhereGuardEgress && i >= 0 && v.wish == nil {
		v.wish = &wish{e: v.pods[i], mac: heard.HitMAC.String()}
		ref.asked.Up()
	}
}

// remember notes the turn of a pod of this node, nil if none has it.
func (ref *referee) remember(key bpf.Key, t *turn) {
	ref.s.mu.Lock()
	defer ref.s.mu.Unlock()
	if v := ref.s.heard[key]; v != nil {
		v.take(t)
	}
}

// take notes a turn, with what is known of its pod from an earlier one.
func (v *virtual) take(t *turn) {
	if v.turn != nil && v.turn.had && !slices.Contains(v.had, v.turn.e.Slot) {
		v.had = append(v.had, v.turn.e.Slot)
	}
	if v.turn = t; t != nil {
		t.had = t.had || slices.Contains(v.had, t.e.Slot)
	}
}

// turnOf returns the turn of a pod.
func (ref *referee) turnOf(ctx context.Context, r *v1alpha1.ReservedIP, e *attachment.Entry, on v1alpha1.Speaker) (*turn, error) {
	addr, err := netip.ParseAddr(on.Address)
	if err != nil {
		return nil, fmt.Errorf("status.speakers of ReservedIP %s: %w", r.Name, err)
	}
	mac, err := net.ParseMAC(on.MAC)
	if err != nil {
		return nil, fmt.Errorf("status.speakers of ReservedIP %s: %w", r.Name, err)
	}
	t := &turn{Speaker: on, e: e, mac: mac, had: on.Idle}
	if !t.had {
		_, t.had, _ = ref.s.Configured(e, addr) // else the next look tells
	}
	for _, pool := range ref.s.poolsOf(ctx, e) {
		if pool.Reaches(r.Spec.Network, addr) {
			t.params = segment.ParamsOf(pool)
			break
		}
	}
	// The pod may use both of its MACs. That of VRRP may be another pod's as well.
	t.params.Ignore = slices.Clone(t.params.Ignore)
	if own, err := net.ParseMAC(e.MAC); err == nil {
		t.params.Ignore = append(t.params.Ignore, own)
	}
	if vrrp := r.Spec.Virtual.MAC(addr); vrrp != nil {
		t.params.Ignore = append(t.params.Ignore, vrrp)
	}
	return t, nil
}

func (t *turn) announcement(addr netip.Addr) segment.Announcement {
	return segment.Announcement{
		NetNS: t.e.NetNS, Interface: t.e.Interface, NodeEnd: t.e.NodeEnd, MAC: t.mac, Addr: addr, Slot: t.e.Slot, Mode: t.params.Mode,
	}
}
