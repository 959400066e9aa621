// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"net/netip"
	"reflect"
	"strings"
	"testing"

	"github.com/fenceline/fenceline/cni/agentapi"
	"github.com/fenceline/fenceline/test/check"
)

// A configuration of another IPAM whose type was changed.
func TestFieldsOfOtherIPAMsAreHonouredOrNamed(t *testing.T) {
	route := func(dst, gw string) agentapi.Route {
		r := agentapi.Route{Dst: netip.MustParsePrefix(dst)}
		if gw != "" {
			r.GW = netip.MustParseAddr(gw)
		}
		return r
	}
	for name, c := range map[string]struct {
		ipam string
		want agentapi.Network
		says string
	}{
		"fields of Fenceline": {ipam: `"default_ipv4_ippool":["a"],"socket":"/s","spool":"/p","status_grace":"1s"`,
			want: agentapi.Network{DefaultIPv4IPPool: []string{"a"}}},
		"routes": {ipam: `"routes":[{"dst":"0.0.0.0/0"},{"dst":"192.168.7.9/16","gw":"10.10.5.1"},{"dst":"fd08::/64"}]`,
			want: agentapi.Network{Routes: []agentapi.Route{route("0.0.0.0/0", ""), route("192.168.0.0/16", "10.10.5.1"), route("fd08::/64", "")}}},
		"no default route":        {ipam: `"clean_gateway":true`, want: agentapi.Network{CleanGateway: true}},
		"host-local":              {ipam: `"ranges":[[{"subnet":"10.0.0.0/8"}]],"dataDir":"/run/x"`, want: agentapi.Network{Ignored: []string{"ipam.dataDir", "ipam.ranges"}}},
		"whereabouts":             {ipam: `"range":"10.0.0.0/8","exclude":["10.0.0.1/32"]`, want: agentapi.Network{Ignored: []string{"ipam.exclude", "ipam.range"}}},
		"Spiderpool":              {ipam: `"match_master_subnet":true,"log_level":"INFO"`, want: agentapi.Network{Ignored: []string{"ipam.log_level", "ipam.match_master_subnet"}}},
		"a route that is none":    {ipam: `"routes":"10.0.0.0/8"`, says: `"ipam.routes" is "10.0.0.0/8"`},
		"a route of two families": {ipam: `"routes":[{"dst":"10.0.0.0/8","gw":"fd00::1"}]`, says: "dst and gw must be of one family"},
		"a word for true":         {ipam: `"clean_gateway":"yes"`, says: `"ipam.clean_gateway" is "yes": write true or false`},
	} {
		t.Run(name, func(t *testing.T) {
			conf, err := parseNetConf(fmt.Appendf(nil, `{"name":"n","type":"macvlan","ipam":{"type":"fenceline",%s}}`, c.ipam))
			check.Must(t, err == nil, "a DEL would fail: %v", err)
			got, err := conf.addNetwork()
			if c.says != "" {
				check.That(t, err != nil && strings.Contains(err.Error(), c.says), "got %v, want %s", err, c.says)
				return
			}
			c.want.Name, c.want.Type = "n", "macvlan"
			if len(got.Ignored) == 0 {
				got.Ignored = nil
			}
			check.That(t, err == nil && reflect.DeepEqual(got, c.want), "got %+v, %v, want %+v", got, err, c.want)
		})
	}
}

// A configuration of Spiderpool's coordinator whose type was changed.
func TestFieldsOfTheCoordinatorAreNamed(t *testing.T) {
	conf := check.Value(parseNetConf([]byte(`{"cniVersion":"1.0.0","name":"n","type":"fenceline","MODE":"auto","txQueueLen":0,"hostlink":true,
		"args":{},"runtimeConfig":{},"capabilities":{},"prevResult":{},"cni.dev/valid-attachments":[],
		"detectGateway":true,"podDefaultRouteNic":"eth0","logOptions":{},"ipam":{"socket":"/s","routes":[],"ranges":[]}}`)))(t)
	got, err := conf.addNetwork()
	want := []string{"detectGateway", "ipam.ranges", "ipam.routes", "logOptions", "podDefaultRouteNic"}
	check.That(t, err == nil && reflect.DeepEqual(got.Ignored, want), "got %q, %v, want %q", got.Ignored, err, want)
}
