// SPDX-License-Identifier: Apache-2.0

package movein

import (
	"encoding/json"
	"net/netip"
	"reflect"
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
	case Same(config, c.Before):
		return Before
	case Same(config, c.Frozen):
		return Frozen
	case Same(config, c.Switched):
		return Switched
	case Same(bare(c.from, config), bare(c.from, c.Before)):
		return Returning
	}
	return Edited
}

// Same reports whether two configurations are equal as values.
func Same(a, b string) bool {
	var x, y any
	return json.Unmarshal([]byte(a), &x) == nil && json.Unmarshal([]byte(b), &y) == nil && reflect.DeepEqual(x, y)
}

// Returned returns the configuration with which a definition goes back to the other IPAM: as before the move, without
// the addresses that Fenceline has given. Without such an address it is the same text.
func (c Change) Returned(given []netip.Addr) (string, error) {
	if len(given) == 0 {
		return c.Before, nil
	}
	text, err := without(c.from, c.Before, false, given)
	if err != nil {
		return "", err
	}
	n, err := read(c.from, Definition{Namespace: c.Namespace, Name: c.Name, Config: c.Before})
	if err != nil {
		return "", err
	}
	return text, n.givesRest(text, poolset.Of(given...))
}

// Before returns the facts as they were before a move: with its definitions as they were, and without its pools.
func (f Facts) Before(m *v1alpha1.Move) Facts {
	f.Moving = m.Spec.Definitions
	f.Definitions = slices.Clone(f.Definitions)
	for _, d := range m.Spec.Definitions {
		if i := slices.IndexFunc(f.Definitions, func(o Definition) bool { return o.Namespace == d.Namespace && o.Name == d.Name }); i >= 0 {
			f.Definitions[i].Config = d.Config
		}
	}
	f.Pools = slices.DeleteFunc(slices.Clone(f.Pools), func(p v1alpha1.IPPool) bool { return slices.Contains(m.Spec.Pools, p.Name) })
	return f
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

// Added returns the records of a later reading whose addresses a move does not have yet. An address that Fenceline has
// given to a pod is no record of the other IPAM.
func Added(m *v1alpha1.Move, now []v1alpha1.MoveRecord, leases []v1alpha1.IPLease) (added []v1alpha1.MoveRecord) {
	known := map[string]bool{}
	for _, r := range m.Spec.Records {
		known[r.Address] = true
	}
	for i := range leases {
		if leases[i].Spec.Holder != nil {
			known[leases[i].Spec.Address] = true
		}
	}
	for _, r := range now {
		if !known[r.Address] {
			added = append(added, r)
		}
	}
	return added
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
		has[r.Address] = r.Hold != noRecord
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

// AddressesOf returns the addresses of leases, in order.
func AddressesOf(leases []v1alpha1.IPLease) (all []netip.Addr) {
	for i := range leases {
		all = append(all, leases[i].Spec.Addr())
	}
	slices.SortFunc(all, netip.Addr.Compare)
	return all
}
