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
	"github.com/fenceline/fenceline/agent/lease"
	"github.com/fenceline/fenceline/agent/refusal"
	"github.com/fenceline/fenceline/agent/waiting"
	"github.com/fenceline/fenceline/cni/agentapi"
	"github.com/fenceline/fenceline/internal/owner"
)

// enter returns the place of an ADD. Without a UID of the pod, it belongs to the sandbox.
func (h *Holders) enter(r agentapi.AddRequest) *add {
	key := waiting.Key{PodUID: r.Pod.UID, Interface: r.Interface}
	if key.PodUID == "" {
		key.PodUID = r.ContainerID
	}
	return &add{h: h, request: r, place: h.Waiting.Enter(key)}
}

// await waits until an address of the full pools comes free, or a pool or the pod changes. The round was
// undone: meanwhile there is no lease and no entry of the journal, and the interface is mute. It
// returns an error when the ADD is to end.
func (a *add) await(ctx context.Context, full []ipam.Candidate, why error) (err error) {
	now := a.h.Clock.Now()
	if a.began.IsZero() {
		a.began = now
	}
	if _, isKeptReady := ipam.KeptReady(why); a.until.IsZero() || isKeptReady != a.release {
		a.until, a.release = a.began.Add(a.h.Patience), isKeptReady
		if release := now.Add(releaseTime); isKeptReady && release.Before(a.until) {
			a.until = release
		}
		if deadline, ok := ctx.Deadline(); ok && a.until.After(deadline.Add(-attachment.AnswerMargin)) {
			a.until = deadline.Add(-attachment.AnswerMargin)
		}
	}
	if !a.until.After(now) {
		return a.end(ctx, full, why, waiting.ErrLate)
	}
	a.tell(full, why, a.until.Sub(now))
	if a.offer, err = a.place.Await(ctx, poolsOf(full), a.until); err != nil {
		return a.end(ctx, full, why, err)
	}
	if !a.offer.Addr.IsValid() {
		return a.wanted(ctx)
	}
	return nil
}

// wanted returns an error if the pod is gone or ends.
func (a *add) wanted(ctx context.Context) error {
	pod, err := a.h.pod(ctx, a.request.Pod)
	if err != nil {
		return err
	}
	if owner.Ends(pod) {
		return refusal.New(refusal.TryAgain, "pod %s/%s ends and no longer waits for an address", pod.Namespace, pod.Name)
	}
	return nil
}

// end returns the error of an ADD whose wait has ended without an address.
func (a *add) end(ctx context.Context, full []ipam.Candidate, why, ended error) error {
	switch {
	case errors.Is(ended, waiting.ErrCrowded):
		return fmt.Errorf("%w; %w", why, ended)
	case errors.Is(ended, waiting.ErrStopping):
		return refusal.New(refusal.TryAgain, "%w; the wait for an address ends, because %w", why, ended)
	case !errors.Is(ended, waiting.ErrLate):
		return ended // the call was cancelled
	}
	if node, ok := ipam.KeptReady(why); ok {
		return a.notReleased(node, why)
	}
	coming, err := a.comingFree(ctx, full)
	switch {
	case lease.IsUnavailable(err):
		return refusal.New(refusal.TryAgain, "%w; it is not known whether an address has come free, since the API server does not answer: %w", why, err)
	case err != nil:
		return err
	case coming > 0:
		return refusal.New(refusal.TryAgain,
			"%w; %d of these leases are kept ready by other nodes or being verified, and will end", why, coming)
	}
	return why
}

// notReleased returns the error of an ADD whose address another node still keeps Warm.
func (a *add) notReleased(node string, why error) error {
	time := min(a.h.Patience, releaseTime)
	if !a.place.Heard() {
		return refusal.New(refusal.TryAgain, "%w, but the controller, by which it is asked, does not answer within %s", why, time)
	}
	remedy := ", or name another address"
	if e, ok := errors.AsType[*ipam.RequestedError](why); ok && e.Reserved {
		remedy = ""
	}
	return fmt.Errorf("%w, but has not done so within %s, since its agent is away or of an earlier release: start or upgrade the agent of node %s%s",
		why, time, node, remedy)
}

// comingFree counts the leases of the full pools that will end within seconds.
func (a *add) comingFree(ctx context.Context, full []ipam.Candidate) (coming int, err error) {
	for _, c := range full {
		if len(c.Only) > 0 {
			continue // other addresses of the pool do not help
		}
		n, err := a.h.Leases.ComingFree(ctx, c.Pool.Name)
		if err != nil {
			return 0, err
		}
		coming += n
	}
	return coming, nil
}

// releaseTime is the longest wait for an address that another node keeps Warm. Its agent releases it within
// a second, or is away.
const releaseTime = 5 * time.Second

// mostTold bounds the events of one wait.
const mostTold = 4

// tell reports in an event of the pod that it waits, once for each reason: its pool is not made
// yet, the controller says why, the pool is full.
func (a *add) tell(full []ipam.Candidate, why error, left time.Duration) {
	reason, by := "full", runtime.Object(nil)
	if e, ok := errors.AsType[*ipam.PoolAwaitedError](why); ok {
		reason = "not made: " + e.Why
		if e.By != nil {
			by = e.By
		}
	} else if len(a.told) > 0 && len(full) > 0 {
		by = full[0].Pool // it was made meanwhile
	}
	if len(a.told) < mostTold && !slices.Contains(a.told, reason) {
		a.told = append(a.told, reason)
		a.awaits(full, why, by, left)
	}
}

// awaits reports in an event of the pod that it waits, and why. The API keeps only the first note
// of events with the same reason and the same objects. by is the object that gives the reason: a
// new version of it makes a new event, with its own note.
func (a *add) awaits(full []ipam.Candidate, why error, by runtime.Object, patience time.Duration) {
	text := fmt.Sprintf("waits up to %s for an address: %s", patience.Round(time.Second), why)
	ready, proving := int64(0), int64(0)
	for _, c := range full {
		if len(c.Only) > 0 {
			continue
		}
		ready, proving = ready+c.Pool.Status.Warm, proving+c.Pool.Status.Quarantined
	}
	if ready+proving > 0 {
		text += fmt.Sprintf("; of these leases, nodes keep %d ready, and %d are in quarantine", ready, proving)
	}
	a.h.Events.Eventf(a.pod, by, corev1.EventTypeWarning, "AddressAwaited", "Bind", "%s", note(errors.New(text)))
}

// poolsOf returns the candidates as pools that an ADD waits for.
func poolsOf(full []ipam.Candidate) []waiting.Pool {
	var pools []waiting.Pool
	for _, c := range full {
		agents := cmp.Or(c.Pool.Status.Served, c.Pool.Status.Agents)
		pools = append(pools, waiting.Pool{Name: c.Pool.Name, Only: c.Only, Set: c.Set, Agents: int(agents)})
	}
	return pools
}
