// SPDX-License-Identifier: Apache-2.0

// Package subnet makes a pool of an IPSubnet for each application that asks for one, resizes it with the
// replicas, and deletes it with the application. MakePlan decides; the Reconciler reads and writes.
package subnet

import (
	"cmp"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/internal/demand"
	"github.com/fenceline/fenceline/internal/owner"
	"github.com/fenceline/fenceline/internal/poolset"
)

// Facts is the input of MakePlan.
type Facts struct {
	Subnets []v1alpha1.IPSubnet
	// Namespaces are the labels of all namespaces.
	Namespaces map[string]map[string]string
	// Applications are all applications that ask for addresses of IPSubnets.
	Applications []Application
	// Unsure is true for an application whose existence is not known. Its pools stay.
	Unsure map[Identity]bool
	// Pools are all pools of the cluster.
	Pools []v1alpha1.IPPool
	// Leased are the addresses with a lease, by the pool of the lease. A Warm lease counts as well.
	Leased map[string]poolset.Set
	// Reserved are the addresses that no pool hands out.
	Reserved poolset.Set
	// Settled are the withdrawn addresses of a pool for which every ADD that did not know of the
	// withdrawal has ended, and which have no lease.
	Settled map[string]poolset.Set
	// Expired are the pools whose entry in status.carving is so old that its writer has ended.
	Expired map[string]bool
}

// Identity identifies an application. An application that is created again has the identity of the
// earlier one.
type Identity struct{ Group, Kind, Namespace, Name string }

// IdentityOf returns the identity of an owner.
func IdentityOf(r owner.Ref) Identity { return Identity{r.Group, r.Kind, r.Namespace, r.Name} }

// Application is an application that asks for addresses of IPSubnets.
type Application struct {
	Ref     owner.Ref
	Created metav1.Time
	Demand  demand.Demand
	// Problem is the reason for which the demand cannot be served, or nil.
	Problem error
	// Replicas is the number of pods that the application wants. Uncounted is the reason why it is
	// unknown, or nil. An Uncounted application needs a fixed number of addresses.
	Replicas  int
	Uncounted error
}

// slot is the place of one pool: an application, an interface and a family.
type slot struct {
	app   *Application
	iface string
	ipv6  bool
	// names are the IPSubnets, in order of preference.
	names []string
}

// place identifies a slot.
type place struct {
	Identity
	iface string
	ipv6  bool
}

func (s slot) place() place { return place{IdentityOf(s.app.Ref), s.iface, s.ipv6} }

// want returns the number of addresses that the pool of a slot should have. A pool that is kept for the
// next application of the name has one even without replicas: no pool is empty.
func (s slot) want() uint64 {
	n := s.app.Demand.Size.Of(s.app.Replicas)
	if !s.app.Demand.Reclaim {
		n = max(1, n)
	}
	return uint64(n)
}

func (s slot) application() v1alpha1.Application {
	a := s.app.Ref.Application()
	a.Interface = s.iface
	return a
}

// slots returns the slots of all applications, the oldest application first.
func slots(applications []Application) []slot {
	var all []slot
	for i := range applications {
		app := &applications[i]
		for _, iface := range app.Demand.Interfaces {
			for _, ipv6 := range []bool{false, true} {
				if names := iface.Of(ipv6); len(names) > 0 {
					all = append(all, slot{app, iface.Name, ipv6, names})
				}
			}
		}
	}
	slices.SortStableFunc(all, func(a, b slot) int {
		return cmp.Or(a.app.Created.Compare(b.app.Created.Time), cmp.Compare(a.app.Ref.String(), b.app.Ref.String()))
	})
	return all
}

// identityOf returns the identity of the application of a pool.
func identityOf(a *v1alpha1.Application) Identity {
	return Identity{a.APIGroup, a.Kind, a.Namespace, a.Name}
}
