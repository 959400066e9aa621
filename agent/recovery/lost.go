// SPDX-License-Identifier: Apache-2.0

package recovery

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/fenceline/fenceline/agent/attachment"
	"github.com/fenceline/fenceline/agent/lease"
	"github.com/fenceline/fenceline/agent/pod"
	"github.com/fenceline/fenceline/agent/pod/vf"
	"github.com/fenceline/fenceline/agent/segment/claim"
	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/bpf"
	"github.com/fenceline/fenceline/cni/agentapi"
	"github.com/fenceline/fenceline/internal/owner"
)

// remains has the facts about pods that are left on a node without a journal.
type remains struct {
	cluster, session string
	kernel           map[bpf.Key]bpf.Lease
	places           []pod.Place
	userVFs          []vf.Function
}

// entryOf rebuilds the entry of an interface from its leases. All of them must be in the kernel for
// the same slot, and on the interface of one network namespace, or their MAC must be that of one VF that a
// program drives itself. The error names the missing fact.
func (r remains) entryOf(leases []*v1alpha1.IPLease) (attachment.Entry, error) {
	slices.SortFunc(leases, func(a, b *v1alpha1.IPLease) int { return a.Spec.Addr().Compare(b.Spec.Addr()) }) // IPv4 first, as in ADD
	h := leases[0].Spec.Holder
	e := attachment.Entry{
		ContainerID: h.ContainerID, Interface: h.Interface, PodNamespace: h.Namespace, PodName: h.Pod, PodUID: h.PodUID,
		Machine: owner.MachineOf(h), Phase: attachment.Bound, Session: r.session, Settled: true, Created: leases[0].Spec.Since.Time,
	}
	for _, l := range leases {
		addr := l.Spec.Addr()
		network, _, err := v1alpha1.ParseLeaseName(l.Name)
		if err != nil {
			return e, err
		}
		key, held, ok := r.held(addr, claim.Network(r.cluster, network), e.Slot)
		if !ok {
			return e, fmt.Errorf("no slot of the kernel, or several, may use %s", addr)
		}
		places := slices.DeleteFunc(slices.Clone(r.places), func(p pod.Place) bool {
			return p.Interface != h.Interface || p.MAC.String() != held.MAC.String() || !slices.Contains(p.Addresses, addr) ||
				p.Parent.Index != 0 && p.Parent.Index != int(key.Segment) || e.NetNS != "" && p.NetNS != e.NetNS
		})
		driven := slices.DeleteFunc(slices.Clone(r.userVFs), func(f vf.Function) bool { return h.Guarded || !bytes.Equal(f.Info.Mac, held.MAC) })
		switch {
		case len(places) == 1:
			e.NetNS = places[0].NetNS
		case len(places) == 0 && len(driven) == 1:
			e.Device, e.Unguarded = driven[0].Device, true
		default:
			return e, fmt.Errorf("%d network namespaces have %s on an interface %s, and programs drive %d VFs with MAC %s", len(places), addr, h.Interface, len(driven), held.MAC)
		}
		e.Slot, e.MAC = held.Slot, held.MAC.String()
		e.Parent, e.ParentIndex = l.Spec.Parent, int(key.Segment)
		e.SharedMAC = e.SharedMAC || held.Flags&bpf.FlagSharedMAC != 0
		e.Addresses = append(e.Addresses, attachment.Address{
			Addr: addr, Pool: l.Spec.Pool, Network: network, LeaseName: l.Name, LeaseUID: string(l.UID), Token: held.Token,
			Unproven: held.Flags&bpf.FlagUnproven != 0, Disproved: held.Disproved, DisprovedBefore: tokens(held.DisprovedBefore[:]), Static: lease.IsStatic(&l.Spec),
		})
	}
	return e, nil
}

// tokens returns the tokens of a list of the kernel, which ends with zeros.
func tokens(all []uint64) (some []uint64) {
	for _, t := range all {
		if t != 0 {
			some = append(some, t)
		}
	}
	return some
}

// held returns the kernel's only lease of an address for a slot, if there is one; 0 is any slot.
func (r remains) held(addr netip.Addr, network uint64, slot uint32) (found bpf.Key, held bpf.Lease, ok bool) {
	for key, l := range r.kernel {
		if key.Addr != addr || l.Network != network || l.Slot == 0 || slot != 0 && l.Slot != slot {
			continue
		}
		if ok {
			return found, held, false
		}
		found, held, ok = key, l, true
	}
	return found, held, ok
}

