// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"net/netip"
	"reflect"
	"testing"

	"github.com/fenceline/fenceline/cni/agentapi"
	"github.com/fenceline/fenceline/test/check"
)

func dualStack() *agentapi.AddResponse {
	return &agentapi.AddResponse{
		IPs: []agentapi.IP{
			{Address: netip.MustParsePrefix("192.0.2.7/24"), Gateway: netip.MustParseAddr("192.0.2.1")},
			{Address: netip.MustParsePrefix("2001:db8::7/64")},
		},
		Routes: []agentapi.Route{
			{Dst: netip.MustParsePrefix("0.0.0.0/0"), GW: netip.MustParseAddr("192.0.2.1")},
			{Dst: netip.MustParsePrefix("2001:db8:1::/48")},
		},
	}
}

// TestTheResultHasTheFormOfItsVersion compares with the results of the
// specification at each version: 0.x tells the family of an address, 1.x does not.
func TestTheResultHasTheFormOfItsVersion(t *testing.T) {
	routes := `"routes":[{"dst":"0.0.0.0/0","gw":"192.0.2.1"},{"dst":"2001:db8:1::/48"}]`
	v0 := `"ips":[{"version":"4","address":"192.0.2.7/24","gateway":"192.0.2.1"},{"version":"6","address":"2001:db8::7/64"}],` + routes + `,"dns":{}`
	v1 := `"ips":[{"address":"192.0.2.7/24","gateway":"192.0.2.1"},{"address":"2001:db8::7/64"}],` + routes
	for version, want := range map[string]string{
		"0.3.1": v0, "0.4.0": v0, "1.0.0": v1, "1.1.0": v1,
	} {
		t.Run(version, func(t *testing.T) {
			r, err := result(dualStack())
			check.OK(t, err)
			var out bytes.Buffer
			check.OK(t, (plugin{stdout: &out}).print(r, version))
			wantJSON(t, out.Bytes(), `{"cniVersion":"`+version+`",`+want+`}`)
		})
	}
}

func TestAnAnswerThatIsNoResultIsRefused(t *testing.T) {
	for name, answer := range map[string]*agentapi.AddResponse{
		"no address":         {},
		"an invalid address": {IPs: []agentapi.IP{{}}},
		"a route to nowhere": {IPs: dualStack().IPs, Routes: []agentapi.Route{{}}},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := result(answer)
			wantCode(t, err, agentapi.CodeInternal)
		})
	}
}

func TestConfiguredAddressesAreThoseOfTheInterfaceInTheContainer(t *testing.T) {
	conf, err := parseNetConf([]byte(`{"cniVersion":"1.0.0","name":"n","type":"fenceline","prevResult":{"cniVersion":"1.0.0",
		"interfaces":[
			{"name":"eth0","mac":"02:00:00:00:00:01","sandbox":"/run/netns/a"},
			{"name":"eth0","mac":"02:00:00:00:00:02"},
			{"name":"net1","mac":"02:00:00:00:00:03","sandbox":"/run/netns/a"}],
		"ips":[
			{"address":"192.0.2.7/24","interface":0},
			{"address":"192.0.2.8/24","interface":1},
			{"address":"192.0.2.9/24","interface":2},
			{"address":"2001:db8::7/64"}]}}`))
	check.OK(t, err)
	r, err := conf.previous()
	check.OK(t, err)
	want := []agentapi.ConfiguredAddress{
		{Address: netip.MustParsePrefix("192.0.2.7/24"), Interface: "eth0", MAC: "02:00:00:00:00:01"},
		{Address: netip.MustParsePrefix("2001:db8::7/64")},
	}
	if got := configured(r, "eth0"); !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}

func wantJSON(t *testing.T, got []byte, want string) {
	t.Helper()
	var g, w any
	if err := json.Unmarshal(got, &g); err != nil {
		t.Fatalf("decode %q: %v", got, err)
	}
	check.OK(t, json.Unmarshal([]byte(want), &w))
	if !reflect.DeepEqual(g, w) {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}
