// SPDX-License-Identifier: Apache-2.0

package move

import (
	"cmp"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/internal/poolset"
)

// Facts are the input of Next.
type Facts struct {
	Move *v1alpha1.Move
	// Pools are those of the move that exist, in its order.
	Pools []v1alpha1.IPPool
	// Lease returns the lease of a name, or nil.
	Lease func(name string) *v1alpha1.IPLease
	Now   time.Time
}

// Writes are what a look at a move writes beside the status.
type Writes struct {
	// Holds are the leases to create.
	Holds []*v1alpha1.IPLease
	// Back are the leases whose agents are to give the pods back, as they are to be written.
	Back []*v1alpha1.IPLease
	// Ended are the holds to delete.
	Ended []*v1alpha1.IPLease
}

// Next returns the next status of a move, and the writes that lead there. A record whose address the status names
// already for its pod gets no second hold: the first one has ended, and the address was proven free or has been given
// anew.
func Next(f Facts) (v1alpha1.MoveStatus, Writes) {
	spec := &f.Move.Spec
	status := v1alpha1.MoveStatus{ObservedGeneration: f.Move.Generation}
	named, earlier := map[string]int{}, map[string]v1alpha1.MoveAddress{}
	for _, r := range spec.Records {
		named[r.Address]++
	}
	for _, a := range f.Move.Status.Addresses {
		if a.State != v1alpha1.MoveConflict {
			earlier[a.Address] = a
		}
	}
	var w Writes
	for i := range spec.Records {
		r := &spec.Records[i]
		if named[r.Address] == 0 {
			continue // a record before it names the address too
		}
		a := v1alpha1.MoveAddress{Address: r.Address, PodUID: r.PodUID, State: v1alpha1.MoveConflict}
		was, isEarlier := earlier[r.Address]
		isEarlier = isEarlier && was.PodUID == r.PodUID
		pool := poolOf(f.Pools, r.Address)
		switch {
		case named[r.Address] > 1:
			a.Reason = fmt.Sprintf("%d records name it, one of them %s", named[r.Address], describe(r))
		case pool == nil:
			a.Reason = "no pool of the move has it"
		default:
			name := v1alpha1.LeaseName(pool.Spec.Network, netip.MustParseAddr(r.Address))
			switch l := f.Lease(name); {
			case l != nil:
				a.State, a.Reason = stateOf(f.Move, r, l)
				if isEarlier && a.State == v1alpha1.MoveConflict && l.Labels[v1alpha1.LabelMove] != f.Move.Name {
					a.State, a.Reason = v1alpha1.MoveEnded, "it has been given anew"
				}
				if spec.Step == v1alpha1.MoveBack {
					w.giveBack(f.Move, r, l, pool)
				}
			case isEarlier:
				a.State = v1alpha1.MoveEnded
			case spec.Step != v1alpha1.MoveAdopt && spec.Step != v1alpha1.MoveOpen:
				continue
			default:
				l := hold(f.Move, r, pool, name, f.Now)
				w.Holds = append(w.Holds, l)
				a.State, a.Reason = v1alpha1.MoveHeld, l.Spec.Message
			}
		}
		named[r.Address] = 0
		status.Addresses = append(status.Addresses, cut(a))
		count(&status, a.State)
	}
	return status, w
}

// giveBack ends the hold of an address, or has the agent give its pod back, if the pool gives the address to nobody.
func (w *Writes) giveBack(m *v1alpha1.Move, r *v1alpha1.MoveRecord, l *v1alpha1.IPLease, pool *v1alpha1.IPPool) {
	asked := strconv.FormatInt(m.Generation, 10)
	switch {
	case !ptr.Deref(pool.Spec.Disable, false):
	case l.IsHoldOf(m.Name):
		w.Ended = append(w.Ended, l)
	case l.Spec.State == v1alpha1.StateBound && r.GoesBack(l.Spec.Holder) && l.Annotations[v1alpha1.AnnotationMoveBack] != asked:
		l = l.DeepCopy()
		metav1.SetMetaDataLabel(&l.ObjectMeta, v1alpha1.LabelMove, m.Name)
		metav1.SetMetaDataAnnotation(&l.ObjectMeta, v1alpha1.AnnotationMoveBack, asked)
		w.Back = append(w.Back, l)
	}
}

// poolOf returns the first pool that hands out an address, or else the first one with it in its subnet: the
// pools of a move may be closed. It is nil if there is none.
func poolOf(pools []v1alpha1.IPPool, address string) *v1alpha1.IPPool {
	addr, err := netip.ParseAddr(address)
	if err != nil {
		return nil // the CRD refuses it
	}
	var inSubnet *v1alpha1.IPPool
	for i := range pools {
		if set, err := poolset.Addresses(&pools[i]); err == nil && set.Contains(addr) {
			return &pools[i]
		}
		if subnet, err := poolset.Subnet(&pools[i]); err == nil && subnet.Contains(addr) && inSubnet == nil {
			inSubnet = &pools[i]
		}
	}
	return inSubnet
}