// recoverLost rebuilds, once, the entries of living pods whose directory was emptied while no agent
// ran. Without them, a DEL frees nothing, and no claim is repeated (R3). It belongs to Run.
func (w *Worker) recoverLost(ctx context.Context) error {
	if w.lostDone {
		return nil
	}
	all := &v1alpha1.IPLeaseList{}
	if err := w.Cache.List(ctx, all); err != nil {
		return fmt.Errorf("list the leases of this node: %w", err)
	}
	lost := map[agentapi.Attachment][]*v1alpha1.IPLease{}
	for i := range all.Items {
		if l := &all.Items[i]; w.isWithoutEntry(l) {
			a := agentapi.Attachment{ContainerID: l.Spec.Holder.ContainerID, Interface: l.Spec.Holder.Interface}
			lost[a] = append(lost[a], l)
		}
	}
	if len(lost) == 0 {
		w.lostDone = true
		return nil
	}
	places, err := w.Places()
	if err != nil {
		return err
	}
	kernel, err := w.Guards.Leases.All()
	if err != nil {
		return err
	}
	r := remains{cluster: w.Self.Cluster, session: w.Self.Session, kernel: kernel, places: places}
	if w.UserVFs != nil {
		if r.userVFs, err = w.UserVFs(); err != nil {
			return err
		}
	}
	var errs []error
	for a, leases := range lost {
		errs = append(errs, w.recoverEntry(ctx, r, a, leases))
	}
	err = errors.Join(errs...)
	w.lostDone = err == nil
	return err
}

// recoverEntry rebuilds one entry. The audits free the leases of an entry whose slot was killed.
func (w *Worker) recoverEntry(ctx context.Context, r remains, a agentapi.Attachment, cached []*v1alpha1.IPLease) error {
	unlock, ok := w.Attachments.Calls.TryLock(a)
	if !ok {
		return errBusy
	}
	defer unlock()
	var leases []*v1alpha1.IPLease
	for _, c := range cached {
		ctx, cancel := context.WithTimeout(ctx, attachment.AskTimeout)
		l, err := w.Leases.Get(ctx, c.Name)
		cancel()
		if err != nil && !errors.Is(err, lease.ErrGone) {
			return err
		}
		if err == nil && l.UID == c.UID && w.isWithoutEntry(l) {
			leases = append(leases, l)
		}
	}
	if _, present := w.Attachments.Get(a.ContainerID, a.Interface); present || len(leases) == 0 {
		return nil
	}
	e, err := r.entryOf(leases)
	if err != nil {
		w.Log.Info("an entry of the journal is lost, and cannot be made again", "pod", e.PodNamespace+"/"+e.PodName,
			"interface", a.Interface, "why", err.Error())
		if !leases[0].Spec.Holder.Guarded {
			w.warn(&e, "RecordLost", "the node has lost its record of %s, and cannot make it again, so no DEL frees its address, and no claim fences it: delete the pod, and boot the node; why: %v", a.Interface, err)
		}
		return nil
	}
	if dead, err := w.Guards.Dead(e.Slot); err != nil || dead {
		return err
	}
	if !e.Unguarded {
		link, err := w.FindLink(e.NetNS, e.Interface)
		if err != nil {
			return err
		}
		e.Device, e.Index, e.NodeEnd = link.Device, link.Index, link.NodeEnd
		if e.Routing, err = w.Routing(&e); err != nil {
			w.Log.Error(err, "the routes of a pod stay as they are")
		}
	}
	if err := w.Attachments.Put(e); err != nil {
		return err
	}
	w.Log.Info("an entry of the journal was lost, and is made again", "pod", e.PodNamespace+"/"+e.PodName, "interface", a.Interface)
	w.Guards.Slots.Keep(e.Slot)
	w.Attachments.Pending.Add(a)
	if err := w.restore(&e); err != nil {
		w.Log.Error(err, "a recovered interface could not be restored whole", "pod", e.PodNamespace+"/"+e.PodName)
	}
	return nil
}
