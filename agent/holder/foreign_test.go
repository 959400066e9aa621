// SPDX-License-Identifier: Apache-2.0

package holder_test

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/events"

	"github.com/fenceline/fenceline/agent/attachment"
	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/cni/agentapi"
	"github.com/fenceline/fenceline/internal/event"
	"github.com/fenceline/fenceline/internal/foreignhost"
	"github.com/fenceline/fenceline/test/check"
	"github.com/fenceline/fenceline/test/fakenode"
)

// proxied makes one host answer for every address of the subnet, except some.
func proxied(r *fakenode.Node, except ...string) {
	for addr := netip.MustParseAddr("10.0.0.1"); addr.As4()[3] < 255; addr = addr.Next() {
		if !slices.Contains(except, addr.String()) {
			r.Wire.Answers[addr] = fakenode.Stranger
		}
	}
}

// quarantined counts the Quarantined leases.
func quarantined(r *fakenode.Node) (n int) {
	for _, l := range r.API.Leases() {
		if l.Spec.State == v1alpha1.StateQuarantined {
			n++
		}
	}
	return n
}

func TestAProxyCostsAPoolAFewAddressesAndNotAll(t *testing.T) {
	r := fakenode.New(t, fakenode.V4("10.0.0.2-10.0.0.201"))
	proxied(r)
	text := r.Refused(agentapi.CodeTryAgainLater, r.Pod("web", "u1"))
	check.Says(t, text, fakenode.Stranger.String(), "pool v4", "ignoreMACs", "excludeIPs")
	n := len(r.API.Leases())
	check.Must(t, n == v1alpha1.ManyAddresses && quarantined(r) == n, "leases %v, want %d Quarantined ones", r.Names(), v1alpha1.ManyAddresses)
	probes := len(r.Wire.Did())
	check.That(t, probes == foreignhost.MaxConflicts+1, "%d probes, want MAX_CONFLICTS and one more", probes)
	// The retries of the runtime, and the ADDs of other pods.
	for range 20 {
		r.Refused(agentapi.CodeTryAgainLater, r.Pod("db", "u2"))
	}
	n = len(r.API.Leases())
	check.That(t, n == v1alpha1.ManyAddresses && quarantined(r) == n, "leases %v", r.Names())
	check.Equal(t, len(r.Wire.Did()), foreignhost.MaxConflicts+21, "each ADD in the interval tries one address: probes")
	// Neither time nor another agent adds to them.
	r.Skip(2 * foreignhost.Interval)
	r.Refused(agentapi.CodeTryAgainLater, r.Pod("web", "u3"))
	r.Restart()
	r.Refused(agentapi.CodeTryAgainLater, r.Pod("web", "u4"))
	n = len(r.API.Leases())
	check.That(t, n == v1alpha1.ManyAddresses && quarantined(r) == n, "leases %v", r.Names())
}

// A router with many addresses in the range of the pool must not keep pods from the others.
func TestAHostOfManyAddressesDoesNotKeepAPodFromTheOthers(t *testing.T) {
	r := fakenode.New(t, fakenode.V4("10.0.0.2-10.0.0.21"))
	proxied(r, "10.0.0.8", "10.0.0.12", "10.0.0.21")
	r.Gets(r.Pod("web", "u1"), "10.0.0.8")
	r.Gets(r.Pod("web", "u2"), "10.0.0.12")
	check.Equal(t, quarantined(r), v1alpha1.ManyAddresses, "Quarantined leases:")
	// More conflicts come than MAX_CONFLICTS in this interval.
	r.Refused(agentapi.CodeTryAgainLater, r.Pod("web", "u3"))
	r.Skip(foreignhost.Interval)
	r.Gets(r.Pod("web", "u4"), "10.0.0.21")
	check.That(t, quarantined(r) == v1alpha1.ManyAddresses, "leases %v", r.Names())
}

func TestOtherForeignHostsArePassedOverAsBefore(t *testing.T) {
	r := fakenode.New(t, fakenode.V4("10.0.0.2-10.0.0.40"))
	for i := range byte(30) {
		r.Wire.Answers[netip.AddrFrom4([4]byte{10, 0, 0, 2 + i})] = []byte{2, 0xbd, 0, 0, 1, i}
	}
	r.Gets(r.Pod("web", "u1"), "10.0.0.32")
	check.Equal(t, quarantined(r), 30, "Quarantined leases:")
}

