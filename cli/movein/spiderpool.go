// SPDX-License-Identifier: Apache-2.0

package movein

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"path"
	"slices"
	"strings"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/internal/poolset"
)

// SpiderObject is an object of spiderpool.spidernet.io/v2beta1.
type SpiderObject struct {
	Metadata struct {
		Namespace, Name string
		Labels          map[string]string
	}
	Spec, Status json.RawMessage
}

// Spiderpool is what Spiderpool has in the cluster.
type Spiderpool struct {
	pools []spiderPool
	// endpoints are the interfaces of pods by their addresses, reserved the addresses that are given to nobody, by the
	// names of the SpiderReservedIPs.
	endpoints map[netip.Addr][]endpoint
	reserved  map[string]poolset.Set
	// owners are the UIDs of the pods of SpiderEndpoints, by their names.
	owners  map[string]string
	subnets []spiderSubnet
	// problems tell what cannot be read.
	problems []string
}

// spiderPool is a SpiderIPPool.
type spiderPool struct {
	name string
	// subnet is the SpiderSubnet that has made it for an application, or empty.
	subnet string
	spec   v1alpha1.IPPoolSpec
	prefix netip.Prefix
	// set are its ips, excluded its excludeIPs, and given the addresses that it has given.
	set, excluded poolset.Set
	given         map[netip.Addr]SpiderRecord
}

// SpiderRecord is an entry of status.allocatedIPs. Of a virtual machine, Pod names the machine.
type SpiderRecord struct {
	Pod string `json:"pod"`
	UID string `json:"podUid"`
}

// endpoint is one address of a SpiderEndpoint.
type endpoint struct{ name, uid, node, nic, pool, mac string }

// spiderSubnet is a SpiderSubnet, with the addresses that it may give to SpiderIPPools.
type spiderSubnet struct {
	name string
	spec v1alpha1.IPSubnetSpec
	set  poolset.Set
}

// A SpiderSubnet owns each SpiderIPPool of its subnet, by the first label. It makes those with the second.
const (
	subnetLabel      = "ipam.spidernet.io/owner-spider-subnet"
	applicationLabel = "ipam.spidernet.io/owner-application-name"
)

// SpiderpoolOf reads SpiderIPPools, SpiderEndpoints, SpiderReservedIPs and SpiderSubnets.
func SpiderpoolOf(pools, endpoints, reserved, subnets []SpiderObject) Spiderpool {
	s := Spiderpool{endpoints: map[netip.Addr][]endpoint{}, reserved: map[string]poolset.Set{}, owners: map[string]string{}}
	read := func(kind string, objects []SpiderObject, one func(SpiderObject) error) {
		for _, o := range objects {
			if err := one(o); err != nil {
				s.problems = append(s.problems, fmt.Sprintf("%s %s cannot be read: %v", kind, strings.TrimPrefix(o.Metadata.Namespace+"/"+o.Metadata.Name, "/"), err))
			}
		}
	}
	read("SpiderIPPool", pools, s.pool)
	read("SpiderEndpoint", endpoints, s.endpoint)
	read("SpiderReservedIP", reserved, func(o SpiderObject) (err error) {
		var spec struct{ IPs []string }
		if err = json.Unmarshal(o.Spec, &spec); err == nil {
			s.reserved[o.Metadata.Name], err = poolset.Parse(spec.IPs)
		}
		return of("spec.ips", err)
	})
	read("SpiderSubnet", subnets, func(o SpiderObject) error {
		n := spiderSubnet{name: o.Metadata.Name}
		if err := json.Unmarshal(o.Spec, &n.spec); err != nil {
			return of("spec", err)
		}
		all, err := poolset.Parse(n.spec.IPs)
		excluded, wrong := poolset.Parse(n.spec.ExcludeIPs)
		n.set = all.Minus(excluded)
		s.subnets = append(s.subnets, n)
		return errors.Join(of("spec.ips", err), of("spec.excludeIPs", wrong))
	})
	return s
}

// reservedBut are the addresses that Spiderpool gives to nobody, but those that the move of a network reserves.
func (s Spiderpool) reservedBut(network string) (others poolset.Set) {
	for name, set := range s.reserved {
		if !slices.Contains(reservations(network), name) {
			others = others.Plus(set)
		}
	}
	return others
}

// reservedFor are the addresses that the move of a network reserves.
func (s Spiderpool) reservedFor(network string) (ours poolset.Set) {
	for _, name := range reservations(network) {
		ours = ours.Plus(s.reserved[name])
	}
	return ours
}

// Named returns the pools of each interface that the annotation ippools of a pod names. Spiderpool refuses what is no JSON.
func Named(annotations map[string]string) (all [][]string) {
	var entries []struct{ IPv4, IPv6 []string }
	_ = json.Unmarshal([]byte(annotations["ipam.spidernet.io/ippools"]), &entries)
	for _, e := range entries {
		all = append(all, append(e.IPv4, e.IPv6...))
	}
	return all
}

func of(field string, err error) error {
	if err != nil {
		return fmt.Errorf("%s: %w", field, err)
	}
	return nil
}

