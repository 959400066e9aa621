// SPDX-License-Identifier: Apache-2.0

// Package subinterface makes the VLAN subinterfaces that networks name, keeps them, and removes those
// that it made once nothing needs them.
package subinterface

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// mostID is the greatest VLAN ID, and mostName the greatest length of an interface's name.
const mostID, mostName = 4094, 15

// Network is a network as a pool or a network configuration names it. It needs an interface of the
// VLAN on each parent. Without VLAN, the name of a parent contains the VLAN, such as eth1.100.
type Network struct {
	// Of is the pool or the configuration, for people.
	Of      string
	Parents []string
	VLAN    int
}

// Wanted is a subinterface that a network needs.
type Wanted struct {
	Name, Parent string
	ID           int
	Of           string
	// AnyName: the network finds the VLAN by its ID, so another name serves too.
	AnyName bool
}

// Link is an interface of the node.
type Link struct {
	Name  string
	Index int
	// AltNames are its alternative names.
	AltNames []string
	// VLAN is the ID if it is an 802.1Q subinterface, and Lower the index of the interface of the node
	// below it. Both are 0 otherwise.
	VLAN, Lower int
	Up          bool
	// Ours: Fenceline made it.
	Ours bool
	// Used: it has an address, or another interface sends through it.
	Used bool
	// Filters: it is a bridge that filters VLANs. Master is the index of the interface of which this one is a port, or 0.
	Filters bool
	Master  int
	// Switch: it is an interface of Open vSwitch itself. Switched: it is a port there, and has no VFs, whose VLANs are
	// subinterfaces of it.
	Switch, Switched bool
	// Untagged has the VLANs that such a bridge itself or its port is in, and whether they have no tag there.
	Untagged map[int]bool
}

// Plan has the changes of the node. Refused has, by name, why a subinterface cannot be made.
type Plan struct {
	Make    []Wanted
	SetUp   []Link
	Remove  []Link
	Refused map[string]error
}

// Needs returns the subinterfaces that networks need on parents on which the agent may make some.
// refused has the reasons for names that no interface can have.
func Needs(networks []Network, allowed []string) (wanted []Wanted, refused map[string]error) {
	refused = map[string]error{}
	for _, n := range networks {
		for _, name := range n.Parents {
			w, ok := need(n, name, allowed)
			if !ok {
				continue
			}
			if len(w.Name) > mostName {
				refused[w.Name] = fmt.Errorf("make %s for %s: a name of an interface has at most %d characters; give %s a shorter name, or make VLAN %d of it yourself", w.Name, w.Of, mostName, w.Parent, w.ID)
				continue
			}
			if i := slices.IndexFunc(wanted, func(o Wanted) bool { return o.Name == w.Name }); i >= 0 {
				wanted[i].AnyName = wanted[i].AnyName && w.AnyName // the stricter of both counts
				continue
			}
			wanted = append(wanted, w)
		}
	}
	return wanted, refused
}

// called reports whether the kernel finds the interface by a name.
func (l Link) called(name string) bool { return l.Name == name || slices.Contains(l.AltNames, name) }

// known returns the networks with the kernel's names of interfaces, and allowed with all names of its
// interfaces.
func known(networks []Network, allowed []string, links []Link) ([]Network, []string) {
	for i, n := range networks {
		networks[i].Parents = slices.Clone(n.Parents)
		for j, name := range n.Parents {
			if l, exists := find(links, func(l Link) bool { return l.called(name) }); exists {
				networks[i].Parents[j] = l.Name
			}
		}
	}
	for _, l := range links {
		if slices.ContainsFunc(allowed, l.called) {
			allowed = slices.Concat(allowed, l.AltNames, []string{l.Name})
		}
	}
	return networks, allowed
}

func need(n Network, name string, allowed []string) (Wanted, bool) {
	if n.VLAN != 0 && slices.Contains(allowed, name) {
		return Wanted{Name: fmt.Sprintf("%s.%d", name, n.VLAN), Parent: name, ID: n.VLAN, Of: n.Of, AnyName: true}, true
	}
	i := strings.LastIndexByte(name, '.')
	if i < 0 || !slices.Contains(allowed, name[:i]) {
		return Wanted{}, false
	}
	id, err := strconv.Atoi(name[i+1:])
	if err != nil || id < 1 || id > mostID || strconv.Itoa(id) != name[i+1:] || n.VLAN != 0 && n.VLAN != id {
		return Wanted{}, false
	}
	return Wanted{Name: name, Parent: name[:i], ID: id, Of: n.Of}, true
}

