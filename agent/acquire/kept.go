// SPDX-License-Identifier: Apache-2.0

package acquire

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/fenceline/fenceline/agent/ipam"
	"github.com/fenceline/fenceline/agent/lease"
	"github.com/fenceline/fenceline/agent/refusal"
	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/cni/agentapi"
	"github.com/fenceline/fenceline/internal/owner"
	"github.com/fenceline/fenceline/internal/poolset"
)

// FixedAddressOf returns the request of a pod's annotations for an address that stays with its
// name. It refuses a pod whose name does not come back: no pod would take the kept address over.
func FixedAddressOf(pod *corev1.Pod) (v1alpha1.FixedAddress, error) {
	asked, err := v1alpha1.ParseFixedAddress(pod.Annotations)
	if err != nil {
		return v1alpha1.FixedAddress{}, refusal.New(refusal.InvalidPod, "pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	who := lease.HolderOf(pod, agentapi.Attachment{}, "")
	if asked.Retention == nil || owner.KeepsName(&who) {
		return asked, nil
	}
	whose := "no controller creates it again"
	if ref, ok := owner.Of(pod); ok {
		whose = fmt.Sprintf("its %s %s makes pods of new names", ref.Kind, ref.Name)
	}
	return v1alpha1.FixedAddress{}, refusal.New(refusal.InvalidPod,
		"pod %s/%s asks for a fixed address (annotation %s). Such an address is kept for the name of the pod, but %s: use a StatefulSet or a virtual machine, or remove the annotation",
		pod.Namespace, pod.Name, asked.Key, whose)
}

// Choose returns the pools that may serve an interface, and decides about its leases: those of the
// interface in any state, except the Warm ones. Of the Request, it reads Holder and Asked.
func (a *Acquirer) Choose(of Request, leases []v1alpha1.IPLease, r ipam.Request, pools []v1alpha1.IPPool, reserved poolset.Set) (ipam.Choice, Decision, error) {
	k, err := a.keeping(of, leases, r, pools)
	if err != nil {
		return ipam.Choice{}, Decision{}, err
	}
	for {
		d, err := decide(k)
		if err != nil {
			return ipam.Choice{}, Decision{}, err
		}
		r.Kept = d.addresses()
		choice, err := ipam.ChoosePools(r, pools, reserved)
		if err != nil {
			return ipam.Choice{}, Decision{}, err
		}
		// The routes of the pod may have ruled out a pool. Each turn rejects one lease more.
		if !k.reject(d, choice) {
			return choice, d, nil
		}
	}
}

// keeping returns the input of decide.
func (a *Acquirer) keeping(of Request, leases []v1alpha1.IPLease, r ipam.Request, pools []v1alpha1.IPPool) (keeping, error) {
	k := keeping{
		pod: of.Holder.Namespace + "/" + of.Holder.Pod, iface: r.Describe(), node: a.Self.Name, uid: of.Holder.PodUID,
		asked: of.Asked, byDefault: a.StatefulSet, keepsName: owner.KeepsName(&of.Holder), requested: r.IPs,
	}
	r.Kept = nil
	for j := range leases {
		r.Kept = append(r.Kept, ipam.Kept{Addr: leases[j].Spec.Addr(), Pool: leases[j].Spec.Pool, Parent: leases[j].Spec.Parent})
	}
	standings, err := ipam.Standings(r, pools)
	if err != nil {
		return keeping{}, err
	}
	if owner.IsTarget(of.Pod) {
		for j := range standings {
			standings[j].Unwished = "" // the guest still runs with it
		}
	}
	for j := range leases {
		l := keptCandidate{IPLease: &leases[j], standing: standings[j]}
		if at := slices.IndexFunc(pools, func(p v1alpha1.IPPool) bool { return p.Name == l.Spec.Pool }); at >= 0 {
			l.pool = &pools[at]
		}
		k.leases = append(k.leases, l)
	}
	return k, nil
}

// keeping is the input of decide: the leases of one interface, and the settings about them.
type keeping struct {
	// pod ("namespace/name"), iface ("pod namespace/name interface eth0") and node are for people.
	pod, iface, node string
	uid              string
	// asked is the request of the pod's annotations, and byDefault the chart's value.
	asked     v1alpha1.FixedAddress
	byDefault v1alpha1.StatefulSetMode
	// keepsName is false for a pod whose name does not come back. All its leases are its own.
	keepsName bool
	// requested are the addresses that CNI or Multus requests.
	requested []netip.Addr
	leases    []keptCandidate
}

// keptCandidate is a lease that may be kept.
type keptCandidate struct {
	*v1alpha1.IPLease
	// pool is nil if it does not exist.
	pool     *v1alpha1.IPPool
	standing ipam.Standing
}

// Decision is the decision about the leases of a keeping.
type Decision struct {
	// reused are the leases to take over, at most one of each family.
	reused []*v1alpha1.IPLease
	// left are the leases that the pod leaves for another address. ADD does not touch them: DEL,
	// the verifier or the controller ends them (R1, R6).
	left []Left
}

// Left is a lease that a pod has left, with the reason as a clause.
type Left struct {
	*v1alpha1.IPLease
	Why string
}

// fate is the decision about one lease.
type fate int

const (
	// ignore: the lease is not kept for the interface.
	ignore fate = iota
	// reuse: the interface gets the address, as soon as that is safe.
	reuse
	// leave: the interface gets another address.
	leave
	// refuse: without this address, the interface gets none.
	refuse
)

// decide decides which addresses the interface gets again, which ones it leaves, and whether it is
// refused. It has all rules about the addresses that stay with a name. Its table test is the
// specification.
func decide(k keeping) (Decision, error) {
	var d Decision
	var refused error
	for _, ipv6 := range []bool{false, true} {
		var best *keptCandidate
		var strict error
		for i := range k.leases {
			l := &k.leases[i]
			if l.Spec.Addr().Is6() != ipv6 {
				continue
			}
			switch what, why := k.fateOf(l); {
			case what == reuse && (best == nil || k.prefer(l, best) < 0):
				best = l
			case what == leave:
				d.left = append(d.left, Left{l.IPLease, why})
			case what == refuse:
				strict = refusal.New(refusal.NoPool, "%s is kept for pod %s, but its %s; delete lease %s to release the address",
					l.Spec.Address, k.pod, why, l.Name)
			}
		}
		switch {
		case best == nil:
			refused = cmp.Or(refused, strict)
		case k.requestsAnother(best):
			refused = cmp.Or(refused, k.another(best))
		default:
			d.reused = append(d.reused, best.IPLease)
		}
	}
	return d, refused
}

// fateOf decides about one lease as if it were the only one.
func (k keeping) fateOf(l *keptCandidate) (what fate, why string) {
	own := l.Spec.Holder.PodUID == k.uid
	mode, by := k.asked.Mode(l.pool, k.byDefault)
	if !k.keepsName {
		mode = v1alpha1.StatefulSetPrefer
	}
	recorded := l.Spec.Retention
	isKept := own || mode != v1alpha1.StatefulSetOff && (recorded == nil || recorded.Policy != v1alpha1.RetainNone)
	rejected := l.standing.Rejected
	isReusable := l.Spec.State == v1alpha1.StateRetained && l.Spec.Reason != v1alpha1.ReasonSandboxEnded
	switch {
	case l.standing.Unwished != "":
		return leave, l.standing.Unwished
	case l.standing.Left != "":
		return leave, fmt.Sprintf("pool %s is no longer one of the pools of %s", l.Spec.Pool, l.standing.Left)
	case !isKept && isReusable && rejected == nil && !k.requestsAnother(l):
		// It was kept until now, and no other pod can have it.
		return reuse, ""
	case !isKept && mode == v1alpha1.StatefulSetOff:
		return leave, by
	case !isKept:
		return ignore, ""
	case rejected == nil:
		return reuse, ""
	}
	why = fmt.Sprintf("pool %s does not serve the pod on node %s: %s", l.Spec.Pool, k.node, rejected.Detail)
	if mode == v1alpha1.StatefulSetRequire || rejected.Reason == ipam.Invalid {
		return refuse, why
	}
	return leave, why
}

// prefer orders two leases of a family that the interface could have: first the one that it can
// have sooner, then the one whose pool is named now, then the newer one.
func (k keeping) prefer(a, b *keptCandidate) int {
	return cmp.Or(
		cmp.Compare(k.distance(a), k.distance(b)),
		cmp.Compare(btoi(b.standing.Named), btoi(a.standing.Named)),
		b.Spec.Since.Compare(a.Spec.Since.Time),
	)
}

// distance is the number of steps until the interface can have an address: 0 for a proven one, 1
// for a verification, 2 for the controller's decision and a verification.
func (k keeping) distance(l *keptCandidate) int {
	switch {
	case l.Spec.State == v1alpha1.StateQuarantined:
		return 1
	case l.Spec.State == v1alpha1.StateBound && l.Spec.Holder.PodUID != k.uid:
		return 2
	}
	return 0
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

// requestsAnother reports whether CNI or Multus requests another address of the lease's family.
func (k keeping) requestsAnother(l *keptCandidate) bool {
	addr := l.Spec.Addr()
	return slices.ContainsFunc(k.requested, func(r netip.Addr) bool {
		return r.Unmap().Is6() == addr.Is6() && r.Unmap() != addr
	})
}

func (k keeping) another(l *keptCandidate) error {
	i := slices.IndexFunc(k.requested, func(r netip.Addr) bool { return r.Unmap().Is6() == l.Spec.Addr().Is6() })
	return &ipam.RequestedError{Addr: k.requested[i].Unmap(), Interface: k.iface,
		Problem: fmt.Sprintf("%s is kept for the pod; delete lease %s to release it", l.Spec.Address, l.Name)}
}

// reject records why a choice ruled out pools of leases to take over. It reports whether it did.
func (k keeping) reject(d Decision, choice ipam.Choice) bool {
	found := false
	for _, f := range choice.Families {
		l, _ := d.Of(f.IPv6)
		if l == nil || PoolOf(f, l) != nil {
			continue
		}
		for i := range k.leases {
			at := slices.IndexFunc(f.Rejected, func(r ipam.Rejection) bool { return r.Pool == l.Spec.Pool })
			if k.leases[i].Name == l.Name && at >= 0 {
				k.leases[i].standing.Rejected, found = &f.Rejected[at], true
			}
		}
	}
	return found
}

// addresses returns the addresses to take over.
func (d Decision) addresses() []ipam.Kept {
	var all []ipam.Kept
	for _, l := range d.reused {
		all = append(all, ipam.Kept{Addr: l.Spec.Addr(), Pool: l.Spec.Pool})
	}
	return all
}

// Of returns the lease of a family to take over, or nil, and the leases of the family that are left.
func (d Decision) Of(ipv6 bool) (reused *v1alpha1.IPLease, left []Left) {
	for _, l := range d.reused {
		if l.Spec.Addr().Is6() == ipv6 {
			reused = l
		}
	}
	for _, l := range d.left {
		if l.Spec.Addr().Is6() == ipv6 {
			left = append(left, l)
		}
	}
	return reused, left
}

// PoolOf returns the pool of a lease among those that may serve a family, or nil.
func PoolOf(f ipam.Family, l *v1alpha1.IPLease) *v1alpha1.IPPool {
	for _, c := range f.Pools {
		if c.Pool.Name == l.Spec.Pool {
			return c.Pool
		}
	}
	return nil
}
