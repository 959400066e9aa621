// SPDX-License-Identifier: Apache-2.0

package fakenode

import (
	"net/netip"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fenceline/fenceline/agent/attachment"
	"github.com/fenceline/fenceline/agent/release"
	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/bpf"
	"github.com/fenceline/fenceline/cni/agentapi"
	"github.com/fenceline/fenceline/test/check"
)

func Dual() []*v1alpha1.IPPool {
	return []*v1alpha1.IPPool{V4("10.0.0.2"), Pool("v6", "fd00::/64", v1alpha1.ModeEnforce, "fd00::2")}
}

func Retained(s *v1alpha1.IPLeaseSpec) {
	s.State, s.Holder.ContainerID = v1alpha1.StateRetained, ""
}

var Two = netip.MustParseAddr("10.0.0.2")

func PodOf(name string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name}}
}

// Replace replaces the lease of the same name.
func (r *Node) Replace(l *v1alpha1.IPLease) {
	r.API.Drop(l)
	r.API.Put(l.DeepCopy())
}

// HoldsWhatTheJournalSays judges that API and kernel hold what the journal says of one attachment.
func (r *Node) HoldsWhatTheJournalSays(request agentapi.AddRequest) {
	r.T.Helper()
	e, ok := r.Attachments.Get(request.ContainerID, request.Interface)
	check.Must(r.T, ok && e.Phase == attachment.Bound, "journal %+v", e)
	for _, address := range e.Addresses {
		l := r.Lease(address.LeaseName, v1alpha1.StateBound)
		installed, _, _ := r.Kernel.Lease(bpf.Key{Segment: uint32(e.ParentIndex), Addr: address.Addr})
		if string(l.UID) != address.LeaseUID || !release.Holds(l, ThisNode, &e) || installed.Token != address.Token || installed.Slot != e.Slot {
			r.T.Errorf("lease %s of %+v, journal %+v, kernel %+v", l.UID, l.Spec.Holder, address, installed)
		}
	}
}

func Annotated(key, value string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		if p.Annotations == nil {
			p.Annotations = map[string]string{}
		}
		p.Annotations[key] = value
	}
}

// Told returns the events since its last call.
func (r *Node) Told() []string {
	var all []string
	for {
		select {
		case e := <-r.Recorder.Events:
			all = append(all, e)
		default:
			return all
		}
	}
}

func TryAdd(r *Node, request agentapi.AddRequest) error {
	_, err := r.Add(r.T.Context(), request)
	if err != nil {
		// The plugin that called takes its interface away again.
		r.Kernel.Unplug(request.NetNS, request.Interface)
	}
	return err
}

// WantNothing expects that a refused ADD has left nothing behind.
func (r *Node) WantNothing() {
	r.T.Helper()
	r.Want()
	all := r.Attachments.All()
	check.That(r.T, len(all) == 0, "the journal holds %v", all)
	for slot, device := range r.Kernel.Guards {
		check.That(r.T, r.Kernel.IsDead(slot) || r.Kernel.gone[device], "slot %d still guards %s", slot, device)
	}
	check.That(r.T, len(r.Kernel.Enforced) == 0, "the kernel holds %v", r.Kernel.Enforced)
}
