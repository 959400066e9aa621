// SPDX-License-Identifier: Apache-2.0

package ipam

import (
	"fmt"
	"slices"

	"k8s.io/utils/ptr"

	"github.com/fenceline/fenceline/apis/v1alpha1"
)

// Parent is the parent of an interface, as pools may name it. Without Name, it is not known.
type Parent struct {
	Name string
	// Names are all its names, also the alternative ones, and those of the bond that it is a port of,
	// or of its ports: all of them have one segment.
	Names []string
	// VLAN is the ID of a VLAN subinterface, and 0 otherwise. Below are the Names of the interface
	// below it.
	VLAN  int
	Below []string
}

// Carries reports whether the parent is one that the pool names. With spec.vlan, a pool names the VLAN
// subinterface or the interface below it. A pool that names none, and a parent that is not known, fit.
func (p Parent) Carries(spec *v1alpha1.IPPoolSpec) bool {
	if len(spec.Parents) == 0 || p.Name == "" {
		return true
	}
	names := p.Names
	if vlan := int(ptr.Deref(spec.Vlan, 0)); vlan != 0 {
		if vlan != p.VLAN {
			return false
		}
		names = slices.Concat(p.Names, p.Below)
	}
	return slices.ContainsFunc(spec.Parents, func(name string) bool { return slices.Contains(names, name) })
}

// Missed is a clause about a pool that does not name the parent, with the remedies.
func (p Parent) Missed(spec *v1alpha1.IPPoolSpec) string {
	of, is, fields := fmt.Sprint(spec.Parents), p.Name, "name "+p.Name+" in spec.parents"
	if vlan := ptr.Deref(spec.Vlan, 0); vlan != 0 || p.VLAN != 0 {
		of += fmt.Sprintf(" with vlan %d", vlan)
		is += fmt.Sprintf(" (VLAN %d)", p.VLAN)
		fields = "correct spec.parents and spec.vlan"
	}
	return fmt.Sprintf("its parents %s do not include %s: put the pod on one of them (master of the network configuration), or %s", of, is, fields)
}
