// SPDX-License-Identifier: Apache-2.0

package defence

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fenceline/fenceline/agent/attachment"
	"github.com/fenceline/fenceline/agent/segment"
	"github.com/fenceline/fenceline/agent/segment/claim"
	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/bpf"
	"github.com/fenceline/fenceline/internal/audit"
)

// takeTurns ends and begins turns as they are on record, and gives the turn to the pods that wish it.
func (ref *referee) takeTurns(ctx context.Context) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, recordTimeout)
	defer cancel()
	errs := []error{ref.settleAll(ctx)}
	speaks, err := ref.look(ctx)
	errs = append(errs, err)
	for name, wishes := range ref.wishes() {
		if !ref.limit.TryAccept() {
			return time.Second / turnRate, errors.Join(errs...)
		}
		errs = append(errs, ref.grant(ctx, name, wishes))
	}
	if err := errors.Join(errs...); err != nil {
		return retryPause, err
	}
	if speaks {
		return lookPause, nil
	}
	return speakersPause, nil
}

// wishes returns the wishes for the addresses of each reservation.
func (ref *referee) wishes() map[string]map[bpf.Key]*wish {
	ref.s.mu.Lock()
	defer ref.s.mu.Unlock()
	all := map[string]map[bpf.Key]*wish{}
	for key, v := range ref.s.heard {
		if v.wish == nil {
			continue
		}
		if all[v.by.Name] == nil {
			all[v.by.Name] = map[bpf.Key]*wish{}
		}
		all[v.by.Name][key] = v.wish
	}
	return all
}

// done ends a wish, unless the pod wishes anew.
func (ref *referee) done(key bpf.Key, w *wish) {
	ref.s.mu.Lock()
	defer ref.s.mu.Unlock()
	if v := ref.s.heard[key]; v != nil && v.wish == w {
		v.wish = nil
	}
}

// grant gives the turn to pods that wish to speak for addresses of one reservation.
func (ref *referee) grant(ctx context.Context, name string, wishes map[bpf.Key]*wish) error {
	r, before := &v1alpha1.ReservedIP{}, map[bpf.Key]v1alpha1.Speaker{}
	err := retry.RetryOnConflict(retry.DefaultRetry, func() (err error) {
		r, before, err = ref.write(ctx, name, wishes)
		return err
	})
	if err != nil {
		return fmt.Errorf("record the next speaker on ReservedIP %s: %w", name, err)
	}
	var turns errgroup.Group
	for key, old := range before {
		on, e := speakerOf(r, key.Addr), wishes[key].e
		ref.done(key, wishes[key])
		if on.Pod != e.PodName { // the pod on another parent
			continue
		}
		turns.Go(func() error {
			began, err := ref.begin(ctx, key, r, e, on, old, "moved from "+cmp.Or(old.Pod, "nobody"))
			if began {
				ref.s.moved(r, key.Addr, old, on)
			}
			return err
		})
	}
	return turns.Wait()
}

// write writes those who wish to speak into the status of a reservation, and returns the speakers before them.
func (ref *referee) write(ctx context.Context, name string, wishes map[bpf.Key]*wish) (*v1alpha1.ReservedIP, map[bpf.Key]v1alpha1.Speaker, error) {
	r, before := &v1alpha1.ReservedIP{}, map[bpf.Key]v1alpha1.Speaker{}
	if err := client.IgnoreNotFound(ref.s.Live.Get(ctx, client.ObjectKey{Name: name}, r)); err != nil {
		return nil, nil, err
	}
	for key, w := range wishes {
		taken, on, err := ref.decide(ctx, key, r, w)
		if err != nil {
			return nil, nil, err
		}
		if taken == nil {
			ref.done(key, w)
			continue
		}
		before[key] = on
		r.Status.Speakers = append(slices.DeleteFunc(r.Status.Speakers, func(o v1alpha1.Speaker) bool { return o.Address == taken.Address }), *taken)
	}
	if len(before) == 0 {
		return r, nil, nil
	}
	return r, before, ref.s.Client.Status().Update(ctx, r)
}