func TestAnAddressThatWasAskedForIsRefusedAlsoIfItsHostHasMany(t *testing.T) {
	r := fakenode.New(t, fakenode.V4("10.0.0.2-10.0.0.201"))
	proxied(r)
	for i := range byte(5) {
		request := r.Pod("web", "u1")
		request.IPs = []netip.Addr{netip.AddrFrom4([4]byte{10, 0, 0, 100 + i})}
		r.Refused(agentapi.CodeAddressRefused, request)
	}
	check.That(t, len(r.API.Leases()) == v1alpha1.ManyAddresses, "leases %v", r.Names())
}

const gateway = "10.0.0.254"

// checked makes a pool check its gateway.
func checked(p *v1alpha1.IPPool) *v1alpha1.IPPool {
	p.Spec.Gateway, p.Spec.GatewayCheck = new(gateway), new(true)
	return p
}

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
			var counted []string
			r.Waits.OnSilence = func(pool string) { counted = append(counted, pool) }
			web := r.Pod(way.name, "u1", fakenode.OfStatefulSet)
			check.Says(t, r.Refused(agentapi.CodeTryAgainLater, web), gateway, "pool v4", "parent eth1", "VLAN", "cable", "spec.gateway")
			check.Says(t, eventOf(t, r.Recorder, "AddressRefused"), gateway)
			check.List(t, counted, []string{"v4"}, "counted")
			check.None(t, r.Attachments.All(), "journal")
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
			check.Equal(t, r.Wire.Times("ask "+gateway), 1, "asked times:")
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