// MakePlan compares the wanted subinterfaces with the interfaces of the node. It makes none on a
// missing parent. It removes an unwanted subinterface that Fenceline made, unless it is used.
func MakePlan(wanted []Wanted, links []Link) Plan {
	p := Plan{Refused: map[string]error{}}
	kept := map[int]bool{}
	for _, w := range wanted {
		parent, exists := find(links, func(l Link) bool { return l.called(w.Parent) })
		named, isNamed := find(links, func(l Link) bool { return l.called(w.Name) })
		other, isOther := find(links, func(l Link) bool { return exists && l.VLAN == w.ID && l.Lower == parent.Index })
		switch {
		case isOther && (w.AnyName || other.Name == w.Name):
			kept[other.Index] = true
			if other.Ours && !other.Up {
				p.SetUp = append(p.SetUp, other)
			}
		case isNamed:
			kept[named.Index] = true
			if exists || !named.Ours { // without its parent our own is no fault: a renamed parent may come back
				p.Refused[w.Name] = fmt.Errorf("make %s for %s: an interface of this name exists and %s, not VLAN %d of %s; remove or rename it, or name another VLAN", w.Name, w.Of, what(named, links), w.ID, w.Parent)
			}
		case isOther:
			p.Refused[w.Name] = fmt.Errorf("make %s for %s: VLAN %d of %s is interface %s already; name this one, or rename it", w.Name, w.Of, w.ID, w.Parent, other.Name)
		case exists && parent.Switched:
			onSwitch := func(o Wanted) bool {
				_, ok := find(links, func(l Link) bool { return l.Switch && l.called(o.Parent) })
				return ok && o.ID == w.ID
			}
			if !slices.ContainsFunc(wanted, onSwitch) { // as for a bridge below
				p.Refused[w.Name] = fmt.Errorf("make %s for %s: %s is a port of Open vSwitch, which would lose VLAN %d; name its bridge in place of its port", w.Name, w.Of, w.Parent, w.ID)
			}
		case exists && parent.Filters && parent.Untagged[w.ID]: // Make would give it a tag
			p.Refused[w.Name] = fmt.Errorf("make %s for %s: VLAN %d has no tag on bridge %s itself, which may carry the node's own address; use another VLAN, or make this one tagged there", w.Name, w.Of, w.ID, w.Parent)
		case exists:
			// It would take the frames of the VLAN from the bridge (vlan_do_receive in the kernel).
			bridge, filtered := find(links, func(l Link) bool { return l.Index == parent.Master && l.Filters })
			onBridge := func(o Wanted) bool { return o.ID == w.ID && bridge.called(o.Parent) }
			_, carried := parent.Untagged[w.ID]
			switch {
			case filtered && slices.ContainsFunc(wanted, onBridge):
			case !filtered || !carried:
				p.Make = append(p.Make, w)
			default:
				p.Refused[w.Name] = fmt.Errorf("make %s for %s: %s is a port of bridge %s, which filters VLANs and would lose VLAN %d; name the bridge in place of its port", w.Name, w.Of, w.Parent, bridge.Name, w.ID)
			}
		}
	}
	for _, l := range links {
		if l.Ours && !l.Used && !kept[l.Index] {
			p.Remove = append(p.Remove, l)
		}
	}
	return p
}

// what describes an interface.
func what(l Link, links []Link) string {
	lower, ok := find(links, func(o Link) bool { return o.Index == l.Lower })
	switch {
	case l.VLAN == 0:
		return "is no VLAN subinterface"
	case !ok:
		return fmt.Sprintf("is VLAN %d of an interface elsewhere", l.VLAN)
	}
	return fmt.Sprintf("is VLAN %d of %s", l.VLAN, lower.Name)
}

func find(links []Link, is func(Link) bool) (Link, bool) {
	i := slices.IndexFunc(links, is)
	if i < 0 {
		return Link{}, false
	}
	return links[i], true
}
