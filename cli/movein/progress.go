// SPDX-License-Identifier: Apache-2.0

package movein

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/internal/poolset"
)

// State is what a definition is in a move.
type State string

const (
	// Before: the definition is as before the move.
	Before State = "as before the move"
	// Frozen: the other IPAM gives no address of its ranges.
	Frozen State = "frozen"
	// Switched: Fenceline serves it.
	Switched State = "switched to Fenceline"
	// Returning: as before the move, with other exclusions.
	Returning State = "as before the move, with other exclusions"
	// Edited: none of these. The move does not overwrite it.
	Edited State = "edited by others"
)

// StateOf returns the state of a definition. It compares the values, since programs write the text of JSON anew.
func (c Change) StateOf(config string) State {
	switch {
	case v1alpha1.SameConfig(config, c.Before):
		return Before
	case v1alpha1.SameConfig(config, c.Switched):
		return Switched
	case v1alpha1.SameConfig(config, c.Frozen):
		return Frozen
	case v1alpha1.SameConfig(bare(c.from, config), bare(c.from, c.Before)):
		return Returning
	}
	return Edited
}

// Returned returns the configuration with which a definition goes back to the other IPAM: as before the move, without
// the addresses that Fenceline has given. Without such an address it is the same text. With one, a definition that is
// divided between the nodes stays frozen: it excludes nothing, and whereabouts would give the slice of a node that has
// gone to another node, whose new records have no allocation of the move.
func (c Change) Returned(given []netip.Addr) (string, error) {
	switch {
	case len(given) == 0 || c.from == v1alpha1.MoveSpiderpool: // a SpiderReservedIP leaves them out
		return c.Before, nil
	case c.isSliced:
		return c.Frozen, nil
	}
	text, err := without(c.from, c.Before, false, given)
	if err != nil {
		return "", err
	}
	n, err := Facts{From: c.from}.read(Definition{Namespace: c.Namespace, Name: c.Name, Config: c.Before})
	if err != nil {
		return "", err
	}
	return text, n.givesRest(text, poolset.Of(given...))
}

// Before returns the facts as they were before a move: with its definitions as they were, and without its pools.
func (f Facts) Before(m *v1alpha1.Move) Facts {
	f.Moving, f.MovingPools = m.Spec.Definitions, m.Spec.Pools
	f.Definitions = slices.Clone(f.Definitions)
	for _, d := range m.Spec.Definitions {
		if i := slices.IndexFunc(f.Definitions, func(o Definition) bool { return o.Namespace == d.Namespace && o.Name == d.Name }); i >= 0 {
			f.Definitions[i].Config = d.Config
		}
	}
	f.Pools = slices.DeleteFunc(slices.Clone(f.Pools), func(p v1alpha1.IPPool) bool { return slices.Contains(m.Spec.Pools, p.Name) })
	return f
}

// isMoving reports whether a definition is one of a move that has begun.
func (f Facts) isMoving(d Definition) bool {
	return slices.ContainsFunc(f.Moving, func(o v1alpha1.MoveDefinition) bool { return o.Namespace == d.Namespace && o.Name == d.Name })
}

// Definitions are those of a plan, as they were before the move.
func (p Plan) Definitions() (all []v1alpha1.MoveDefinition) {
	for _, c := range p.Changes {
		all = append(all, v1alpha1.MoveDefinition{Namespace: c.Namespace, Name: c.Name, Config: c.Before})
	}
	return all
}

// Missed returns the definitions of a move that a later plan lacks, and those of the plan that the move does not
// have yet.
func (p Plan) Missed(m *v1alpha1.Move) (lacks, more []v1alpha1.MoveDefinition) {
	in := func(all []v1alpha1.MoveDefinition) func(v1alpha1.MoveDefinition) bool {
		return func(d v1alpha1.MoveDefinition) bool {
			return slices.ContainsFunc(all, func(o v1alpha1.MoveDefinition) bool { return o.Namespace == d.Namespace && o.Name == d.Name })
		}
	}
	planned := p.Definitions()
	return slices.DeleteFunc(slices.Clone(m.Spec.Definitions), in(planned)), slices.DeleteFunc(planned, in(m.Spec.Definitions))
}

// MoveName returns the name of the Move of a network: "shop/vlan100" is "shop.vlan100".
func MoveName(network string) string { return strings.Replace(network, "/", ".", 1) }

