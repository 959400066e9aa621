// SPDX-License-Identifier: Apache-2.0

package holder

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/fenceline/fenceline/agent/attachment"
	"github.com/fenceline/fenceline/agent/ipam"
	"github.com/fenceline/fenceline/agent/node"
	"github.com/fenceline/fenceline/agent/refusal"
	"github.com/fenceline/fenceline/agent/waiting"
	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/cni/agentapi"
)

// queued is an ADD with its place in the queue for full pools.
type queued struct {
	h       *Holders
	request agentapi.AddRequest
	place   *waiting.Place
	// offer is the address that came free, for the next try.
	offer waiting.Offer
	// until is the end of the wait; zero before it begins.
	until time.Time
	// told are the reasons that events of the pod have reported.
	told []string
	// warned: events of the pod have reported its settings without effect.
	warned bool
	// replaced are the dead slots that an earlier ADD and earlier tries have left on the interface.
	// They keep it mute until the next guard enforces.
	replaced []uint32
	// application is the application of the pod, once it was read.
	application *v1alpha1.Application
}

// enter returns the place of an ADD. Without a UID of the pod, it belongs to the sandbox.
func (h *Holders) enter(r agentapi.AddRequest) *queued {
	key := waiting.Key{PodUID: r.Pod.UID, Interface: r.Interface}
	if key.PodUID == "" {
		key.PodUID = r.ContainerID
	}
	return &queued{h: h, request: r, place: h.Waiting.Enter(key)}
}

// await waits until an address of the full pools comes free, or a pool or the pod changes. The try a
// was undone: meanwhile there is no lease and no entry of the journal, and the interface is mute. It
// returns an error when the ADD is to end.
func (q *queued) await(ctx context.Context, a *adding, full error) error {
	var err error
	if q.replaced, err = a.Mutes(); err != nil {
		return err
	}
	now := q.h.Clock.Now()
	if q.until.IsZero() {
		q.until = now.Add(q.h.Patience)
		if deadline, ok := ctx.Deadline(); ok && q.until.After(deadline.Add(-attachment.AnswerMargin)) {
			q.until = deadline.Add(-attachment.AnswerMargin)
		}
	}
	if !q.until.After(now) {
		return q.end(ctx, a, full, waiting.ErrLate)
	}
	q.tell(a, full, q.until.Sub(now))
	if q.offer, err = q.place.Await(ctx, poolsOf(a.Full), q.until); err != nil {
		return q.end(ctx, a, full, err)
	}
	if !q.offer.Addr.IsValid() {
		return q.wanted(ctx)
	}
	return nil
}

// wanted returns an error if the pod is gone or ends.
func (q *queued) wanted(ctx context.Context) error {
	pod, err := q.h.Pod(ctx, q.request.Pod)
	if err != nil {
		return err
	}
	if node.Ends(pod) {
		return refusal.New(refusal.TryAgain, "pod %s/%s ends and no longer waits for an address", pod.Namespace, pod.Name)
	}
	return nil
}

// end returns the error of an ADD whose wait has ended without an address.
func (q *queued) end(ctx context.Context, a *adding, full, why error) error {
	switch {
	case errors.Is(why, waiting.ErrCrowded):
		return fmt.Errorf("%w; %w", full, why)
	case errors.Is(why, waiting.ErrBlind):
		return refusal.New(refusal.TryAgain, "%w; %w, since the API server does not answer", full, why)
	case errors.Is(why, waiting.ErrStopping):
		return refusal.New(refusal.TryAgain, "%w; the wait for an address ends, because %w", full, why)
	case !errors.Is(why, waiting.ErrLate):
		return why // the call was cancelled
	}
	coming, err := a.comingFree(ctx)
	switch {
	case err != nil:
		return err
	case coming > 0:
		return refusal.New(refusal.TryAgain,
			"%w; %d of these leases are kept ready by other nodes or being verified, and will end", full, coming)
	}
	return full
}

// comingFree counts the leases of the full pools that will end within seconds.
func (a *adding) comingFree(ctx context.Context) (coming int, err error) {
	for _, c := range a.Full {
		n, err := a.Leases.ComingFree(ctx, c.Pool.Name)
		if err != nil {
			return 0, err
		}
		coming += n
	}
	return coming, nil
}

// mostTold bounds the events of one wait.
const mostTold = 4

// tell reports in an event of the pod that it waits, once for each reason: its pool is not made
// yet, the controller says why, the pool is full.
func (q *queued) tell(a *adding, full error, left time.Duration) {
	reason, by := "full", runtime.Object(nil)
	if e, ok := errors.AsType[*ipam.PoolAwaitedError](full); ok {
		reason = "not made: " + e.Why
		if e.By != nil {
			by = e.By
		}
	} else if len(q.told) > 0 && len(a.Full) > 0 {
		by = a.Full[0].Pool // it was made meanwhile
	}
	if len(q.told) < mostTold && !slices.Contains(q.told, reason) {
		q.told = append(q.told, reason)
		a.awaits(full, by, left)
	}
}

// awaits reports in an event of the pod that it waits, and why. The API keeps only the first note
// of events with the same reason and the same objects. by is the object that gives the reason: a
// new version of it makes a new event, with its own note.
func (a *adding) awaits(full error, by runtime.Object, patience time.Duration) {
	text := fmt.Sprintf("waits up to %s for an address: %s", patience.Round(time.Second), full)
	ready, proving := int64(0), int64(0)
	for _, c := range a.Full {
		ready, proving = ready+c.Pool.Status.Warm, proving+c.Pool.Status.Quarantined
	}
	if ready+proving > 0 {
		text += fmt.Sprintf("; of these leases, nodes keep %d ready, and %d are in quarantine", ready, proving)
	}
	a.Events.Eventf(a.Pod, by, corev1.EventTypeWarning, "AddressAwaited", "Bind", "%s", note(errors.New(text)))
}

// poolsOf returns the candidates as pools that an ADD waits for.
func poolsOf(full []ipam.Candidate) []waiting.Pool {
	var pools []waiting.Pool
	for _, c := range full {
		agents := cmp.Or(c.Pool.Status.Served, c.Pool.Status.Agents)
		pools = append(pools, waiting.Pool{Name: c.Pool.Name, Set: c.Set, Agents: int(agents)})
	}
	return pools
}