// decide returns the record by which a wish comes true, nil if it must not, and the one before.
func (ref *referee) decide(ctx context.Context, key bpf.Key, r *v1alpha1.ReservedIP, w *wish) (taken *v1alpha1.Speaker, on v1alpha1.Speaker, err error) {
	on = speakerOf(r, key.Addr)
	isHere, speaks := ref.isHere(key, w.e.PodName), on.Node == ref.s.Node && ref.isHere(key, on.Pod)
	if r.Spec.Virtual == nil || !r.Spec.Virtual.Exclusive || !isHere {
		return nil, on, nil
	}
	revision, err := strconv.ParseUint(r.ResourceVersion, 10, 64)
	if err != nil {
		return nil, on, fmt.Errorf("resourceVersion %q: %w", r.ResourceVersion, err)
	}
	l, heard, err := ref.s.Turns.Turn(key)
	if err != nil {
		return nil, on, err
	}
	now, ok := next(*w, on, ref.s.Node, revision, l, heard, ref.s.Clock.Now())
	if !ok {
		return nil, on, nil
	}
	now.Address = key.Addr.String()
	if w.renews || w.fills || ref.s.Clock.Since(w.at) <= freshWish {
		return &now, on, nil
	}
	if !speaks { // the pod on record is not of this node, or gone
		speaks, err = ref.isAnswered(ctx, key, max(uint64(on.Token), l.Token))
	}
	if err != nil || speaks {
		return nil, on, err
	}
	return &now, on, nil
}

// isHere reports whether a pod of this node may speak for an address.
func (ref *referee) isHere(key bpf.Key, pod string) bool {
	ref.s.mu.Lock()
	defer ref.s.mu.Unlock()
	v := ref.s.heard[key]
	return v != nil && slices.ContainsFunc(v.pods, func(e *attachment.Entry) bool { return e.PodName == pod })
}

// isAnswered reports whether another host uses an address. No pod of this node does: it ends their turns, so that
// the kernel tells of all hosts.
func (ref *referee) isAnswered(ctx context.Context, key bpf.Key, token uint64) (bool, error) {
	if err := ref.s.Turns.EndTurn(key, token); err != nil {
		return false, err
	}
	seg, err := ref.s.OpenSegment(int(key.Segment))
	if err != nil {
		return false, err
	}
	macs, err := seg.Answerers(ctx, key.Addr)
	return len(macs) > 0, err
}

// begin gives the turn to a pod of this node that is on record; false: a newer one has it. old is the speaker before.
func (ref *referee) begin(ctx context.Context, key bpf.Key, r *v1alpha1.ReservedIP, e *attachment.Entry, on, old v1alpha1.Speaker, why string) (began bool, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("let pod %s/%s speak for %s: %w", e.PodNamespace, e.PodName, key.Addr, err)
		}
	}()
	t, err := ref.turnOf(ctx, r, e, on)
	if err != nil {
		return false, err
	}
	seg, err := ref.s.OpenSegment(int(key.Segment))
	if err != nil {
		return false, err
	}
	ref.remember(key, nil)
	a := attachment.Address{Addr: key.Addr, Network: r.Spec.Network, Token: uint64(on.Token), Unproven: true}
	if err := ref.s.Turns.GiveTurn(e, a, t.mac); err != nil {
		return false, err
	}
	c := segment.Claim{
		Addr: a.Addr, Network: claim.Network(ref.s.Cluster, a.Network), Token: a.Token, PreviousToken: uint64(old.Token), Mode: t.params.Mode,
	}
	c.PreviousMAC, _ = net.ParseMAC(old.MAC) // without it, the claims go to all hosts only
	if err := seg.ClaimAndConfirm(ctx, c); errors.Is(err, segment.ErrFenced) {
		ref.s.Log.Info("a newer pod has the turn to speak for a virtual address", "address", key.Addr.String(), "pod", e.PodName, "token", a.Token)
		return false, nil
	} else if err != nil {
		return false, err
	}
	a.Unproven = false
	if err := ref.s.Turns.GiveTurn(e, a, t.mac); err != nil {
		return false, err
	}
	ref.begun(key, r, t)
	seg.Announce(t.announcement(key.Addr))
	record := e.Audit(a, ref.s.Node, why)
	record.MAC = on.MAC
	audit.Log(ref.s.Log, audit.Move, record)
	return true, nil
}

// begun notes a turn, by which the wishes of its pod have come true.
func (ref *referee) begun(key bpf.Key, r *v1alpha1.ReservedIP, t *turn) {
	ref.s.mu.Lock()
	defer ref.s.mu.Unlock()
	v := ref.s.heard[key]
	if v == nil {
		return
	}
	v.by = r
	v.take(t)
	if v.wish != nil && v.wish.e.Slot == t.e.Slot && v.wish.mac == t.MAC {
		v.wish = nil
	}
}
