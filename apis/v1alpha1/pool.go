// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"cmp"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"time"

	"k8s.io/utils/ptr"
)

// Defaults of a pool's fields.
const (
	// DefaultProbes is PROBE_NUM of RFC 5227.
	DefaultProbes = 3
	// DefaultProbeInterval is shorter than PROBE_MIN of RFC 5227, because the start of a pod waits
	// for the probes. Quarantine and defence compensate for it.
	DefaultProbeInterval = 50 * time.Millisecond
	// DefaultExtraGrace is added to the grace period of a Terminating pod.
	DefaultExtraGrace = 5 * time.Second
	// DefaultCooldown is the time for which a freed address is not handed out, unless no other
	// address is free.
	DefaultCooldown = 30 * time.Second
	// DefaultRetention is the longest life of a Retained lease.
	DefaultRetention = 720 * time.Hour
)

// ManyAddresses is the number of addresses of a pool that are quarantined for one MAC. Further
// addresses for which that MAC answers are passed over without a record.
const ManyAddresses = 3

func (p *IPPool) conflictDetection() ConflictDetection {
	return ptr.Deref(p.Spec.ConflictDetection, ConflictDetection{})
}

// ConflictMode returns the mode of the pool for a second speaker.
func (p *IPPool) ConflictMode() ConflictMode { return cmp.Or(p.conflictDetection().Mode, ModeEnforce) }

// IgnoresMAC reports whether conflictDetection.ignoreMACs names a MAC.
func (p *IPPool) IgnoresMAC(mac MAC) bool {
	return slices.Contains(p.conflictDetection().IgnoreMACs, mac)
}

// AllowsMAC reports whether sourceGuardAllow.macs names a MAC, which several pods may then use.
func (p *IPPool) AllowsMAC(mac MAC) bool {
	return p.Spec.SourceGuardAllow != nil && slices.ContainsFunc(p.Spec.SourceGuardAllow.MACs, func(m string) bool { return strings.EqualFold(m, mac) })
}

// SourceGuardMode returns the reaction to a source that is not the pod's.
func (p *IPPool) SourceGuardMode() SourceGuardMode {
	return cmp.Or(p.Spec.SourceGuard, SourceGuardEnforce)
}

// AllowsDirectTransmit reports whether pods may have sockets whose frames skip their guard.
func (p *IPPool) AllowsDirectTransmit() bool {
	a := p.Spec.SourceGuardAllow
	return a != nil && slices.Contains(a.Roles, RoleDirectTransmit)
}

// ProbeRounds returns the number of probe rounds.
func (p *IPPool) ProbeRounds() int {
	return int(ptr.Deref(p.conflictDetection().Probes, DefaultProbes))
}

// ProbeInterval returns the time between probe rounds.
func (p *IPPool) ProbeInterval() time.Duration {
	return ptr.Deref(p.conflictDetection().Interval, Duration{DefaultProbeInterval}).Duration
}

// ChecksGateway reports whether the gateway of the pool must answer before a pod starts.
func (p *IPPool) ChecksGateway() bool {
	return ptr.Deref(p.Spec.GatewayCheck, false) && p.Spec.Gateway != nil
}

// ChecksRoutes reports whether pods are refused whose routes take packets from their proper way.
func (p *IPPool) ChecksRoutes() bool { return ptr.Deref(p.Spec.RouteCheck, true) }

// TakesIPRequests reports whether pods may request addresses of the pool.
func (p *IPPool) TakesIPRequests() bool { return ptr.Deref(p.Spec.IPRequests, true) }

// Stock returns the number of addresses that each node may keep ready on each parent.
func (p *IPPool) Stock() int64 { return ptr.Deref(p.Spec.Warm, p.Status.Stock) }

// Cooldown returns the time for which a freed address is not handed out.
func (p *IPPool) Cooldown() time.Duration {
	if r := p.Spec.Reclaim; r != nil && r.Cooldown != nil {
		return r.Cooldown.Duration
	}
	return DefaultCooldown
}

// Gateway returns the gateway, an invalid address if there is none. The CRD refuses another text.
func (p *IPPool) Gateway() netip.Addr {
	gateway, _ := netip.ParseAddr(ptr.Deref(p.Spec.Gateway, ""))
	return gateway
}

// NeverLeased returns the gateway, and the virtual addresses: the single addresses that
// sourceGuardAllow.cidrs allows to pods without a lease. They may be outside of the subnet.
func (p *IPPool) NeverLeased() (all []netip.Addr) {
	if gateway := p.Gateway(); gateway.IsValid() {
		all = append(all, gateway)
	}
	for _, text := range ptr.Deref(p.Spec.SourceGuardAllow, SourceGuardAllow{}).CIDRs {
		if cidr, err := netip.ParsePrefix(text); err == nil && cidr.IsSingleIP() {
			all = append(all, cidr.Addr())
		}
	}
	return all
}

// MACFor returns the MAC that spec.macPolicy of the pool gives to an interface whose first address is
// addr: the prefix and the last four octets of the address. It returns nil if the pool gives no MAC.
func (p *IPPool) MACFor(addr netip.Addr) (net.HardwareAddr, error) {
	policy := p.Spec.MACPolicy
	if policy == nil || policy.Type == MACChosen {
		return nil, nil
	}
	prefix, err := net.ParseMAC(policy.Prefix + ":00:00:00:00")
	if err != nil || len(prefix) != 6 {
		return nil, fmt.Errorf("pool %s: spec.macPolicy.prefix %q is not two octets such as 0a:58", p.Name, policy.Prefix)
	}
	octets := addr.AsSlice()
	copy(prefix[2:], octets[len(octets)-4:])
	return prefix, nil
}

// TakesMAC reports whether a pod may choose a MAC for an interface whose first address is of the pool.
func (p *IPPool) TakesMAC(mac net.HardwareAddr) bool {
	policy := p.Spec.MACPolicy
	return policy != nil && policy.Type == MACChosen && strings.HasPrefix(mac.String(), policy.Prefix+":")
}

// InSubnetOf reports whether two pools have the same subnet, network and VLAN. Nodes that use them
// are probably on one segment. That is no proof: two segments that are not connected may have the
// same subnet, as long as no address is on both.
func (p *IPPool) InSubnetOf(other *IPPool) bool {
	mine, err := netip.ParsePrefix(p.Spec.Subnet)
	theirs, unreadable := netip.ParsePrefix(other.Spec.Subnet)
	return err == nil && unreadable == nil && mine.Masked() == theirs.Masked() &&
		p.Spec.Network == other.Spec.Network && ptr.Deref(p.Spec.Vlan, 0) == ptr.Deref(other.Spec.Vlan, 0)
}
