// SPDX-License-Identifier: Apache-2.0

package movein

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"k8s.io/utils/ptr"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/internal/poolset"
)

// Becoming returns the facts of a move out with the SpiderIPPools that its pools become, as if they existed. Routes of
// the definitions become those of the SpiderIPPools, since an ipam of Spiderpool has none.
func (f Facts) Becoming(m *v1alpha1.Move, reserved poolset.Set) (Facts, error) {
	f.isBecoming = true
	if f.From != v1alpha1.MoveSpiderpool {
		return f, nil
	}
	s := &f.Spiderpool
	s.pools = slices.Clone(s.pools)
	for _, name := range m.Spec.Pools {
		if !hasPool(f, name) { // the move is at its end
			continue
		}
		r, err := f.leaving(name, reserved)
		var p spiderPool
		if err == nil {
			p, err = r.becomes(m.Spec.Definitions)
		}
		if err != nil {
			return f, fmt.Errorf("pool %s: %w", name, err)
		}
		for _, other := range s.pools {
			switch {
			case other.name != name && other.prefix != p.prefix && other.prefix.Overlaps(p.prefix):
				return f, fmt.Errorf("pool %s: SpiderIPPool %s has the subnet %s, and Spiderpool refuses a subnet that overlaps it: delete that one", name, other.name, other.prefix)
			case other.name != name && other.set.Minus(other.excluded).Overlaps(p.set.Minus(p.excluded)):
				return f, fmt.Errorf("pool %s: SpiderIPPool %s has addresses of it already: delete that one, or give it others", name, other.name)
			case other.name == name && other.prefix != p.prefix:
				return f, fmt.Errorf("pool %s: there is a SpiderIPPool of this name with the subnet %s: delete it", name, other.prefix)
			case other.name == name:
				p.given = other.given
			}
		}
		s.pools = append(slices.DeleteFunc(s.pools, func(o spiderPool) bool { return o.name == name }), p)
	}
	return f, nil
}

// becomes returns the SpiderIPPool that a pool becomes, which gives the same addresses.
func (r leaving) becomes(definitions []v1alpha1.MoveDefinition) (p spiderPool, err error) {
	spec := r.pool.Spec
	open := r.pool.DeepCopy()
	open.Spec.ExcludeIPs = nil
	if p.set, err = poolset.Addresses(open); err != nil {
		return p, err
	}
	p.name, p.prefix, p.excluded = r.pool.Name, r.subnet, p.set.Minus(r.set)
	gateway := r.pool.Gateway()
	switch {
	case p.set.Len() > MaxFiles:
		return p, fmt.Errorf("it has more than %d addresses, and Spiderpool makes a list of all of them: narrow its ips", MaxFiles)
	case gateway.IsValid() && !r.subnet.Contains(gateway):
		return p, fmt.Errorf("its gateway %s lies outside its subnet, and Spiderpool refuses such a gateway: remove it", gateway)
	case spec.MACPolicy != nil:
		return p, fmt.Errorf("it has macPolicy, and Spiderpool chooses no MAC: remove it first")
	case spec.MaxPerNamespace != nil:
		return p, fmt.Errorf("it has maxPerNamespace, and Spiderpool has no such limit: remove it first")
	}
	p.spec = v1alpha1.IPPoolSpec{
		IPVersion: ptr.To(int64(6)), Subnet: spec.Subnet, IPs: p.set.Entries(), ExcludeIPs: p.excluded.Entries(), Gateway: spec.Gateway, Vlan: spec.Vlan,
		NodeName: spec.NodeName, NodeAffinity: spec.NodeAffinity, NamespaceName: spec.NamespaceName, NamespaceAffinity: spec.NamespaceAffinity,
		PodAffinity: spec.PodAffinity, MultusName: spec.MultusName, Default: ptr.To(false), Disable: ptr.To(false),
	}
	if r.subnet.Addr().Is4() {
		p.spec.IPVersion = ptr.To(int64(4))
	}
	p.spec.Routes, err = r.routesOf(definitions)
	return p, err
}

