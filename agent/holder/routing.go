// SPDX-License-Identifier: Apache-2.0

package holder

import (
	"context"
	"net/netip"
	"slices"

	"github.com/fenceline/fenceline/agent/attachment"
	"github.com/fenceline/fenceline/agent/ipam"
	"github.com/fenceline/fenceline/agent/lease"
	"github.com/fenceline/fenceline/cni/agentapi"
)

// routed has the facts for the decision about the routing of an interface.
type routed struct {
	asked agentapi.Routing
	// ifname is the interface, and first the routing of the pod's first interface, or nil.
	ifname string
	first  *attachment.Routing
	// defaultRoute is the interface that the annotation default-route-nic names, "" if there is none.
	defaultRoute string
	configured   []agentapi.ConfiguredAddress
	addresses    []attachment.Address
}

// decideRouting returns the routing of an interface, nil for none.
func decideRouting(r routed) *attachment.Routing {
	mode := r.asked.Mode
	isFirst := r.ifname == ipam.FirstInterface
	if mode == "" || mode == agentapi.ModeAuto {
		mode = agentapi.ModeOverlay
		if isFirst || r.first != nil && r.first.First {
			mode = agentapi.ModeUnderlay
		}
	}
	if mode == agentapi.ModeOff {
		return nil
	}
	routing := &attachment.Routing{
		First:    isFirst && mode == agentapi.ModeUnderlay,
		HostLink: isFirst && mode == agentapi.ModeUnderlay,
		// In mode underlay the first interface is ours too, and has no default route then.
		TakesDefault: mode == agentapi.ModeOverlay && r.defaultRoute == r.ifname,
		Listed:       r.asked.HostLinkCIDRs,
		TxQueueLen:   r.asked.TxQueueLen,
	}
	if r.asked.HostLink != nil {
		routing.HostLink = *r.asked.HostLink
	}
	// The routes of the pod are those of its first interface, unless an annotation says otherwise.
	routing.OwnTable = !routing.First || r.defaultRoute != "" && r.defaultRoute != r.ifname
	for _, c := range r.configured {
		addr := c.Address.Addr().Unmap()
		if !slices.ContainsFunc(r.addresses, func(a attachment.Address) bool { return a.Addr == addr }) {
			continue // another plugin gave it
		}
		routing.Subnets = append(routing.Subnets, netip.PrefixFrom(addr, c.Address.Bits()))
		if gw := c.Gateway.Unmap(); gw.IsValid() && !slices.Contains(routing.Gateways, gw) {
			routing.Gateways = append(routing.Gateways, gw)
		}
	}
	return routing
}

// route makes the routing of an interface at the end of its chain of plugins. The journal is first: a
// restart completes or removes what it records. The runtime repeats an ADD that fails.
func (h *Holders) route(ctx context.Context, r agentapi.AddRequest) error {
	defer h.Attachments.Calls.Lock(r.Attachment)()
	e, ok := h.Attachments.Get(r.ContainerID, r.Interface)
	if !ok || e.Phase != attachment.Bound || e.Session != h.Self.Session {
		return nil // a DEL has come meanwhile
	}
	pod, err := h.pod(ctx, r.Pod)
	if e.HasMoved() && lease.IsUnavailable(err) {
		if e.Routing == nil {
			return nil // the older sandbox had none: the mode is off
		}
		return h.HostLinks.Make(&e)
	}
	if err != nil {
		return err
	}
	who := podOf(pod)
	asked, err := ipam.RoutingOf(who, r.Interface, r.Routing)
	if err != nil {
		return err
	}
	d := routed{
		asked: asked, ifname: r.Interface, defaultRoute: ipam.DefaultRouteInterface(who),
		configured: r.Configured, addresses: e.Addresses,
	}
	if first, ok := h.Attachments.Get(r.ContainerID, ipam.FirstInterface); ok && first.Phase == attachment.Bound {
		d.first = first.Routing
	}
	e.Routing = decideRouting(d)
	if err := h.Attachments.Put(e); err != nil {
		return err
	}
	h.Services(ctx) // a host link needs them
	return h.HostLinks.Make(&e)
}