// Added returns the records of a later reading that a move does not have yet: of another address, or of another pod that
// the other IPAM has given an address since. An address that Fenceline has given to a pod is no record of that IPAM.
func Added(m *v1alpha1.Move, now []v1alpha1.MoveRecord, leases []v1alpha1.IPLease) (added []v1alpha1.MoveRecord) {
	pods, given := map[string]string{}, map[string]bool{}
	for _, r := range m.Spec.Records {
		pods[r.Address] = r.PodUID
	}
	for i := range leases {
		given[leases[i].Spec.Address] = leases[i].Spec.Holder != nil
	}
	for _, r := range now {
		pod, known := pods[r.Address]
		isAnother := r.PodUID != "" && r.PodUID != pod && !strings.HasPrefix(r.Hold, noRecord)
		if !given[r.Address] && (!known || isAnother) {
			added = append(added, r)
		}
	}
	return added
}

// With returns records with added ones in place of those with the same addresses.
func With(records, added []v1alpha1.MoveRecord) []v1alpha1.MoveRecord {
	return append(slices.DeleteFunc(slices.Clone(records), func(r v1alpha1.MoveRecord) bool {
		return slices.ContainsFunc(added, func(a v1alpha1.MoveRecord) bool { return a.Address == r.Address })
	}), added...)
}

// Living returns the plan without the records whose pods do not exist.
func (p Plan) Living() Plan {
	p.Records = slices.DeleteFunc(slices.Clone(p.Records), func(r v1alpha1.MoveRecord) bool { return r.PodUID == "" })
	return p
}

// Held counts the leases with which a move holds addresses.
func Held(m *v1alpha1.Move, leases []v1alpha1.IPLease) (held int) {
	for i := range leases {
		if leases[i].Labels[v1alpha1.LabelMove] == m.Name && leases[i].Spec.State == v1alpha1.StateQuarantined {
			held++
		}
	}
	return held
}

// Unrecorded returns the records of a move. Those that the other IPAM has lost are marked, so that their pods are not
// given back: it might give their addresses to others. A file of host-local that is read again, since the agent of its
// node is back, ends the mark.
func (p Plan) Unrecorded(records []v1alpha1.MoveRecord) []v1alpha1.MoveRecord {
	has := map[string]bool{}
	for _, r := range p.Records {
		has[r.Address] = !strings.HasPrefix(r.Hold, noRecord)
	}
	records = slices.Clone(records)
	for i := range records {
		r := &records[i]
		isRecorded, isFile := has[r.Address], p.sandboxes[sandbox{r.Address, r.Node, r.ContainerID}]
		if p.sandboxes != nil {
			isRecorded = isFile
		}
		switch {
		case !isRecorded && r.Hold == "":
			r.Hold = noRecord
		case isFile && r.Hold == noRecord:
			r.Hold = ""
		}
	}
	return records
}

// Split divides the leases in the pools of a move: those that go back, and those that are given to others than the
// sandboxes of its records.
func Split(m *v1alpha1.Move, leases []v1alpha1.IPLease) (goBack, given []v1alpha1.IPLease) {
	of := map[string]*v1alpha1.MoveRecord{}
	for i := range m.Spec.Records {
		of[m.Spec.Records[i].Address] = &m.Spec.Records[i]
	}
	for _, l := range leases {
		r := of[l.Spec.Address]
		if l.IsHoldOf(m.Name) || l.Spec.State == v1alpha1.StateBound && r != nil && r.GoesBack(l.Spec.Holder) {
			goBack = append(goBack, l)
		} else {
			given = append(given, l)
		}
	}
	return goBack, given
}

// Contested returns what keeps an address of Fenceline from the other IPAM, as clauses: a record of another pod. By such
// a record whereabouts and Spiderpool give the address to that pod again, and look at what they exclude only for others.
func (p Plan) Contested(leases []v1alpha1.IPLease) (all []string) {
	of := map[string]v1alpha1.MoveRecord{}
	for _, r := range p.Records {
		if r.Pod != "" && r.Hold != noRecord {
			of[r.Address] = r
		}
	}
	for i := range leases {
		s := &leases[i].Spec
		r, known := of[s.Address]
		isIts := s.Holder != nil && s.Holder.Namespace == r.Namespace && s.Holder.Pod == r.Pod ||
			s.Holder == nil && s.Previous != nil && s.Previous.PodUID != "" && s.Previous.PodUID == r.PodUID
		isHeld := leases[i].IsHold() || s.Reason == v1alpha1.ReasonMovingIn
		if known && !isIts && !isHeld && s.State != v1alpha1.StateRetained {
			all = append(all, fmt.Sprintf("%s has a lease of Fenceline, and the other IPAM would give it to pod %s/%s again, although it is excluded there. End that pod, or delete that record, and repeat the command", s.Address, r.Namespace, r.Pod))
		}
	}
	return all
}

// AddressesOf returns the addresses of leases, in order.
func AddressesOf(leases []v1alpha1.IPLease) (all []netip.Addr) {
	for i := range leases {
		all = append(all, leases[i].Spec.Addr())
	}
	slices.SortFunc(all, netip.Addr.Compare)
	return all
}
