// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"strings"
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
	for version, want := range map[string]string{"0.3.1": v0, "0.4.0": v0, "1.0.0": v1, "1.1.0": v1} {
		t.Run(version, func(t *testing.T) {
			r := check.Value(result(dualStack()))(t)
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
	r := check.Value(conf.previous())(t)
	want := []agentapi.ConfiguredAddress{
		{Address: netip.MustParsePrefix("192.0.2.7/24"), Interface: "eth0", MAC: "02:00:00:00:00:01"},
		{Address: netip.MustParsePrefix("2001:db8::7/64")},
	}
	got := configured(r, "eth0")
	check.That(t, reflect.DeepEqual(got, want), "got  %+v\nwant %+v", got, want)
}

func wantJSON(t *testing.T, got []byte, want string) {
	t.Helper()
	var g, w any
	check.OK(t, json.Unmarshal(got, &g))
	check.OK(t, json.Unmarshal([]byte(want), &w))
	check.Same(t, g, w, "JSON")
}

func TestAChainedADDCarriesItsRouting(t *testing.T) {
	for name, c := range map[string]struct{ fields, routing string }{
		"the default":            {``, ``},
		"null is the default":    {`"mode":null,"hostLink":null,"hostLinkCIDRs":null,"txQueueLen":null,`, ``},
		"a mode":                 {`"mode":"overlay",`, `"mode":"overlay"`},
		"no host link":           {`"hostLink":false,`, `"hostLink":false`},
		"destinations":           {`"hostLinkCIDRs":["10.0.0.0/8","169.254.20.10/32","fd00:8::/32"],`, `"hostLinkCIDRs":["10.0.0.0/8","169.254.20.10/32","fd00:8::/32"]`},
		"a destination twice":    {`"hostLinkCIDRs":["10.0.0.0/8","10.0.0.0/8"],`, `"hostLinkCIDRs":["10.0.0.0/8"]`},
		"the length of a queue":  {`"txQueueLen":2000,`, `"txQueueLen":2000`},
		"off, without host link": {`"mode":"off","hostLink":false,`, `"mode":"off","hostLink":false`},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t)
			agent := listen(t, n, answers{add: &agentapi.AddResponse{}})
			check.Value(run("ADD", args(n.conf("fenceline", "1.1.0", prevResult+c.fields))))(t)
			var sent struct{ Routing json.RawMessage }
			check.OK(t, json.Unmarshal(agent.request(agentapi.PathAdd), &sent))
			if c.routing == "" {
				check.That(t, sent.Routing == nil, "the request has the routing %s", sent.Routing)
				return
			}
			wantJSON(t, sent.Routing, "{"+c.routing+"}")
		})
	}
}

func TestARoutingThatIsWrongNeverReachesTheAgent(t *testing.T) {
	many := strings.Repeat(`"10.0.0.0/8",`, mostCIDRs) + `"10.0.0.0/8"`
	for name, c := range map[string]struct {
		kind, fields string
		says         []string
	}{
		"an unknown mode":                {"fenceline", `"mode":"bridge"`, []string{`"mode" is "bridge"`, `"underlay"`, `"auto"`, "remove it"}},
		"an empty mode":                  {"fenceline", `"mode":""`, []string{`"mode" is ""`}},
		"a mode that is no text":         {"fenceline", `"mode":1`, []string{`"mode" is 1`}},
		"a mode of the coordinator":      {"fenceline", `"mode":"disable"`, []string{`"disable"`, `write "off"`}},
		"a word for true":                {"fenceline", `"hostLink":"true"`, []string{`"hostLink" is "true"`, "write true or false"}},
		"a host link in mode off":        {"fenceline", `"mode":"off","hostLink":true`, []string{`"hostLink" is true`, `"mode" is "off"`}},
		"CIDRs that are no list":         {"fenceline", `"hostLinkCIDRs":"10.0.0.0/8"`, []string{`"hostLinkCIDRs" is "10.0.0.0/8"`, "write a list"}},
		"an address for a CIDR":          {"fenceline", `"hostLinkCIDRs":["10.0.0.1"]`, []string{`"hostLinkCIDRs" holds "10.0.0.1"`, "no CIDR"}},
		"a CIDR with bits of a host":     {"fenceline", `"hostLinkCIDRs":["10.0.0.1/8"]`, []string{`"10.0.0.1/8"`, "write 10.0.0.0/8"}},
		"the default route":              {"fenceline", `"hostLinkCIDRs":["0.0.0.0/0"]`, []string{`"0.0.0.0/0"`, "default route"}},
		"the default route of IPv6":      {"fenceline", `"hostLinkCIDRs":["::/0"]`, []string{`"::/0"`, "default route"}},
		"IPv4 in IPv6":                   {"fenceline", `"hostLinkCIDRs":["::ffff:10.0.0.0/104"]`, []string{"write it as IPv4"}},
		"loopback":                       {"fenceline", `"hostLinkCIDRs":["127.0.0.0/8"]`, []string{`"127.0.0.0/8"`, "remove it"}},
		"multicast":                      {"fenceline", `"hostLinkCIDRs":["ff02::/16"]`, []string{`"ff02::/16"`, "remove it"}},
		"link-local":                     {"fenceline", `"hostLinkCIDRs":["fe80::/64"]`, []string{`"fe80::/64"`, "remove it"}},
		"too many CIDRs":                 {"fenceline", `"hostLinkCIDRs":[` + many + `]`, []string{`"hostLinkCIDRs" has 257 entries`}},
		"a negative queue":               {"fenceline", `"txQueueLen":-1`, []string{`"txQueueLen" is -1`, "from 0"}},
		"a queue of half a frame":        {"fenceline", `"txQueueLen":0.5`, []string{`"txQueueLen" is 0.5`}},
		"a queue that no kernel takes":   {"fenceline", `"txQueueLen":4294967296`, []string{`"txQueueLen" is 4294967296`}},
		"a host link beside macvlan":     {"macvlan", `"hostLink":true`, []string{`"hostLink" is true beside "type": "macvlan"`, `chain {"type": "fenceline", "hostLink": true}`}},
		"CIDRs beside macvlan":           {"macvlan", `"hostLinkCIDRs":["10.0.0.0/8"]`, []string{`"hostLinkCIDRs" is ["10.0.0.0/8"]`, "chain"}},
		"a queue beside macvlan":         {"macvlan", `"txQueueLen":1`, []string{`"txQueueLen" is 1`, "chain"}},
		"a host link in ipam of macvlan": {"macvlan", `ipam: "hostLink":true`, []string{`"ipam.hostLink" is true`, "chain"}},
		"a mode in ipam":                 {"fenceline", `ipam: "mode":"underlay"`, []string{`"ipam.mode" is "underlay"`, "chain"}},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t)
			agent := listen(t, n, answers{add: &agentapi.AddResponse{}})
			stdin := n.conf(c.kind, "1.1.0", prevResult+c.fields+",")
			if inIPAM, ok := strings.CutPrefix(c.fields, "ipam: "); ok {
				stdin = []byte(strings.Replace(string(n.conf(c.kind, "1.1.0", prevResult)), `"ipam":{`, `"ipam":{`+inIPAM+",", 1))
			}
			_, err := run("ADD", args(stdin))
			wantCNI(t, err, 7, c.says...)
			sent := agent.request(agentapi.PathAdd)
			check.That(t, sent == nil, "the agent was asked: %s", sent)
			// What an ADD refuses was made by an older configuration, and must go.
			check.Is(t, check.Err(run("DEL", args(stdin))), nil, "DEL:")
		})
	}
}