// routesOf returns the routes of a pool and of the definitions, which have to agree.
func (r leaving) routesOf(definitions []v1alpha1.MoveDefinition) (all []v1alpha1.Route, err error) {
	for i, d := range definitions {
		var whole map[string]any
		_ = json.Unmarshal([]byte(d.Config), &whole) // the move has written it
		var own []any
		for _, plugin := range ipamsIn(v1alpha1.MoveSpiderpool, whole) {
			own, _ = plugin["ipam"].(map[string]any)["routes"].([]any)
		}
		var routes []v1alpha1.Route
		for _, each := range routesFor([]leaving{r}, own) {
			one, _ := each.(map[string]any)
			to, err := netip.ParsePrefix(fmt.Sprint(one["dst"]))
			if err != nil || to.Addr().Is4() != r.subnet.Addr().Is4() {
				continue // of another pool
			}
			gw, _ := netip.ParseAddr(fmt.Sprint(one["gw"]))
			switch isGateway := gw == r.pool.Gateway(); {
			case to.Bits() == 0 && isGateway: // Spiderpool makes it of the gateway
				continue
			case to.Bits() == 0 || !r.subnet.Contains(gw):
				return nil, fmt.Errorf("the route to %s cannot be one of a SpiderIPPool: its gateway has to be in the subnet, and a default route is that of spec.gateway; remove it, or change its gw", to)
			}
			routes = append(routes, v1alpha1.Route{Dst: to.String(), Gw: gw.String()})
		}
		if i > 0 && !slices.Equal(routes, all) {
			return nil, fmt.Errorf("definitions %s/%s and %s/%s have different routes, and become one SpiderIPPool with one list: give both the same", definitions[0].Namespace, definitions[0].Name, d.Namespace, d.Name)
		}
		all = routes
	}
	return all, nil
}

// spiderpoolFor returns an ipam of Spiderpool. It does not read routes, which are kept for the way in.
func spiderpoolFor(ipam map[string]any) map[string]any {
	out := map[string]any{"type": string(v1alpha1.MoveSpiderpool)}
	for _, key := range []string{poolsKey4, poolsKey6, "clean_gateway", "routes"} {
		if value, ok := ipam[key]; ok {
			out[key] = value
		}
	}
	return out
}

// coordinatorFor returns the coordinator that takes the place of a chained Fenceline.
func coordinatorFor(plugin map[string]any) map[string]any {
	out := map[string]any{"type": coordinator}
	for theirs, ours := range ofCoordinator {
		if value, ok := plugin[ours]; ok {
			out[theirs] = value
		}
	}
	if out["mode"] == "off" {
		out["mode"] = "disable"
	}
	return out
}

// SpiderIPPool is a SpiderIPPool with records, as a move out writes it.
type SpiderIPPool struct {
	Name    string
	Spec    map[string]any
	Total   int64
	Records map[string]SpiderRecord
}

// SpiderIPPools returns those of a move out, with the records of the pods that leave.
func (f Facts) SpiderIPPools(m *v1alpha1.Move, records []v1alpha1.MoveRecord) (all []SpiderIPPool, err error) {
	for _, p := range f.Spiderpool.pools {
		if !slices.Contains(m.Spec.Pools, p.name) {
			continue
		}
		one := SpiderIPPool{Name: p.name, Total: p.set.Minus(p.excluded).Count(), Records: map[string]SpiderRecord{}}
		text, err := json.Marshal(p.spec)
		if err == nil {
			err = json.Unmarshal(text, &one.Spec)
		}
		if err != nil {
			return nil, err
		}
		for _, r := range records {
			if p.set.Contains(netip.MustParseAddr(r.Address)) {
				one.Records[r.Address] = SpiderRecord{Pod: r.Namespace + "/" + r.Pod, UID: r.PodUID}
			}
		}
		all = append(all, one)
	}
	return all, nil
}