func TestAPodIsRefusedWhoseRoutesTakePacketsFromTheirProperWay(t *testing.T) {
	const stolen = "10.96.0.0/16"
	for name, way := range ways {
		t.Run(name, func(t *testing.T) {
			for origin, c := range map[string]struct {
				pool func(*v1alpha1.IPPool)
				pod  func(*corev1.Pod)
				add  func(*agentapi.AddRequest)
			}{
				"spec.routes of pool v4":           {pool: func(p *v1alpha1.IPPool) { p.Spec.Routes = []v1alpha1.Route{{Dst: stolen, Gw: "10.0.0.1"}} }},
				"the annotation routes of the pod": {pod: fakenode.Annotated("ipam.fenceline.io/routes", `[{"dst":"`+stolen+`","gw":"10.0.0.1"}]`)},
				"ipam.routes of network underlay": {add: func(r *agentapi.AddRequest) {
					r.Network.Routes = []agentapi.Route{{Dst: netip.MustParsePrefix(stolen), GW: netip.MustParseAddr("10.0.0.1")}}
				}},
			} {
				t.Run(origin, func(t *testing.T) {
					pool := way.pool()
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
						text := r.Refused(agentapi.CodeInvalidNetworkConfig, web)
						check.Says(t, text, stolen, "the service CIDR 10.96.0.0/12", origin, "spec.routeCheck of pool v4")
					})
					check.That(t, creates+updates == 0 && len(r.Attachments.All()) == 0,
						"%d creates, %d updates, journal %v", creates, updates, r.Attachments.All())
					eventOf(t, r.Recorder, "AddressRefused")

					pool.Spec.RouteCheck = new(false)
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
	r.Services = func(context.Context) []netip.Prefix {
		<-answered
		return []netip.Prefix{netip.MustParsePrefix("10.96.0.0/12")}
	}
	answered <- struct{}{}
	check.Says(t, r.Refused(agentapi.CodeInvalidNetworkConfig, web), "10.96.0.0/12")

	pool.Spec.Routes = nil
	r.API.Put(pool)
	r.MustAdd(web)
	links := &waitingLinks{answered: answered}
	r.HostLinks = links
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

func (w *waitingLinks) Make(*attachment.Entry) error {
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

func TestFieldsWithoutEffectAreReportedOnce(t *testing.T) {
	r := fakenode.New(t, fakenode.V4("10.0.0.2-10.0.0.9"))
	told := func(pod string, network string, keys ...string) string {
		request := r.Pod(pod, "u-"+pod)
		request.Network.Name, request.Network.Ignored = network, keys
		r.MustAdd(request)
		return strings.Join(toldOf(r, "ConfigurationIgnored"), "\n")
	}
	want := "Warning ConfigurationIgnored the configuration of network blue has fields without effect: " +
		"ipam.log_level (remove it), ipam.ranges (use ips of a pool)"
	check.Equal(t, told("a", "blue", "ipam.log_level", "ipam.ranges"), want, "got")
	check.Equal(t, told("b", "blue", "ipam.log_level", "ipam.ranges"), "", "a second pod:")
	check.Says(t, told("c", "red", "ipam.exclude"), "network red")
	check.Says(t, told("d", "blue", "ipam.exclude"), "ipam.exclude (use excludeIPs of a pool)")
	check.Equal(t, told("e", "green"), "", "nothing is ignored:")
}

// A chained configuration whose type was "coordinator".
func TestFieldsOfTheCoordinatorAreReportedWithTheirEquivalents(t *testing.T) {
	r, web := fakenode.WithPod(t, fakenode.V4("10.0.0.2-10.0.0.9"))
	chained := web
	chained.Chained = true
	chained.Network.Ignored = []string{
		"detectGateway", "detectIPConflict", "hijackCIDR", "hostRPFilter", "hostRuleTable", "overlayPodCIDR", "podDefaultRouteNic",
		"podMACPrefix", "serviceCIDR", "tunePodRoutes", "vethLinkAddress",
	}
	r.Told()
	r.MustAdd(chained)
	check.Says(t, strings.Join(r.Told(), "\n"),
		"detectGateway (use gatewayCheck of a pool)", "detectIPConflict (every address is probed)", "hijackCIDR (use hostLinkCIDRs)",
		"hostRPFilter (it is set for each interface)", "hostRuleTable (remove it)", "overlayPodCIDR (use hostLinkCIDRs)",
		"podDefaultRouteNic (use the annotation default-route-nic)", "podMACPrefix (use macPolicy of a pool)",
		"serviceCIDR (use cni.hostLink.serviceCIDRs of the chart)", "tunePodRoutes (use mode)", "vethLinkAddress (remove it)")
	chained.Network.Ignored = nil
	for i := range 100 {
		chained.Network.Ignored = append(chained.Network.Ignored, fmt.Sprintf("a-field-of-some-other-plugin-%d", i))
	}
	r.MustAdd(chained)
	_, note, _ := strings.Cut(strings.Join(r.Told(), "\n"), "ConfigurationIgnored ")
	named := strings.Count(note, "remove it")
	check.That(t, len(note) <= event.MaxNote && named >= 10 && strings.HasSuffix(note, fmt.Sprintf(", and %d more fields", 100-named)),
		"%d bytes, %d fields: %q", len(note), named, note)
}

func TestRoutesOfTheConfiguration(t *testing.T) {
	const gateway = "10.0.0.1"
	for _, row := range []struct {
		name   string
		clean  bool
		routes []string
		want   []string
	}{
		{"are added", false, []string{"10.8.0.0/16 10.0.0.3", "fd08::/64 "}, []string{"0.0.0.0/0 ", "10.9.0.0/16 ", "10.8.0.0/16 10.0.0.3"}},
		{"give way to those of the pool", false, []string{"10.9.0.0/16 10.0.0.3", "0.0.0.0/0 10.0.0.3"}, []string{"0.0.0.0/0 ", "10.9.0.0/16 "}},
		{"make no default route with clean_gateway", true, []string{"0.0.0.0/0 10.0.0.3"}, []string{"10.9.0.0/16 "}},
	} {
		t.Run(row.name, func(t *testing.T) {
			pool := fakenode.V4("10.0.0.2")
			pool.Spec.Gateway, pool.Spec.Routes = new(gateway), []v1alpha1.Route{{Dst: "10.9.0.0/16"}}
			r := fakenode.New(t, pool)
			request := r.Pod("web", "u1")
			request.Network.CleanGateway = row.clean
			for _, text := range row.routes {
				dst, gw, _ := strings.Cut(text, " ")
				route := agentapi.Route{Dst: netip.MustParsePrefix(dst)}
				if gw != "" {
					route.GW = netip.MustParseAddr(gw)
				}
				request.Network.Routes = append(request.Network.Routes, route)
			}
			answer := check.Value(r.Add(t.Context(), request))(t)
			var got []string
			for _, route := range answer.Routes {
				gw := ""
				if route.GW.IsValid() && route.GW.String() != gateway {
					gw = route.GW.String()
				}
				got = append(got, fmt.Sprintf("%s %s", route.Dst, gw))
			}
			check.List(t, got, row.want, "got")
		})
	}
}
