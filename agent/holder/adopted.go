// SPDX-License-Identifier: Apache-2.0

package holder

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fenceline/fenceline/agent/attachment"
	"github.com/fenceline/fenceline/agent/lease"
	"github.com/fenceline/fenceline/agent/release"
	"github.com/fenceline/fenceline/cni/agentapi"
	"github.com/fenceline/fenceline/internal/loop"
	"github.com/fenceline/fenceline/internal/owner"
)

// Run looks after the adopted pods until ctx ends: it completes adoptions that a crash has interrupted, and
// ends pods that are gone.
func (a *Adopter) Run(ctx context.Context) error {
	return loop.Loop{Clock: a.h.Clock, Period: period, Failed: func(err error) {
		a.h.Log.Info("adopted pods wait", "why", err.Error())
	}}.Try(ctx, a.Pass)
}

// Pass looks once at each adopted interface.
func (a *Adopter) Pass(ctx context.Context) error {
	var errs []error
	for _, e := range a.h.Attachments.All() {
		if !e.Adopted || e.Session != a.h.Self.Session || e.Phase == attachment.Releasing {
			continue
		}
		switch gone, p, err := a.isOver(ctx, e); {
		case err != nil:
			errs = append(errs, err)
		case gone:
			a.h.Log.Info("an adopted pod has ended without a DEL", "pod", e.PodNamespace+"/"+e.PodName, "interface", e.Interface)
			errs = append(errs, a.h.letGo(ctx, e.Attachment()))
		case e.Phase == attachment.Adopting:
			errs = append(errs, a.resume(ctx, e.Attachment(), p))
		}
	}
	return errors.Join(errs...)
}

// isOver reports whether the network namespace of an entry or its pod is gone. It reads the pod past the cache if the
// cache does not show it, and for an entry in the phase Adopting. A static pod outlives its mirror pod, so only its
// namespace counts: its UID is a hash without dashes.
func (a *Adopter) isOver(ctx context.Context, e *attachment.Entry) (bool, *corev1.Pod, error) {
	if !a.h.Releaser.SandboxMayLive(e) {
		return true, nil, nil
	}
	cached := &corev1.Pod{}
	err := a.h.Cache.Get(ctx, client.ObjectKey{Namespace: e.PodNamespace, Name: e.PodName}, cached, client.UnsafeDisableDeepCopy)
	if e.Phase == attachment.Bound && err == nil && owner.IsUID(cached, e.PodUID) && !owner.HasFinished(cached) {
		return false, nil, nil
	}
	p, err := a.pod(ctx, e.PodNamespace, e.PodName, e.PodUID)
	if err != nil {
		return false, nil, err
	}
	return (p == nil || owner.HasFinished(p)) && strings.Contains(e.PodUID, "-"), p, nil
}

// resume completes an adoption that was interrupted, unless it is under way.
func (a *Adopter) resume(ctx context.Context, of agentapi.Attachment, p *corev1.Pod) error {
	unlock, ok := a.h.Attachments.Calls.TryLock(of)
	if !ok {
		return nil
	}
	defer unlock()
	e, ok := a.h.Attachments.Get(of.ContainerID, of.Interface)
	if !ok || e.Phase != attachment.Adopting || p == nil {
		return nil
	}
	if err := a.h.Guards.Ensure(&e); err != nil {
		return fmt.Errorf("guard %s of pod %s/%s: %w", e.Interface, e.PodNamespace, e.PodName, err)
	}
	return a.complete(ctx, e, p)
}

// adopted returns the attachment that a call is about: its own, or that of the adopted interface of that name in
// the same network namespace. The runtime knows the sandbox by another ID than the journal.
func (h *Holders) adopted(of agentapi.Attachment, netns string) agentapi.Attachment {
	if _, known := h.Attachments.Get(of.ContainerID, of.Interface); known || netns == "" {
		return of
	}
	wanted, err := os.Stat(netns)
	if err != nil {
		return of
	}
	for _, e := range h.Attachments.All() {
		if e.Adopted && e.Interface == of.Interface {
			if at, err := os.Stat(e.NetNS); err == nil && os.SameFile(at, wanted) {
				return e.Attachment()
			}
		}
	}
	return of
}

// leave goes on to give an interface back to the other IPAM, if its Move goes back by now.
func (a *Adopter) leave(ctx context.Context, e attachment.Entry) (left bool, err error) {
	for _, address := range e.Addresses {
		l, err := a.h.Leases.Get(ctx, address.LeaseName)
		if errors.Is(err, lease.ErrGone) {
			continue
		}
		if err != nil {
			return false, err
		}
		if left, err := release.Leave(ctx, a.h.Releaser, e, l); left || err != nil {
			return left, err
		}
	}
	return false, nil
}
