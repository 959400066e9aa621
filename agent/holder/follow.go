// SPDX-License-Identifier: Apache-2.0

package holder

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fenceline/fenceline/agent/attachment"
	"github.com/fenceline/fenceline/agent/pod"
	"github.com/fenceline/fenceline/agent/segment"
	"github.com/fenceline/fenceline/cni/agentapi"
	"github.com/fenceline/fenceline/internal/loop"
	"github.com/fenceline/fenceline/internal/owner"
)

// followMost is the longest pause between two readings of the MAC of a new interface. The pauses
// double from attachment.PinDelay on, so the readings end after eight seconds. Plugins after IPAM may
// take that long: macvlan waits for the duplicate address detection of IPv6.
const followMost = 4 * time.Second

// follow reads the MAC of a new interface until the plugins have set it up. A plugin after IPAM may
// change the MAC, such as tuning. It ends with the first change, with a chained ADD, and when the
// containers of the pod start: a change by the pod itself must not be followed.
func (a *After) follow(of agentapi.Attachment) {
	for wait := attachment.PinDelay; wait <= followMost; wait *= 2 {
		if a.followOnce(of) || !loop.Again(a.following, a.o.Clock, wait, nil) {
			return
		}
	}
	a.followOnce(of)
}

// FollowYoung continues the readings of a new interface whose ADD an earlier agent has answered.
func (a *After) FollowYoung(e *attachment.Entry) {
	if e.Phase == attachment.Bound && a.o.Clock.Since(e.Created) < 2*followMost {
		of := e.Attachment()
		a.tasks.Go(func() { a.follow(of) })
	}
}

// followOnce takes over a MAC that a plugin has set. It reports whether no further reading is
// needed. It locks the attachment only for a change, because recovery defers a locked attachment.
func (a *After) followOnce(of agentapi.Attachment) (done bool) {
	e, follows := a.followed(of)
	if !follows {
		return true
	}
	// The interface may be gone, and its DEL is on the way.
	if _, changed, err := a.otherMAC(&e); err != nil || !changed {
		return false
	}
	if a.hasStarted(&e) {
		return true
	}
	defer a.o.Attachments.Calls.Lock(of)()
	e, follows = a.followed(of)
	if !follows {
		return true
	}
	changed, err := a.takeMAC(&e)
	if err != nil {
		a.o.Log.Error(err, "the guard of an interface does not know its MAC yet", "interface", e.Interface, "pod", e.PodNamespace+"/"+e.PodName)
	}
	return changed
}

// followed returns the entry of an attachment, and reports whether its MAC is followed.
func (a *After) followed(of agentapi.Attachment) (attachment.Entry, bool) {
	e, ok := a.o.Attachments.Get(of.ContainerID, of.Interface)
	return e, ok && e.Phase == attachment.Bound && e.Session == a.o.Self.Session && !e.Settled
}

// otherMAC returns the interface of an entry, and reports whether its MAC has changed.
func (a *After) otherMAC(e *attachment.Entry) (link pod.Interface, changed bool, err error) {
	link, err = a.o.FindLink(e.NetNS, e.Interface)
	if err != nil {
		return link, false, fmt.Errorf("read the MAC of interface %s of pod %s/%s: %w", e.Interface, e.PodNamespace, e.PodName, err)
	}
	return link, link.MAC.String() != e.MAC && link.Parent.Index == e.ParentIndex, nil
}

// settle takes over the MAC of an interface after its chain of plugins, and no later one.
func (a *After) settle(of agentapi.Attachment) error {
	defer a.o.Attachments.Calls.Lock(of)()
	e, follows := a.followed(of)
	if !follows {
		return nil
	}
	// The runtime repeats an ADD that fails.
	if _, err := a.takeMAC(&e); err != nil {
		return err
	}
	e.Settled = true
	return a.o.Attachments.Put(e)
}

// takeMAC gives the present MAC of an entry's interface to the journal and the kernel, and
// announces it. Recovery writes it to the leases, once the API server answers. It reports whether
// the MAC had changed. After an error, the journal or the kernel may still have the old MAC.
func (a *After) takeMAC(e *attachment.Entry) (changed bool, err error) {
	link, changed, err := a.otherMAC(e)
	if err != nil || !changed {
		return false, err
	}
	a.o.Log.Info("a plugin has changed the MAC of an interface; its guard follows", "pod", e.PodNamespace+"/"+e.PodName,
		"interface", e.Interface, "was", e.MAC, "is", link.MAC.String())
	e.MAC = link.MAC.String()
	// The journal is first: a restart installs its MAC.
	errs := []error{a.o.Attachments.Put(*e)}
	for _, address := range e.Addresses {
		errs = append(errs, a.o.Guards.Leases.Install(e, address))
	}
	errs = append(errs, a.o.GuardSources(e))
	a.o.WakeSources()
	a.announceAgain(e, link)
	a.o.Attachments.Pending.Add(e.Attachment())
	return true, errors.Join(errs...)
}

// announceAgain announces the addresses of an entry with its new MAC; the old announcements end by
// themselves. It claims first, since the claim of an address that was Warm may be under way (R10).
func (a *After) announceAgain(e *attachment.Entry, link pod.Interface) {
	seg, err := a.o.OpenSegment(e.ParentIndex)
	if err != nil {
		return // its claims are repeated within a minute (R3)
	}
	for _, address := range e.Addresses {
		c := a.o.Self.Claim(address.PoolThen().ConflictMode(), address, nil)
		again := segment.Announcement{
			NetNS: e.NetNS, Interface: e.Interface, NodeEnd: e.NodeEnd, MAC: link.MAC, Addr: address.Addr, Slot: e.Slot, Mode: c.Mode,
		}
		of := e.Attachment()
		a.tasks.Go(func() {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(a.o.Background), claimTimeout)
			defer cancel()
			if err := seg.ClaimAndConfirm(ctx, c); err == nil {
				seg.Announce(again)
			} else if errors.Is(err, segment.ErrFenced) {
				a.o.Attachments.Pending.Add(of)
			}
		})
	}
}

// hasStarted reports whether a container of an entry's pod has started, also if it has ended since.
// The runtime starts none before the plugins are done.
func (a *After) hasStarted(e *attachment.Entry) bool {
	pod := &corev1.Pod{}
	if err := a.o.Cache.Get(a.o.Background, client.ObjectKey{Namespace: e.PodNamespace, Name: e.PodName}, pod); err != nil || !owner.IsUID(pod, e.PodUID) {
		return false
	}
	for _, c := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
		for _, state := range []corev1.ContainerState{c.State, c.LastTerminationState} {
			// The status may be that of an older sandbox. Its times are whole seconds.
			if at := startOf(state); !at.IsZero() && at.Add(time.Second).After(e.Created) {
				return true
			}
		}
	}
	return false
}

// startOf returns the time at which a container started; zero if it has not.
func startOf(s corev1.ContainerState) time.Time {
	switch {
	case s.Running != nil:
		return s.Running.StartedAt.Time
	case s.Terminated != nil:
		return s.Terminated.StartedAt.Time
	}
	return time.Time{}
}