func (s *Spiderpool) pool(o SpiderObject) error {
	p := spiderPool{name: o.Metadata.Name, given: map[netip.Addr]SpiderRecord{}}
	if o.Metadata.Labels[applicationLabel] != "" {
		p.subnet = o.Metadata.Labels[subnetLabel]
	}
	spec := json.NewDecoder(bytes.NewReader(o.Spec))
	spec.DisallowUnknownFields() // its fields are those of an IPPool, so an unknown one is of a later version
	err := spec.Decode(&p.spec)
	if err != nil {
		return of("spec", err)
	}
	if p.prefix, err = netip.ParsePrefix(p.spec.Subnet); err != nil {
		return of("spec.subnet", err)
	}
	if p.set, err = poolset.Parse(p.spec.IPs); err != nil {
		return of("spec.ips", err)
	}
	if p.excluded, err = poolset.Parse(p.spec.ExcludeIPs); err != nil {
		return of("spec.excludeIPs", err)
	}
	var status struct{ AllocatedIPs string }
	if len(o.Status) > 0 {
		err = json.Unmarshal(o.Status, &status)
	}
	var records map[string]SpiderRecord
	if err == nil && status.AllocatedIPs != "" {
		err = json.Unmarshal([]byte(status.AllocatedIPs), &records)
	}
	for text, record := range records {
		a, parseErr := netip.ParseAddr(text)
		if err = cmp.Or(err, parseErr); parseErr == nil {
			p.given[a] = record
		}
	}
	s.pools = append(s.pools, p)
	return of("status.allocatedIPs", err)
}

func (s *Spiderpool) endpoint(o SpiderObject) error {
	var status struct {
		Current struct {
			UID, Node string
			IPs       []struct{ Interface, IPv4, IPv6, IPv4Pool, IPv6Pool, MAC string }
		}
	}
	if len(o.Status) == 0 {
		return nil
	}
	if err := json.Unmarshal(o.Status, &status); err != nil {
		return of("status.current", err)
	}
	s.owners[o.Metadata.Namespace+"/"+o.Metadata.Name] = status.Current.UID
	for _, i := range status.Current.IPs {
		for text, pool := range map[string]string{i.IPv4: i.IPv4Pool, i.IPv6: i.IPv6Pool} {
			if text == "" {
				continue
			}
			a, err := netip.ParsePrefix(text)
			if err != nil {
				return of("status.current.ips", err)
			}
			s.endpoints[a.Addr()] = append(s.endpoints[a.Addr()], endpoint{
				o.Metadata.Namespace + "/" + o.Metadata.Name, status.Current.UID, status.Current.Node, i.Interface, pool, strings.ToLower(i.MAC),
			})
		}
	}
	return nil
}

// spiderpool reads what a definition has for it. Its ranges are the SpiderIPPools that it names, that name it or that its
// pods have addresses of, and all others of their subnets: pods may name these in their annotations.
func (n *network) spiderpool(text json.RawMessage, f Facts) error {
	var c struct {
		V4    []string `json:"default_ipv4_ippool"`
		V6    []string `json:"default_ipv6_ippool"`
		Match bool     `json:"match_master_subnet"`
	}
	if err := json.Unmarshal(text, &c); err != nil {
		return fmt.Errorf("read ipam of spec.config: %w", err)
	}
	if c.Match {
		n.notes = append(n.notes, fmt.Sprintf("match_master_subnet of definition %s has no effect with Fenceline: set parents in the pools", n))
	}
	if strings.Contains(n.Config, coordinator) && !f.isBecoming {
		n.notes = append(n.notes, fmt.Sprintf("in definition %s, the chained Fenceline takes the place of the coordinator: compare its fields, and those of the SpiderCoordinator, with docs/cni.md", n))
	}
	subnets, named := map[string]bool{}, map[string]bool{}
	for _, name := range append(c.V4, c.V6...) {
		isThere := false
		for _, p := range f.Spiderpool.pools {
			if matches, _ := path.Match(name, p.name); matches {
				subnets[p.spec.Subnet], named[p.name], isThere = true, true, true
			}
		}
		if !isThere {
			n.notes = append(n.notes, fmt.Sprintf("definition %s names the SpiderIPPool %s, which does not exist", n, name))
		}
	}
	for _, p := range f.Spiderpool.pools {
		isDefault := len(c.V4)+len(c.V6) == 0 && p.spec.Default != nil && *p.spec.Default && len(p.spec.MultusName) == 0
		if isDefault || slices.Contains(p.spec.MultusName, n.Definition.String()) || f.uses(n.Definition.String(), p) {
			subnets[p.spec.Subnet], named[p.name] = true, true
		}
	}
	others := f.Spiderpool.reservedBut(f.Network)
	isMoving := slices.ContainsFunc(f.Moving, func(d v1alpha1.MoveDefinition) bool { return d.Namespace == n.Namespace && d.Name == n.Definition.Name })
	for i, p := range f.Spiderpool.pools { // a move that has begun gets no more of them
		isOf := named[p.name] || subnets[p.spec.Subnet] && !f.isBecoming // a move out makes no claim to the rest of a subnet
		if isOf && (!isMoving || slices.Contains(f.MovingPools, p.name)) {
			n.ranges = append(n.ranges, served{
				prefix: p.prefix, set: p.set, gives: p.set, excluded: p.set.And(others).Minus(p.excluded).Entries(), pool: &f.Spiderpool.pools[i],
			})
		}
	}
	return nil
}

// uses reports whether a pod has an address of a pool on a network, by network-status and by the pool.
func (f Facts) uses(definition string, p spiderPool) bool {
	return slices.ContainsFunc(f.Pods, func(pod Pod) bool {
		return slices.ContainsFunc(pod.Interfaces, func(i Interface) bool {
			return i.Network == definition && slices.ContainsFunc(i.IPs, func(a netip.Addr) bool { return p.given[a].UID == pod.UID && pod.UID != "" })
		})
	})
}
