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

// askGateway asks for the gateway of a pool, if the pool checks it and this round has not asked. The
// address is leased and probed meanwhile: the function that it returns waits for the answer.
func (r *round) askGateway(ctx context.Context, pool *v1alpha1.IPPool) (answer func() error) {
	if answer, asked := r.gateways[pool.Name]; asked {
		return answer
	}
	answer = func() error { return nil }
	if pool.ChecksGateway() {
		done, err := make(chan struct{}), error(nil)
		go func() {
			defer close(done)
			err = r.checkGateway(ctx, pool)
		}()
		answer = func() error {
			<-done
			return err
		}
	}
	r.gateways[pool.Name] = answer
	return answer
}

// checkGateway returns an error if the gateway of a pool does not answer on the parent.
func (r *round) checkGateway(ctx context.Context, pool *v1alpha1.IPPool) error {
	gateway := pool.Gateway()
	own, err := r.a.OfNode(r.Link.Parent.Index, gateway)
	if err != nil {
		return fmt.Errorf("look for gateway %s of pool %s on this node: %w", gateway, pool.Name, err)
	}
	if own {
		unreached := "; a pod does not reach an address of its own parent"
		if r.Link.NodeEnd != 0 {
			unreached = ""
		}
		r.a.Events.Eventf(r.Pod, pool, corev1.EventTypeWarning, "GatewayNotChecked", "Bind",
			"gateway %s of pool %s is an address of node %s, which does not answer its own questions%s",
			gateway, pool.Name, r.a.Self.Name, unreached)
		return nil
	}
	reply, err := r.Segment.Ask(ctx, gateway)
	if err != nil {
		return refusal.New(refusal.TryAgain, "check gateway %s of pool %s on parent %s of node %s: %w",
			gateway, pool.Name, r.Link.Parent.Name, r.a.Self.Name, err)
	}
	if reply.Answered {
		return nil
	}
	r.a.Metrics.GatewayUnanswered(pool.Name)
	return refusal.New(refusal.TryAgain,
		"gateway %s of pool %s does not answer on parent %s of node %s: %s; spec.gatewayCheck of the pool switches this check off",
		gateway, pool.Name, r.Link.Parent.Name, r.a.Self.Name, adviceOn(reply.Hearing, pool))
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
