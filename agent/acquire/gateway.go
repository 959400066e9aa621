// SPDX-License-Identifier: Apache-2.0

package acquire

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"github.com/fenceline/fenceline/agent/refusal"
	"github.com/fenceline/fenceline/agent/segment"
	"github.com/fenceline/fenceline/apis/v1alpha1"
)

// askGateway asks for the gateway of a pool, if the pool checks it and this ADD has not asked. It
// does not wait for the answer: the address is leased and probed meanwhile.
func (a *Try) askGateway(ctx context.Context, pool *v1alpha1.IPPool) {
	if _, asked := a.gateways[pool.Name]; asked || !pool.ChecksGateway() {
		return
	}
	if a.gateways == nil {
		a.gateways = map[string]<-chan error{}
	}
	result := make(chan error, 1)
	a.gateways[pool.Name] = result
	go func() { result <- a.checkGateway(ctx, pool) }()
}

// AwaitGateways waits for the gateways of the pools whose addresses the interface has.
func (a *Try) AwaitGateways() error {
	for _, b := range a.Won {
		result, asked := a.gateways[b.Pool.Name]
		if !asked {
			continue
		}
		delete(a.gateways, b.Pool.Name)
		if err := <-result; err != nil {
			return err
		}
	}
	return nil
}

// checkGateway returns an error if the gateway of a pool does not answer on the parent.
func (a *Try) checkGateway(ctx context.Context, pool *v1alpha1.IPPool) error {
	gateway := pool.Gateway()
	own, err := a.h.OfNode(a.Link.Parent.Index, gateway)
	if err != nil {
		return fmt.Errorf("look for gateway %s of pool %s on this node: %w", gateway, pool.Name, err)
	}
	if own {
		a.h.Events.Eventf(a.Pod, pool, corev1.EventTypeWarning, "GatewayNotChecked", "Bind",
			"gateway %s of pool %s is an address of node %s, which does not answer its own questions; a pod does not reach an address of its own parent",
			gateway, pool.Name, a.h.Node)
		return nil
	}
	reply, err := a.Seg.Ask(ctx, gateway)
	if err != nil {
		return refusal.New(refusal.TryAgain, "check gateway %s of pool %s on parent %s of node %s: %w",
			gateway, pool.Name, a.Link.Parent.Name, a.h.Node, err)
	}
	if reply.Answered {
		return nil
	}
	a.h.Metrics.GatewayUnanswered(pool.Name)
	return refusal.New(refusal.TryAgain,
		"gateway %s of pool %s does not answer on parent %s of node %s: %s; spec.gatewayCheck of the pool switches this check off",
		gateway, pool.Name, a.Link.Parent.Name, a.h.Node, adviceOn(reply.Hearing, pool))
}

// adviceOn names the places to look at if a gateway does not answer.
func adviceOn(h segment.Hearing, pool *v1alpha1.IPPool) string {
	vlan := ""
	if v := pool.Spec.Vlan; v != nil {
		vlan = fmt.Sprintf(" (spec.vlan is %d)", *v)
	}
	switch {
	case !h.Carrier:
		return "the parent has no carrier, look at the cable and the switch port"
	case !h.Observed:
		return "the parent has no observer, look at the agent's log"
	case h.Others:
		return "the parent hears other nodes, so look at the router, at spec.gateway, and at the VLAN of the parent" + vlan
	}
	return "look at the VLAN of the parent" + vlan + ", the cable and switch port, the router, and spec.gateway"
}
