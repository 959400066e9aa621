// SPDX-License-Identifier: Apache-2.0

package release

import (
	"context"
	"errors"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fenceline/fenceline/agent/attachment"
	"github.com/fenceline/fenceline/agent/pod"
	"github.com/fenceline/fenceline/agent/pod/vf"
	"github.com/fenceline/fenceline/internal/owner"
)

// endingTime is the age of a DEL from which the kubelet's report about the sandbox counts. If a
// sandbox dies, the status of its pod shows that before the kubelet stops it. If another program
// stops the sandbox, the status shows that within about two seconds.
const endingTime = 10 * time.Second

// errEnding is the reason for which a release waits.
var errEnding = errors.New("it is not known yet whether the sandbox has ended or only this interface was removed")

// ending distinguishes the DEL of an ended sandbox from the DEL of an interface alone.
type ending int

const (
	// endOfSandbox: the next sandbox of the pod gets the address. An unknown fact counts as this.
	endOfSandbox ending = iota
	// endOfInterface: the sandbox lives without the interface, so the address is free.
	endOfInterface
	// endUndecided: ask again.
	endUndecided
)

// endingFacts are the facts about a DEL of a pod that may get another sandbox.
type endingFacts struct {
	// since is the time since the DEL.
	since time.Duration
	// netnsLives: the network namespace of the sandbox may exist.
	netnsLives bool
	// sandboxReady: the kubelet says that the pod needs no other sandbox. False if this is unknown.
	sandboxReady bool
}

// endingOf decides what a DEL has ended. Runtimes call DEL while the network namespace still
// exists, so the call itself does not show it. Afterwards they remove the namespace of a sandbox
// that ends. If another plugin delays this, the kubelet still wants another sandbox.
func endingOf(f endingFacts) ending {
	switch {
	case !f.netnsLives:
		return endOfSandbox
	case f.since < endingTime:
		return endUndecided
	case f.sandboxReady:
		return endOfInterface
	}
	return endOfSandbox
}

// Undecided reports whether a fenced entry must wait until it is known what has ended.
func (r *Releaser) Undecided(ctx context.Context, e *attachment.Entry) bool {
	if e.Unguarded { // after a DEL of the interface alone, its program may run on
		return e.Phase == attachment.Releasing && r.ending(ctx, e) != endOfSandbox
	}
	kept := slices.ContainsFunc(e.Addresses, func(a attachment.Address) bool { return !a.Static })
	if !kept || e.Phase != attachment.Releasing {
		return false
	}
	living, err := r.podIs(ctx, e, getsSandboxes)
	return err != nil || living && r.ending(ctx, e) == endUndecided
}

// ending finds out what the DEL of an entry has ended. It reads the pod past the cache, if it must.
func (r *Releaser) ending(ctx context.Context, e *attachment.Entry) ending {
	if e.Phase != attachment.Releasing {
		return endOfSandbox
	}
	f := endingFacts{since: r.Clock.Since(e.Released), netnsLives: r.SandboxMayLive(e), sandboxReady: true}
	if endingOf(f) == endOfInterface {
		f.sandboxReady = r.sandboxReady(ctx, e)
	}
	return endingOf(f)
}

// SandboxMayLive reports whether the network namespace of an entry's sandbox exists. An entry that was made
// again for a program that drives its VF does not name it.
func (r *Releaser) SandboxMayLive(e *attachment.Entry) bool {
	if e.NetNS == "" {
		return true
	}
	_, err := r.FindLink(e.NetNS, e.Interface)
	return err == nil || wasOpened(err)
}

// MayLive reports whether the sandbox of an entry may live: its network namespace exists, and its pod
// exists and has not finished. A pod that cannot be read counts as existing.
func (r *Releaser) MayLive(ctx context.Context, e *attachment.Entry) bool {
	return e.Phase == attachment.Bound && r.SandboxMayLive(e) && r.podMay(ctx, e, func(p *corev1.Pod) bool { return !owner.HasFinished(p) })
}

// wasOpened reports whether the search for an interface failed in a network namespace that exists.
func wasOpened(err error) bool {
	return slices.ContainsFunc([]error{
		pod.ErrNoInterface, pod.ErrNoParent, pod.ErrNoUplink, pod.ErrNoVLAN, pod.ErrNoOVS, pod.ErrUnfitOVS, pod.ErrForeignParent, pod.ErrInfiniBand, vf.ErrNoPF, vf.ErrNoInfo, vf.ErrNoVLAN,
	}, func(is error) bool { return errors.Is(err, is) })
}

// sandboxReady reports whether the kubelet says that the sandbox of an entry's pod is ready.
func (r *Releaser) sandboxReady(ctx context.Context, e *attachment.Entry) bool {
	p := &corev1.Pod{}
	err := r.Reader.Get(ctx, types.NamespacedName{Namespace: e.PodNamespace, Name: e.PodName}, p)
	return err == nil && owner.IsUID(p, e.PodUID) && slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReadyToStartContainers && c.Status == corev1.ConditionTrue
	})
}
