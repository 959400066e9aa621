// SPDX-License-Identifier: Apache-2.0

package movein

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/internal/poolset"
)

// fenceline is the type of an ipam of Fenceline.
const fenceline v1alpha1.MoveSource = "fenceline"

// mostConfig is the length of the longest definition that a Move takes.
const mostConfig = 16384

// poolsOf returns the pools that a definition of Fenceline names; none if Fenceline does not serve it.
func poolsOf(config string) (names []string) {
	var whole map[string]any
	_ = json.Unmarshal([]byte(config), &whole) // what is no object names none
	for _, plugin := range ipamsIn(fenceline, whole) {
		for _, key := range []string{"default_ipv4_ippool", "default_ipv6_ippool"} {
			all, _ := plugin["ipam"].(map[string]any)[key].([]any)
			for _, name := range all {
				names = append(names, fmt.Sprint(name))
			}
		}
	}
	return names
}

// IsOurs reports whether Fenceline serves a configuration by pools that it names.
func IsOurs(config string) bool { return len(poolsOf(config)) > 0 }

// Draft returns the Move of a network out of Fenceline, with the definitions that the other IPAM is to have, and what
// blocks it. That IPAM never gives the reserved addresses.
func (f Facts) Draft(reserved poolset.Set) (m *v1alpha1.Move, blocks []string) {
	block := func(format string, args ...any) { blocks = append(blocks, fmt.Sprintf(format, args...)) }
	m = &v1alpha1.Move{ObjectMeta: metav1.ObjectMeta{Name: MoveName(f.Network)}, Spec: v1alpha1.MoveSpec{
		From: f.From, Out: true, Network: f.Network, Step: v1alpha1.MoveFreeze,
	}}
	at := slices.IndexFunc(f.Definitions, func(d Definition) bool { return d.String() == f.Network })
	if at < 0 {
		block("there is no NetworkAttachmentDefinition %s", f.Network)
		return m, blocks
	}
	if m.Spec.Pools = poolsOf(f.Definitions[at].Config); len(m.Spec.Pools) == 0 {
		block("definition %s is none of Fenceline that names its pools: write default_ipv4_ippool or default_ipv6_ippool into its ipam first", f.Network)
		return m, blocks
	}
	ranges, sets := []leaving{}, []poolset.Set{}
	for _, name := range m.Spec.Pools {
		r, err := f.leaving(name, reserved)
		if err == nil && f.From == v1alpha1.MoveWhereabouts && slices.ContainsFunc(ranges, func(o leaving) bool { return o.subnet.Addr().Is4() == r.subnet.Addr().Is4() }) {
			err = fmt.Errorf("it is the second of its family, and %s would give an interface an address of each: name one pool of each family, or make two definitions", f.From)
		}
		if err != nil {
			block("pool %s: %v", name, err)
			continue
		}
		ranges, sets = append(ranges, r), append(sets, r.set)
	}
	if len(blocks) > 0 {
		return m, blocks
	}
	for _, d := range f.Definitions {
		names := poolsOf(d.Config)
		if !slices.ContainsFunc(names, func(name string) bool { return slices.Contains(m.Spec.Pools, name) }) {
			continue
		}
		if !slices.Equal(names, m.Spec.Pools) {
			block("definition %s has other pools than %s, and a common one: give both the same, or none", d, f.Network)
			continue
		}
		text, err := f.leftBy(d.Config, ranges)
		if err == nil && f.From == v1alpha1.MoveWhereabouts {
			var n network
			if n, err = f.read(Definition{Namespace: d.Namespace, Name: d.Name, Config: text}); err == nil && !n.all().Equal(poolset.Union(sets...)) {
				err = fmt.Errorf("%s would give other addresses than its pools by %s", f.From, text)
			}
		}
		if err == nil && len(text) > mostConfig {
			err = fmt.Errorf("its text for %s has %d characters, and a Move takes %d: give its pools fewer ranges", f.From, len(text), mostConfig)
		}
		if err != nil {
			block("definition %s: %v", d, err)
		}
		m.Spec.Definitions = append(m.Spec.Definitions, v1alpha1.MoveDefinition{Namespace: d.Namespace, Name: d.Name, Config: text})
	}
	if _, err := f.Becoming(m, reserved); err != nil {
		block("%v", err)
	}
	return m, blocks
}

// leaving is a range that the other IPAM is to give.
type leaving struct {
	subnet netip.Prefix
	set    poolset.Set
	pool   *v1alpha1.IPPool
}