// stateOf returns the state of an address with a lease.
func stateOf(m *v1alpha1.Move, r *v1alpha1.MoveRecord, l *v1alpha1.IPLease) (v1alpha1.MoveState, string) {
	s := &l.Spec
	isOfPod := s.Holder != nil && s.Holder.PodUID != "" && s.Holder.PodUID == r.PodUID
	switch {
	case s.State == v1alpha1.StateBound && r.Names(s.Holder):
		return v1alpha1.MoveAdopted, ""
	case s.State == v1alpha1.StateBound && isOfPod:
		return v1alpha1.MoveEnded, "a later sandbox of the pod has it from Fenceline"
	case l.Labels[v1alpha1.LabelMove] != m.Name:
		return v1alpha1.MoveConflict, fmt.Sprintf("it has a lease already: %s %s, pod %s", s.State, s.Reason, podOf(s.Holder))
	case s.State != v1alpha1.StateQuarantined:
		return v1alpha1.MoveEnded, fmt.Sprintf("its lease is %s for pod %s", s.State, podOf(s.Holder))
	case s.Conflict != nil:
		return v1alpha1.MoveConflict, fmt.Sprintf("%s speaks for it too: %s", s.Conflict.MAC, s.Message)
	case s.Reason != v1alpha1.ReasonMovingIn:
		return v1alpha1.MoveHeld, fmt.Sprintf("%s: %s", s.Reason, s.Message)
	}
	return v1alpha1.MoveHeld, s.Message
}

func podOf(h *v1alpha1.Holder) string {
	if h == nil || h.Pod == "" {
		return "(none)"
	}
	return h.Namespace + "/" + h.Pod
}

// hold returns the lease that keeps the address of a record. Its holder and its predecessor are the pod of
// the record, which no guard silences. A record without a pod names no predecessor (R4).
func hold(m *v1alpha1.Move, r *v1alpha1.MoveRecord, pool *v1alpha1.IPPool, name string, now time.Time) *v1alpha1.IPLease {
	l := &v1alpha1.IPLease{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, Labels: map[string]string{v1alpha1.LabelMove: m.Name},
			Annotations: map[string]string{v1alpha1.AnnotationMoveRecord: describe(r)},
		},
		Spec: v1alpha1.IPLeaseSpec{
			Address: r.Address, Pool: pool.Name, NodeName: r.Node,
			State: v1alpha1.StateQuarantined, Reason: v1alpha1.ReasonMovingIn, Since: metav1.NewTime(now),
		},
	}
	why := "no pod is known"
	if r.PodUID != "" && r.Pod != "" && r.Namespace != "" {
		l.Spec.Holder = &v1alpha1.Holder{
			Namespace: r.Namespace, Pod: r.Pod, PodUID: r.PodUID, Interface: r.Interface, ContainerID: r.ContainerID, MAC: r.MAC,
		}
		l.Spec.Previous = &v1alpha1.PreviousHolder{
			Node: r.Node, PodUID: r.PodUID, MAC: r.MAC, Reason: v1alpha1.ReasonMovingIn, Since: l.Spec.Since,
		}
		why = fmt.Sprintf("the agent of node %s has not adopted the pod yet", cmp.Or(r.Node, "(none)"))
	}
	if r.Hold != "" {
		l.Annotations[v1alpha1.AnnotationMoveHold], why = r.Hold, r.Hold
	}
	l.Spec.Message = l.WithRecord(why)
	return l
}

// describe names a record for people.
func describe(r *v1alpha1.MoveRecord) string {
	if r.Record != "" {
		return r.Record
	}
	if r.Pod == "" {
		return "of no pod"
	}
	return fmt.Sprintf("of pod %s/%s", r.Namespace, r.Pod)
}

// mostReason is the length of the longest reason that the CRD takes, in characters.
const mostReason = 200

func cut(a v1alpha1.MoveAddress) v1alpha1.MoveAddress {
	if len(a.Reason) > mostReason {
		a.Reason = strings.ToValidUTF8(a.Reason[:mostReason-3], "") + "..."
	}
	return a
}

func count(s *v1alpha1.MoveStatus, state v1alpha1.MoveState) {
	switch state {
	case v1alpha1.MoveAdopted:
		s.Adopted++
	case v1alpha1.MoveHeld:
		s.Held++
	case v1alpha1.MoveEnded:
		s.Ended++
	default:
		s.Conflicts++
	}
}