// A test of the chart holds it to these files.
func TestTheConfigurationsOfTheChartAreUnderstood(t *testing.T) {
	files, err := filepath.Glob("../test/records/testdata/*.conflist")
	check.Must(t, err == nil && len(files) != 0, "%d files, %v", len(files), err)
	for _, file := range files {
		var list struct{ Plugins []json.RawMessage }
		check.OK(t, json.Unmarshal(check.Value(os.ReadFile(file))(t), &list))
		for i, stdin := range list.Plugins[:min(2, len(list.Plugins))] { // others may follow, such as portmap
			conf, err := parseNetConf(stdin)
			if err != nil {
				t.Errorf("%s: plugin %d: %v", file, i, err)
				continue
			}
			network, err := conf.addNetwork()
			if err := errors.Join(err, conf.misplaced()); err != nil || len(network.Ignored) > 0 || conf.chained() != (i == 1) {
				t.Errorf("%s: plugin %d: %v, ignored %q, chained %v", file, i, err, network.Ignored, conf.chained())
			}
			if !conf.chained() {
				continue
			}
			check.Is(t, check.Err(conf.routingConf.decode()), nil, "%s: plugin %d:", file, i)
		}
	}
}

func TestAModeOfMacvlanIsNotOurs(t *testing.T) {
	n := newNode(t)
	listen(t, n, answers{add: dualStack()})
	check.Value(run("ADD", args(n.conf("macvlan", "1.1.0", `"mode":"bridge",`))))(t)
}

// Whatever people write: a routing that says the same when it is sent, or a refusal.
func FuzzRouting(f *testing.F) {
	for _, text := range []string{
		`{}`, `{"mode":"auto"}`, `{"mode":"disable"}`, `{"mode":[]}`, `{"hostLink":true,"txQueueLen":1000}`, `{"hostLink":1}`,
		`{"hostLinkCIDRs":["10.0.0.0/8","fd00::/8"]}`, `{"hostLinkCIDRs":["0.0.0.0/0"]}`, `{"hostLinkCIDRs":[null]}`,
		`{"hostLinkCIDRs":["fe80::1%eth0/64"]}`, `{"txQueueLen":1e3}`, `{"txQueueLen":-1}`,
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		conf, err := parseNetConf([]byte(text))
		if conf == nil || err != nil && conf.Type != "" {
			return
		}
		routing, err := conf.routingConf.decode()
		if err != nil {
			e, ok := errors.AsType[*agentapi.Error](err)
			check.That(t, ok && e.Code == agentapi.CodeInvalidNetworkConfig, "%T %v", err, err)
			return
		}
		for _, cidr := range routing.HostLinkCIDRs {
			check.That(t, cidr == cidr.Masked() && cidr.Bits() != 0 && !cidr.Addr().Is4In6() && cidr.Addr() != (netip.Addr{}), "destination %s", cidr)
		}
		sent := check.Value(json.Marshal(routing))(t)
		var got agentapi.Routing
		err = json.Unmarshal(sent, &got)
		check.That(t, err == nil && reflect.DeepEqual(got, routing), "%s is read as %+v, %v", sent, got, err)
	})
}
