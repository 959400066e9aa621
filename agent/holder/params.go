package holder

import (
	"fmt"
	"net"
	"net/netip"

	"k8s.io/apimachinery/pkg/types"

	"github.com/fenceline/fenceline/agent/ipam"
	"github.com/fenceline/fenceline/agent/segment"
	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/cni/agentapi"
)

// ProbeParams says how a pool wants its addresses probed. MACs to ignore that
// are none are left out; the CRD refuses them.
func ProbeParams(pool *v1alpha1.IPPool) segment.ProbeParams {
	p := segment.ProbeParams{Mode: pool.ConflictMode(), Rounds: pool.ProbeRounds(), Interval: pool.ProbeInterval()}
	if c := pool.Spec.ConflictDetection; c != nil {
		for _, text := range c.IgnoreMACs {
			if mac, err := net.ParseMAC(text); err == nil {
				p.Ignore = append(p.Ignore, mac)
			}
		}
	}
	return p
}

func parseMAC(text string) (net.HardwareAddr, error) {
	mac, err := net.ParseMAC(text)
	if err != nil {
		return nil, fmt.Errorf("recorded MAC: %w", err)
	}
	return mac, nil
}

func clientKey(name string) types.NamespacedName { return types.NamespacedName{Name: name} }

// answer is what the runtime configures: the addresses with their gateways,
// and the routes.
func answer(choice ipam.Choice, bound []boundAddress) (*agentapi.AddResponse, error) {
	var r agentapi.AddResponse
	for i, b := range bound {
		subnet, err := ipam.Subnet(b.pool)
		if err != nil {
			return nil, fmt.Errorf("pool %s: %w", b.pool.Name, err)
		}
		ip := agentapi.IP{Address: netip.PrefixFrom(b.address.Addr, subnet.Bits())}
		if b.pool.Spec.Gateway != nil {
			if ip.Gateway, err = netip.ParseAddr(*b.pool.Spec.Gateway); err != nil {
				return nil, fmt.Errorf("gateway of pool %s: %w", b.pool.Name, err)
			}
		}
		r.IPs = append(r.IPs, ip)
		// Addresses are bound in the order of the families.
		routes, err := choice.Families[i].RoutesThrough(b.pool)
		if err != nil {
			return nil, fmt.Errorf("pool %s: %w", b.pool.Name, err)
		}
		for _, route := range routes {
			r.Routes = append(r.Routes, agentapi.Route{Dst: route.Dst, GW: route.Gateway})
		}
	}
	return &r, nil
}