// SpiderEndpoint is a pod with what its SpiderEndpoint says of the interfaces that leave, by their names.
type SpiderEndpoint struct {
	Pod        Pod
	Interfaces map[string]map[string]any
}

// SpiderEndpoints returns those of the pods that leave.
func (f Facts) SpiderEndpoints(m *v1alpha1.Move, records []v1alpha1.MoveRecord) (all []SpiderEndpoint) {
	for _, pod := range f.Pods {
		e := SpiderEndpoint{pod, map[string]map[string]any{}}
		for _, r := range records {
			a := netip.MustParseAddr(r.Address)
			at := slices.IndexFunc(f.Spiderpool.pools, func(p spiderPool) bool { return slices.Contains(m.Spec.Pools, p.name) && p.set.Contains(a) })
			if r.PodUID != pod.UID || at < 0 {
				continue
			}
			i := e.Interfaces[r.Interface]
			if i == nil {
				i = map[string]any{"interface": r.Interface, "vlan": int64(0)}
				e.Interfaces[r.Interface] = i
			}
			on, _ := pod.networkOf(a, r.Interface)
			f.Spiderpool.pools[at].describe(i, a, f.cleansGateway(on))
		}
		if len(e.Interfaces) > 0 {
			all = append(all, e)
		}
	}
	return all
}

// With returns the interfaces of a SpiderEndpoint with these. Addresses of the other family stay.
func (e SpiderEndpoint) With(old []any) (all []any) {
	known := map[string]bool{}
	for _, each := range old {
		one, _ := each.(map[string]any)
		name, _ := one["interface"].(string)
		known[name] = true
		if now := e.Interfaces[name]; now != nil {
			routes, _ := one["routes"].([]any)
			routes = slices.DeleteFunc(routes, func(r any) bool { return now[familyOf(r)] != nil })
			added, _ := now["routes"].([]any)
			maps.Copy(one, now)
			if delete(one, "routes"); len(routes)+len(added) > 0 {
				one["routes"] = append(routes, added...)
			}
		}
		all = append(all, each)
	}
	for _, name := range slices.Sorted(maps.Keys(e.Interfaces)) {
		if !known[name] {
			all = append(all, e.Interfaces[name])
		}
	}
	return all
}

// familyOf returns the key of the address of a route's family.
func familyOf(route any) string {
	one, _ := route.(map[string]any)
	if strings.Contains(fmt.Sprint(one["dst"]), ":") {
		return "ipv6"
	}
	return "ipv4"
}

// describe adds an address to an interface of a SpiderEndpoint.
func (p spiderPool) describe(i map[string]any, a netip.Addr, cleansGateway bool) {
	family := "ipv4"
	if a.Is6() {
		family = "ipv6"
	}
	i[family], i[family+"Pool"] = netip.PrefixFrom(a, p.prefix.Bits()).String(), p.name
	if p.spec.Gateway != nil {
		i[family+"Gateway"], i["cleanGateway"] = *p.spec.Gateway, cleansGateway
	}
	if p.spec.Vlan != nil {
		i["vlan"] = *p.spec.Vlan
	}
	routes, _ := i["routes"].([]any)
	for _, r := range p.spec.Routes {
		routes = append(routes, map[string]any{"dst": r.Dst, "gw": r.Gw})
	}
	if len(routes) > 0 {
		i["routes"] = routes
	}
}

// cleansGateway reports whether pods on a definition get no default route.
func (f Facts) cleansGateway(definition string) bool {
	at := slices.IndexFunc(f.Definitions, func(d Definition) bool { return d.String() == definition })
	if at < 0 {
		return false
	}
	var whole map[string]any
	_ = json.Unmarshal([]byte(f.Definitions[at].Config), &whole)
	for _, plugin := range ipamsIn(f.From, whole) {
		return plugin["ipam"].(map[string]any)["clean_gateway"] == true
	}
	return false
}