// leaving returns the range of a pool.
func (f Facts) leaving(name string, reserved poolset.Set) (r leaving, err error) {
	at := slices.IndexFunc(f.Pools, func(p v1alpha1.IPPool) bool { return p.Name == name })
	if at < 0 {
		return r, fmt.Errorf("it does not exist")
	}
	r.pool = &f.Pools[at]
	if r.set, err = poolset.Addresses(r.pool); err != nil {
		return r, err
	}
	if r.subnet, err = poolset.Subnet(r.pool); err != nil {
		return r, err
	}
	r.set = r.set.Minus(reserved)
	switch {
	case ptr.Deref(r.pool.Spec.Default, false):
		err = fmt.Errorf("it is a default pool, and serves interfaces of other definitions too: remove spec.default first")
	case r.pool.Spec.Network != "":
		err = fmt.Errorf("it has spec.network %s, which does not move", r.pool.Spec.Network)
	case f.From == v1alpha1.MoveWhereabouts && r.subnet.Addr().BitLen()-r.subnet.Bits() < 2:
		err = fmt.Errorf("its subnet %s is too small for %s, which needs 4 addresses", r.subnet, f.From)
	case r.set.Len() == 0:
		err = fmt.Errorf("it has no address")
	}
	return r, err
}

// leftBy returns the configuration of a definition of Fenceline for the other IPAM.
func (f Facts) leftBy(config string, ranges []leaving) (string, error) {
	var whole map[string]any
	if err := json.Unmarshal([]byte(config), &whole); err != nil {
		return "", fmt.Errorf("read the configuration: %w", err)
	}
	for _, plugin := range ipamsIn(fenceline, whole) {
		ipam := plugin["ipam"].(map[string]any)
		if f.From == v1alpha1.MoveSpiderpool {
			plugin["ipam"] = spiderpoolFor(ipam)
			continue
		}
		routes, _ := ipam["routes"].([]any)
		plugin["ipam"] = whereaboutsFor(ranges, routes)
	}
	if plugins, isList := whole["plugins"].([]any); isList {
		isChained := func(each any) bool {
			plugin, _ := each.(map[string]any)
			return plugin["type"] == string(fenceline)
		}
		if at := slices.IndexFunc(plugins, isChained); at >= 0 && f.From == v1alpha1.MoveSpiderpool {
			plugins[at] = coordinatorFor(plugins[at].(map[string]any))
		}
		whole["plugins"] = slices.DeleteFunc(plugins, isChained)
	}
	out, err := json.MarshalIndent(whole, "", "  ")
	return string(out), err
}

// whereaboutsFor returns an ipam of whereabouts that gives ranges.
func whereaboutsFor(ranges []leaving, routes []any) map[string]any {
	ipam := map[string]any{"type": string(v1alpha1.MoveWhereabouts)}
	for i, r := range ranges {
		of, ends := ipam, r.set.Ends()
		if i > 0 {
			of = map[string]any{}
			ipam["ipRanges"] = []any{of}
		}
		of["range"], of["range_start"], of["range_end"] = r.subnet.String(), ends[0].String(), ends[len(ends)-1].String()
		var exclude []any
		for j := 1; j+1 < len(ends); j += 2 {
			for _, p := range prefixes(ends[j].Next(), ends[j+1].Prev()) {
				exclude = append(exclude, p.String())
			}
		}
		if len(exclude) > 0 {
			of["exclude"] = exclude
		}
		if gateway := r.pool.Gateway(); gateway.IsValid() && ipam["gateway"] == nil { // it has one for all ranges
			ipam["gateway"] = gateway.String()
		}
	}
	if routes = routesFor(ranges, routes); len(routes) > 0 {
		ipam["routes"] = routes
	}
	return ipam
}

// prefixes returns the prefixes that have exactly the addresses from one to another one.
func prefixes(from, to netip.Addr) (all []netip.Prefix) {
	for a := from; a.IsValid() && !to.Less(a); {
		p := netip.PrefixFrom(a, a.BitLen())
		for p.Bits() > 0 {
			greater := netip.PrefixFrom(a, p.Bits()-1)
			if greater.Masked().Addr() != a || to.Less(lastOf(greater)) {
				break
			}
			p = greater
		}
		all, a = append(all, p), lastOf(p).Next()
	}
	return all
}

