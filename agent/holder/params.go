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

// answer is what the runtime configures: the addresses, the default routes
// through their gateways, and the routes of their pools.
func answer(choice ipam.Choice, bound []boundAddress) (*agentapi.AddResponse, error) {
	var r agentapi.AddResponse
	for _, b := range bound {
		subnet, err := netip.ParsePrefix(b.pool.Spec.Subnet)
		if err != nil {
			return nil, fmt.Errorf("subnet of pool %s: %w", b.pool.Name, err)
		}
		ip := agentapi.IP{Address: netip.PrefixFrom(b.address.Addr, subnet.Bits())}
		if b.pool.Spec.Gateway != nil {
			if ip.Gateway, err = netip.ParseAddr(*b.pool.Spec.Gateway); err != nil {
				return nil, fmt.Errorf("gateway of pool %s: %w", b.pool.Name, err)
			}
			if !choice.CleanGateway {
				r.Routes = append(r.Routes, agentapi.Route{Dst: everywhere(subnet)})
			}
		}
		r.IPs = append(r.IPs, ip)
		for _, route := range b.pool.Spec.Routes {
			dst, err := netip.ParsePrefix(route.Dst)
			if err != nil {
				return nil, fmt.Errorf("route of pool %s: %w", b.pool.Name, err)
			}
			var gw netip.Addr
			if route.Gw != "" {
				if gw, err = netip.ParseAddr(route.Gw); err != nil {
					return nil, fmt.Errorf("route %s of pool %s: %w", dst, b.pool.Name, err)
				}
			}
			r.Routes = append(r.Routes, agentapi.Route{Dst: dst, GW: gw})
		}
	}
	return &r, nil
}

// everywhere is the default route of a family.
func everywhere(subnet netip.Prefix) netip.Prefix {
	if subnet.Addr().Is4() {
		return netip.PrefixFrom(netip.IPv4Unspecified(), 0)
	}
	return netip.PrefixFrom(netip.IPv6Unspecified(), 0)
}
