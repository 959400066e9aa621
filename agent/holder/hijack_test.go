// SPDX-License-Identifier: Apache-2.0

package holder_test

import (
	"net/netip"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/fenceline/fenceline/agent/holder/refusal"
	"github.com/fenceline/fenceline/agent/journal"
	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/cni/agentapi"
	"github.com/fenceline/fenceline/test/check"
	"github.com/fenceline/fenceline/test/fakenode"
)

func TestAPodIsRefusedWhoseRoutesTakePacketsFromTheirProperWay(t *testing.T) {
	const stolen = "10.96.0.0/16"
	for name, way := range ways {
		t.Run(name, func(t *testing.T) {
			for origin, c := range map[string]struct {
				pool func(*v1alpha1.IPPool)
				pod  func(*corev1.Pod)
				add  func(*agentapi.AddRequest)
			}{
				"spec.routes of pool v4": {pool: func(p *v1alpha1.IPPool) {
					p.Spec.Routes = []v1alpha1.Route{{Dst: stolen, Gw: "10.0.0.1"}}
				}},
				"the annotation routes of the pod": {pod: fakenode.Annotated("ipam.fenceline.io/routes", `[{"dst":"`+stolen+`","gw":"10.0.0.1"}]`)},
				"ipam.routes of network underlay": {add: func(r *agentapi.AddRequest) {
					r.Network.Routes = []agentapi.Route{{Dst: netip.MustParsePrefix(stolen), GW: netip.MustParseAddr("10.0.0.1")}}
				}},
			} {
				t.Run(origin, func(t *testing.T) {
					pool, no := way.pool(), false
					if c.pool != nil {
						c.pool(pool)
					}
					r := fakenode.New(t, pool)
					r.ServiceCIDRs = []netip.Prefix{netip.MustParsePrefix("10.96.0.0/12")}
					way.prepare(r)
					change := []func(*corev1.Pod){fakenode.OfStatefulSet}
					if c.pod != nil {
						change = append(change, c.pod)
					}
					web := r.Pod(way.name, "u1", change...)
					if c.add != nil {
						c.add(&web)
					}
					creates, updates := fakenode.CountCalls(t, r, func() {
						_, err := r.Add(t.Context(), web)
						check.Must(t, err != nil, "the pod has an address")
						answer := refusal.Answer(err)
						for _, part := range []string{stolen, "the service CIDR 10.96.0.0/12", origin, "spec.routeCheck of pool v4"} {
							if answer.Code != agentapi.CodeInvalidNetworkConfig || !strings.Contains(answer.Msg, part) {
								t.Errorf("code %d, %q, want code 7 and %q", answer.Code, answer.Msg, part)
							}
						}
					})
					if creates+updates > 0 || len(r.Journal.All()) > 0 {
						t.Errorf("%d creates, %d updates, journal %v", creates, updates, r.Journal.All())
					}
					eventOf(t, r.Recorder, "AddressRefused")

					pool.Spec.RouteCheck = &no
					r.API.Put(pool)
					r.MustAdd(web)
				})
			}
		})
	}
}

// The agent serves calls before it has read the service CIDRs.
func TestTheFirstADDsWaitForTheServiceCIDRs(t *testing.T) {
	pool := fakenode.V4("10.0.0.2")
	pool.Spec.Routes = []v1alpha1.Route{{Dst: "10.96.0.0/16", Gw: "10.0.0.1"}}
	r := fakenode.New(t, pool)
	web := r.Pod("web", "u1")
	// The answer is known once somebody has waited for it.
	answered := make(chan struct{}, 1)
	r.Holders.ServicesAnswered = answered
	r.Holders.Services = func() []netip.Prefix {
		if len(answered) > 0 {
			return nil
		}
		return []netip.Prefix{netip.MustParsePrefix("10.96.0.0/12")}
	}
	answered <- struct{}{}
	_, err := r.Add(t.Context(), web)
	check.Must(t, err != nil && strings.Contains(refusal.Answer(err).Msg, "10.96.0.0/12"), "got %v", err)

	pool.Spec.Routes = nil
	r.API.Put(pool)
	r.MustAdd(web)
	links := &waitingLinks{answered: answered}
	r.Holders.HostLinks = links
	answered <- struct{}{}
	chained(r, web)
	check.That(t, links.knew, "the host link was made before the service CIDRs were known")
}

// waitingLinks record whether somebody had waited for the service CIDRs before the host link was made.
type waitingLinks struct {
	fakenode.NoHostLinks
	answered chan struct{}
	knew     bool
}

func (w *waitingLinks) Make(*journal.Entry) error {
	w.knew = len(w.answered) == 0
	return nil
}

func TestRoutesOfTheNodesSubnetAreRefusedToo(t *testing.T) {
	pool := fakenode.V4("10.0.0.2")
	pool.Spec.Routes = []v1alpha1.Route{{Dst: "172.16.0.0/16", Gw: "10.0.0.1"}}
	r := fakenode.New(t, pool)
	web := r.Pod("web", "u1")
	r.NodeSubnets = []netip.Prefix{netip.MustParsePrefix("172.16.0.0/16")}
	r.Refused(agentapi.CodeInvalidNetworkConfig, web)
	r.NodeSubnets = nil
	r.MustAdd(web)
}