// Leaving returns what becomes of each lease when a network moves out. A record without hold is that of a pod which goes
// to the other IPAM. The others stay with Fenceline until they end, and the other IPAM excludes their addresses.
func (p Plan) Leaving(f Facts, leases []v1alpha1.IPLease) (records []v1alpha1.MoveRecord) {
	pods, theirs := map[string]Pod{}, map[string]v1alpha1.MoveRecord{}
	for _, pod := range f.Pods {
		pods[pod.UID] = pod
	}
	for _, r := range p.Records {
		theirs[r.Address] = r
	}
	var sets []poolset.Set
	for i := range p.Pools {
		set, _ := poolset.Addresses(&p.Pools[i])
		sets = append(sets, set)
	}
	gives := poolset.Union(sets...)
	for i := range leases {
		s := &leases[i].Spec
		r := v1alpha1.MoveRecord{Address: s.Address, Node: s.NodeName}
		h := s.Holder
		if h == nil {
			h = &v1alpha1.Holder{}
		}
		r.Namespace, r.Pod, r.PodUID, r.Interface, r.ContainerID, r.MAC = h.Namespace, h.Pod, h.PodUID, h.Interface, h.ContainerID, h.MAC
		pod, exists := pods[h.PodUID]
		their, known := theirs[s.Address]
		on, has := pod.networkOf(s.Addr(), h.Interface)
		switch {
		case s.State == v1alpha1.StateRetained:
			r.Hold = "it is kept for a name or a sandbox, which ends with the move"
		case s.State == v1alpha1.StateWarm:
			r.Hold = "a node keeps it ready, and releases it"
		case s.State != v1alpha1.StateBound:
			r.Hold = fmt.Sprintf("it is %s: %s %s", s.State, s.Reason, s.Message)
		case !exists || pod.Finished:
			r.Hold = "its pod does not run any more"
		case pod.Ending: // the other IPAM may free its address before the sandbox has gone
			r.Hold = "its pod is ending: repeat start once it has gone"
		case h.Interface == "eth0":
			r.Hold = "the pod's first interface has its host link: restart it"
		case !has:
			r.Hold = "network-status of its pod does not have it, so the other IPAM would take the record for a lost one"
		case !p.changes(on):
			r.Hold = Elsewhere + on
		case !gives.Contains(s.Addr()):
			r.Hold = "a reservation or excludeIPs has it, so the other IPAM will not give it: restart its pod"
		case known && their.Hold != "" && !(isLacking(their.Hold) && their.PodUID == h.PodUID): // a record that lacks a part gets it
			r.Hold = fmt.Sprintf("%s has another record: %s", f.From, their.Hold)
		}
		if f.From == v1alpha1.MoveSpiderpool && r.Hold == "" {
			r.Hold = f.Spiderpool.disagrees(pod, h.Interface, s.Addr())
		}
		r.Hold = cut(r.Hold, maxHold)
		records = append(records, r)
	}
	slices.SortFunc(records, func(a, b v1alpha1.MoveRecord) int {
		return netip.MustParseAddr(a.Address).Compare(netip.MustParseAddr(b.Address))
	})
	return records
}

// isLacking reports whether a record is not held for what it says.
func isLacking(hold string) bool { return strings.HasPrefix(hold, noRecord) || hold == noEndpoint }

// Elsewhere begins why a pod keeps the address of a pool that it chose by a definition which does not move.
const Elsewhere = "its definition does not move: "

// networkOf returns the definition by which a pod has an address on an interface, as network-status has it.
func (p Pod) networkOf(a netip.Addr, on string) (definition string, has bool) {
	for _, i := range p.Interfaces {
		if i.Interface == on && slices.Contains(i.IPs, a) {
			return i.Network, true
		}
	}
	return "", false
}

// changes reports whether a move changes a definition. A name without a namespace, as old versions of Multus wrote it,
// may be that of any.
func (p Plan) changes(definition string) bool {
	return !strings.Contains(definition, "/") || slices.ContainsFunc(p.Changes, func(c Change) bool { return c.Namespace+"/"+c.Name == definition })
}

// Left returns the records of a move out: those of pods that leave now, and of those that have left.
func Left(earlier, now []v1alpha1.MoveRecord) (all []v1alpha1.MoveRecord) {
	for _, r := range now {
		if r.Hold == "" {
			all = append(all, r)
		}
	}
	for _, r := range earlier {
		if !slices.ContainsFunc(all, func(o v1alpha1.MoveRecord) bool { return o.Address == r.Address }) {
			all = append(all, r)
		}
	}
	return all
}

// Allocations returns the records of whereabouts that pods which leave are to have.
func (f Facts) Allocations(records []v1alpha1.MoveRecord) (all []Records) {
	var p Plan
	main, _ := p.networks(f)
	for _, r := range main.ranges {
		of := Records{Name: r.records, Range: r.prefix.String(), Allocations: map[string]Allocation{}}
		for _, record := range records {
			offset, ok := poolset.Offset(r.prefix, netip.MustParseAddr(record.Address))
			if ok && record.Hold == "" {
				of.Allocations[strconv.FormatUint(offset, 10)] = Allocation{ID: record.ContainerID, PodRef: record.Namespace + "/" + record.Pod, IfName: record.Interface}
			}
		}
		all = append(all, of)
	}
	return all
}

// ReservationName returns the name of whereabouts' reservation of an address.
func ReservationName(a string) string {
	if strings.HasSuffix(a, ":") {
		a += "0"
	}
	return strings.ReplaceAll(a, ":", "-")
}
