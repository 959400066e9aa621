// SPDX-License-Identifier: Apache-2.0

package guards

import (
	"cmp"
	"errors"

	corev1 "k8s.io/api/core/v1"

	"github.com/fenceline/fenceline/agent/attachment"
	"github.com/fenceline/fenceline/bpf"
	"github.com/fenceline/fenceline/cni/agentapi"
	"github.com/fenceline/fenceline/internal/event"
)

// Repair puts the guards of pods back that were removed: without tcx, NET_ADMIN in the pod suffices
// for that, and a VF that is moved loses its filters. Until a VF has its guard again, it is to be off
// at its PF. Repair also has the leases of VFs corrected that may send past their guards since, or
// no longer.
func (g *Guards) Repair() error {
	var errs []error
	missing := map[agentapi.Attachment]bool{}
	for _, e := range g.Attachments.All() {
		if e.Phase != attachment.Bound || e.Session != g.Session {
			continue
		}
		attached, err := g.Attached(e)
		if err == nil && !attached {
			err = g.repair(e.Attachment())
		}
		if e.Device != "" && errors.Is(err, bpf.ErrNoDevice) {
			missing[e.Attachment()] = true
		}
		if !errors.Is(err, bpf.ErrNoDevice) { // the watch for lost interfaces reports it
			errs = append(errs, err)
		}
	}
	g.missing.Store(&missing)
	for _, e := range g.Attachments.All() {
		if e.Phase == attachment.Bound && e.Session == g.Session && !e.Unguarded && !e.Mute && !e.IsStandby() && g.Alone(e) != e.Bypasses {
			g.Attachments.Pending.Add(e.Attachment())
		}
	}
	return errors.Join(errs...)
}

// repair puts the guard of an attachment back, unless a call of the runtime is under way for it.
func (g *Guards) repair(a agentapi.Attachment) error {
	unlock, ok := g.Attachments.Calls.TryLock(a)
	if !ok {
		return nil
	}
	defer unlock()
	e, ok := g.Attachments.Get(a.ContainerID, a.Interface)
	if !ok || e.Phase != attachment.Bound {
		return nil
	}
	if e.Device != "" { // another interface may have the name by now
		if has, err := g.HasDevice(e.NetNS, e.Device); err != nil || !has {
			return cmp.Or(err, bpf.ErrNoDevice)
		}
	}
	if e.Mute { // its slot may be free, and new
		if err := g.KillSlot(&e); err != nil {
			return err
		}
	}
	if err := g.Stage(&e); err != nil {
		return err
	}
	g.Log.Info("a guard was removed, and is put back", "pod", e.PodNamespace+"/"+e.PodName, "interface", e.Interface)
	g.Metrics.GuardRestored()
	by := "a process with NET_ADMIN can do on a kernel without tcx; the agent has put it back. Drop NET_ADMIN in the pod"
	if e.NodeEnd != 0 {
		by = "only a process of the node can do, since it is at the node's end of the veth; the agent has put it back. Look for what removes qdiscs or links there"
	}
	g.Events.Eventf(event.Pod(e.PodNamespace, e.PodName, e.PodUID), nil, corev1.EventTypeWarning, "GuardRestored", "Guard",
		"the guard of %s was removed, which %s", e.Interface, by)
	return g.FinishPin(&e)
}

// isMissing reports whether the last Repair could not put the guard of a VF back.
func (g *Guards) isMissing(e *attachment.Entry) bool { return (*g.missing.Load())[e.Attachment()] }

// Alone reports whether only its PF can silence the VF of an entry: it has no guard, has lost it, or
// may send past it.
func (g *Guards) Alone(e *attachment.Entry) bool {
	return e.Unguarded || g.isMissing(e) || g.Bypasses(e)
}

// Bypasses reports whether frames of an entry's VF may pass its guard: its node cannot refuse the sockets
// that skip it, all pools of its pod allow them, or they may be older than the refusal. On other
// interfaces such frames meet the observer of the parent.
func (g *Guards) Bypasses(e *attachment.Entry) bool {
	return e.Device != "" && !e.Unguarded && g.Kernel.Sockets.MayBypass(e.Slot)
}
