package allocate

import (
	"net/netip"
	"path"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fenceline/fenceline/agent/ipam"
	"github.com/fenceline/fenceline/apis/v1alpha1"
)

// The oracle says what the rules allow by looking at each address in turn. It
// shares no code with package ipam.

// oracleLimit is how many addresses of a subnet the oracle looks at: the random
// pools have none beyond.
const oracleLimit = 64

// allowed returns the addresses that a pool may hand out.
func allowed(p *v1alpha1.IPPool, reserved []string) []netip.Addr {
	subnet := netip.MustParsePrefix(p.Spec.Subnet)
	var all []netip.Addr
	for a := subnet.Addr(); subnet.Contains(a) && len(all) < oracleLimit; a = a.Next() {
		all = append(all, a)
	}
	hosts := all
	if subnet.Addr().BitLen()-subnet.Bits() >= 2 {
		hosts = hosts[1:]
		if subnet.Addr().Is4() {
			hosts = hosts[:len(hosts)-1]
		}
	}
	var left []netip.Addr
	for _, a := range hosts {
		isGateway := p.Spec.Gateway != nil && *p.Spec.Gateway == a.String()
		offered := len(p.Spec.IPs) == 0 || within(a, p.Spec.IPs)
		if offered && !isGateway && !within(a, p.Spec.ExcludeIPs) && !within(a, reserved) {
			left = append(left, a)
		}
	}
	return left
}

// within tells whether one of the entries covers an address.
func within(a netip.Addr, entries []string) bool {
	return slices.ContainsFunc(entries, func(entry string) bool {
		if first, last, ok := strings.Cut(entry, "-"); ok {
			from, to := netip.MustParseAddr(first), netip.MustParseAddr(last)
			return from.BitLen() == a.BitLen() && from.Compare(a) <= 0 && a.Compare(to) <= 0
		}
		if strings.Contains(entry, "/") {
			return netip.MustParsePrefix(entry).Contains(a)
		}
		return entry == a.String()
	})
}

// meant tells whether the affinities of a pool admit a request.
func meant(p *v1alpha1.IPPool, req ipam.Request, definition string) bool {
	named := func(names []string, name string, selector *metav1.LabelSelector, labels map[string]string) bool {
		if len(names) > 0 {
			return slices.Contains(names, name)
		}
		return selected(selector, labels)
	}
	return named(p.Spec.NodeName, req.NodeName, p.Spec.NodeAffinity, req.NodeLabels) &&
		named(p.Spec.NamespaceName, req.Pod.Namespace, p.Spec.NamespaceAffinity, req.NamespaceLabels) &&
		selected(p.Spec.PodAffinity, req.Pod.Labels) &&
		(len(p.Spec.MultusName) == 0 || slices.Contains(p.Spec.MultusName, definition))
}

func selected(s *metav1.LabelSelector, labels map[string]string) bool {
	if s == nil {
		return true
	}
	for k, v := range s.MatchLabels {
		if labels[k] != v {
			return false
		}
	}
	return true
}

// open tells whether a pool hands out anything new.
func open(p *v1alpha1.IPPool) bool {
	disabled := p.Spec.Disable != nil && *p.Spec.Disable
	for _, c := range p.Status.Conditions {
		if c.Type == v1alpha1.ConditionReady && c.Status == metav1.ConditionFalse {
			return false
		}
	}
	return p.DeletionTimestamp == nil && !disabled
}

// named returns the pools of one family that names and patterns stand for.
func named(pools []v1alpha1.IPPool, names []string, ipv6 bool) []*v1alpha1.IPPool {
	var found []*v1alpha1.IPPool
	for i := range pools {
		isIPv6 := netip.MustParsePrefix(pools[i].Spec.Subnet).Addr().Is6()
		matches := slices.ContainsFunc(names, func(name string) bool {
			ok, err := path.Match(name, pools[i].Name)
			return err == nil && ok
		})
		if isIPv6 == ipv6 && matches {
			found = append(found, &pools[i])
		}
	}
	return found
}

// leasesOf names the leases of a pool's addresses.
func leasesOf(p *v1alpha1.IPPool, addrs []netip.Addr) []string {
	names := make([]string, len(addrs))
	for i, a := range addrs {
		names[i] = v1alpha1.LeaseName(p.Spec.Network, a)
	}
	return names
}

// overlaps tells whether another pool of the same network has one of a pool's addresses.
func overlaps(p *v1alpha1.IPPool, pools []v1alpha1.IPPool) bool {
	own := allowed(p, nil)
	return slices.ContainsFunc(pools, func(o v1alpha1.IPPool) bool {
		return o.Name != p.Name && o.Spec.Network == p.Spec.Network &&
			slices.ContainsFunc(allowed(&o, nil), func(a netip.Addr) bool { return slices.Contains(own, a) })
	})
}
