// SPDX-License-Identifier: Apache-2.0

package holder_test

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/cni/agentapi"
	"github.com/fenceline/fenceline/internal/event"
	"github.com/fenceline/fenceline/test/check"
	"github.com/fenceline/fenceline/test/fakenode"
)

func TestFieldsWithoutEffectAreReportedOnce(t *testing.T) {
	r := fakenode.New(t, fakenode.V4("10.0.0.2-10.0.0.9"))
	told := func(pod string, network string, keys ...string) string {
		request := r.Pod(pod, "u-"+pod)
		request.Network.Name, request.Network.Ignored = network, keys
		r.MustAdd(request)
		return strings.Join(slices.DeleteFunc(r.Told(), func(e string) bool { return !strings.Contains(e, "ConfigurationIgnored") }), "\n")
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
	told := strings.Join(r.Told(), "\n")
	for _, want := range []string{
		"detectGateway (use gatewayCheck of a pool)", "detectIPConflict (every address is probed)", "hijackCIDR (use hostLinkCIDRs)",
		"hostRPFilter (it is set for each interface)", "hostRuleTable (remove it)", "overlayPodCIDR (use hostLinkCIDRs)",
		"podDefaultRouteNic (use the annotation default-route-nic)", "podMACPrefix (use macPolicy of a pool)",
		"serviceCIDR (use cni.hostLink.serviceCIDRs of the chart)", "tunePodRoutes (use mode)", "vethLinkAddress (remove it)",
	} {
		check.Says(t, told, want)
	}
	chained.Network.Ignored = nil
	for i := range 100 {
		chained.Network.Ignored = append(chained.Network.Ignored, fmt.Sprintf("a-field-of-some-other-plugin-%d", i))
	}
	r.MustAdd(chained)
	told = strings.Join(r.Told(), "\n")
	_, note, _ := strings.Cut(told, "ConfigurationIgnored ")
	named := strings.Count(note, "remove it")
	if len(note) > event.MaxNote || named < 10 || !strings.HasSuffix(note, fmt.Sprintf(", and %d more fields", 100-named)) {
		t.Errorf("%d bytes, %d fields: %q", len(note), named, note)
	}
}

func TestRoutesOfTheConfiguration(t *testing.T) {
	gateway := "10.0.0.1"
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
			pool.Spec.Gateway, pool.Spec.Routes = &gateway, []v1alpha1.Route{{Dst: "10.9.0.0/16"}}
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
