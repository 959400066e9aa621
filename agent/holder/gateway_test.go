// SPDX-License-Identifier: Apache-2.0

package holder_test

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/tools/events"

	"github.com/fenceline/fenceline/agent/holder/node"
	"github.com/fenceline/fenceline/agent/holder/refusal"
	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/cni/agentapi"
	"github.com/fenceline/fenceline/test/check"
	"github.com/fenceline/fenceline/test/fakenode"
)

const gateway = "10.0.0.254"

// checked makes a pool check its gateway.
func checked(p *v1alpha1.IPPool) *v1alpha1.IPPool {
	yes, gw := true, gateway
	p.Spec.Gateway, p.Spec.GatewayCheck = &gw, &yes
	return p
}

// silences counts the gateways that did not answer.
type silences struct {
	node.Metrics
	pools []string
}

func (s *silences) GatewayUnanswered(pool string) { s.pools = append(s.pools, pool) }

// Every address that an ADD may find, and the way to it.
var ways = map[string]struct {
	pool    func() *v1alpha1.IPPool
	prepare func(*fakenode.Node)
	name    string
}{
	"a free address": {func() *v1alpha1.IPPool { return fakenode.V4("10.0.0.2-10.0.0.9") }, func(*fakenode.Node) {}, "web"},
	"a Warm lease": {func() *v1alpha1.IPPool { return fakenode.Warmed(fakenode.V4("10.0.0.2-10.0.0.9")) },
		func(r *fakenode.Node) { r.WarmLease("10.0.0.7", true) }, "web"},
	"a kept address": {func() *v1alpha1.IPPool { return fakenode.V4("10.0.0.2") }, func(r *fakenode.Node) {
		r.API.Put(fakenode.Held("10.0.0.2", fakenode.Quarantined(v1alpha1.ReasonPodTerminating)))
		r.Wire.Verdicts[fakenode.Two] = "Fenced"
	}, "web-0"},
}

func TestAnADDFailsWhileTheGatewayIsSilent(t *testing.T) {
	for name, way := range ways {
		t.Run(name, func(t *testing.T) {
			r := fakenode.New(t, checked(way.pool()))
			way.prepare(r)
			r.Wire.Silent = map[netip.Addr]bool{netip.MustParseAddr(gateway): true}
			counted := &silences{Metrics: r.Metrics}
			r.Metrics = counted
			web := r.Pod(way.name, "u1", fakenode.OfStatefulSet)
			_, err := r.Add(t.Context(), web)
			check.Must(t, err != nil, "the pod has an address")
			answer := refusal.Answer(err)
			check.Equal(t, answer.Code, agentapi.CodeTryAgainLater, "code")
			check.Says(t, answer.Msg, gateway, "pool v4", "parent eth1", "VLAN", "cable", "spec.gateway")
			check.Says(t, eventOf(t, r.Recorder, "AddressRefused"), gateway)
			check.That(t, strings.Join(counted.pools, " ") == "v4", "counted %v", counted.pools)
			check.None(t, r.Journal.All(), "journal")
			r.Wire.Silent = nil
			r.MustAdd(web)
		})
	}
}

// eventOf waits for an event of a reason.
func eventOf(t *testing.T, recorder *events.FakeRecorder, reason string) string {
	t.Helper()
	for {
		select {
		case text := <-recorder.Events:
			if strings.Contains(text, reason) {
				return text
			}
		case <-time.After(10 * time.Second):
			t.Fatalf("no event %s", reason)
		}
	}
}

func TestAnADDAsksForTheGatewayOnce(t *testing.T) {
	for name, way := range ways {
		t.Run(name, func(t *testing.T) {
			r := fakenode.New(t, checked(way.pool()))
			way.prepare(r)
			r.MustAdd(r.Pod(way.name, "u1", fakenode.OfStatefulSet))
			n := r.Wire.Times("ask " + gateway)
			check.That(t, n == 1, "asked %d times", n)
		})
	}
}

func TestNoGatewayIsAskedForWithoutTheCheckOrWithoutAGateway(t *testing.T) {
	for name, change := range map[string]func(*v1alpha1.IPPool){
		"the check is unset": func(p *v1alpha1.IPPool) { p.Spec.GatewayCheck = nil },
		"the check is off":   func(p *v1alpha1.IPPool) { p.Spec.GatewayCheck = new(bool) },
		"no gateway":         func(p *v1alpha1.IPPool) { p.Spec.Gateway = nil },
	} {
		t.Run(name, func(t *testing.T) {
			pool := checked(fakenode.V4("10.0.0.2-10.0.0.9"))
			change(pool)
			r := fakenode.New(t, pool)
			r.Wire.Silent = map[netip.Addr]bool{netip.MustParseAddr(gateway): true}
			r.MustAdd(r.Pod("web", "u1"))
			check.That(t, !r.Wire.Took("ask "+gateway), "it was asked for")
		})
	}
}

// The kernel of the node does not answer its own question, and the answer would say nothing about the parent.
func TestAGatewayOnTheNodeItselfIsReportedAndNotAskedFor(t *testing.T) {
	r := fakenode.New(t, checked(fakenode.V4("10.0.0.2-10.0.0.9")))
	r.OwnAddr = netip.MustParseAddr(gateway)
	r.Wire.Silent = map[netip.Addr]bool{r.OwnAddr: true}
	r.MustAdd(r.Pod("web", "u1"))
	check.That(t, !r.Wire.Took("ask "+gateway), "it was asked for")
	eventOf(t, r.Recorder, "GatewayNotChecked")
}
