// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/containernetworking/cni/pkg/skel"

	"github.com/fenceline/fenceline/cni/agentapi"
	"github.com/fenceline/fenceline/test/check"
	"github.com/fenceline/fenceline/test/programs"
)

func TestAConfigurationIsDelegatedChainedOrRefused(t *testing.T) {
	for name, c := range map[string]struct {
		conf    string
		chained bool
		code    uint
		says    []string
	}{
		"IPAM of macvlan":     {conf: `{"name":"n","type":"macvlan","ipam":{"type":"fenceline"}}`},
		"chained":             {conf: `{"name":"n","type":"fenceline"}`, chained: true},
		"chained, with paths": {conf: `{"name":"n","type":"fenceline","ipam":{"socket":"/s"}}`, chained: true},
		"fields of other plugins and of other IPAMs are ignored": {
			conf: `{"name":"n","type":"macvlan","mode":"bridge","mtu":1400,"ipam":{"type":"fenceline","log_level":"DEBUG"}}`,
		},
		"both": {conf: `{"name":"n","type":"fenceline","ipam":{"type":"fenceline"}}`, code: 7, says: []string{`"ipam.type"`, "remove"}},
		"neither": {conf: `{"name":"n","type":"macvlan","ipam":{"type":"host-local"}}`,
			code: 7, says: []string{`"macvlan"`, `"host-local"`, `"ipam": {"type": "fenceline"}`}},
		"a relative socket": {conf: `{"name":"n","type":"macvlan","ipam":{"type":"fenceline","socket":"agent.sock"}}`,
			code: 7, says: []string{`"ipam.socket"`, `"agent.sock"`, "absolute"}},
		"a relative spool": {conf: `{"name":"n","type":"macvlan","ipam":{"type":"fenceline","spool":"spool"}}`,
			code: 7, says: []string{`"ipam.spool"`, "absolute"}},
		"a grace that is no duration": {conf: `{"name":"n","type":"macvlan","ipam":{"type":"fenceline","status_grace":"60"}}`,
			code: 7, says: []string{`"ipam.status_grace"`, `"60"`, `"30s"`}},
		"a negative grace": {conf: `{"name":"n","type":"macvlan","ipam":{"type":"fenceline","status_grace":"-1s"}}`,
			code: 7, says: []string{`"-1s"`}},
		"a pool without a name": {
			conf: `{"name":"n","type":"macvlan","ipam":{"type":"fenceline","default_ipv6_ippool":["a",""]}}`,
			code: 7, says: []string{`"ipam.default_ipv6_ippool"`, "remove"},
		},
		"pools that are no list": {conf: `{"name":"n","type":"macvlan","ipam":{"type":"fenceline","default_ipv4_ippool":"a"}}`,
			code: 6, says: []string{"default_ipv4_ippool"}},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := parseNetConf([]byte(c.conf))
			if c.code != 0 {
				wantCode(t, err, c.code, c.says...)
				return
			}
			check.OK(t, err)
			check.Equal(t, got.chained(), c.chained, "chained() =")
		})
	}
}

func TestPathsAndPoolsComeFromTheConfiguration(t *testing.T) {
	c := check.Value(parseNetConf([]byte(`{"name":"n","type":"macvlan","master":"eth1.5","ipam":{"type":"fenceline",
		"default_ipv4_ippool":["primary","backup"],"default_ipv6_ippool":["six"],"socket":"/s","spool":"/d"},
		"deviceID":"0000:03:02.1","runtimeConfig":{"deviceID":"0000:03:02.0"}}`)))(t)
	want := agentapi.Network{
		Name: "n", Type: "macvlan", Master: "eth1.5", Device: "0000:03:02.0",
		DefaultIPv4IPPool: []string{"primary", "backup"}, DefaultIPv6IPPool: []string{"six"},
	}
	got := c.network()
	check.That(t, reflect.DeepEqual(got, want), "network() = %+v\nwant        %+v", got, want)
	check.That(t, c.IPAM.Socket == "/s" && c.IPAM.Spool == "/d", "paths %q and %q", c.IPAM.Socket, c.IPAM.Spool)
	c = check.Value(parseNetConf([]byte(`{"name":"n","type":"fenceline"}`)))(t)
	check.Equal(t, c.IPAM.Socket, agentapi.DefaultSocket, "the default socket:")
	check.Equal(t, c.IPAM.Spool, agentapi.DefaultSpool, "the default spool:")
}

func TestRequestedAddressesComeFromAllConventions(t *testing.T) {
	for name, c := range map[string]struct {
		conf, args string
		want       []string
		says       string
	}{
		"none":                      {},
		"args.cni.ips":              {conf: `,"args":{"cni":{"ips":["192.0.2.7/24","2001:db8::7"]}}`, want: []string{"192.0.2.7", "2001:db8::7"}},
		"the capability ips":        {conf: `,"runtimeConfig":{"ips":["192.0.2.7"]}`, want: []string{"192.0.2.7"}},
		"CNI_ARGS":                  {args: "IP=192.0.2.7,2001:db8::7", want: []string{"192.0.2.7", "2001:db8::7"}},
		"said twice is asked once":  {conf: `,"runtimeConfig":{"ips":["192.0.2.7"]}`, args: "IP=::ffff:192.0.2.7", want: []string{"192.0.2.7"}},
		"no address":                {conf: `,"runtimeConfig":{"ips":["web"]}`, says: `"runtimeConfig.ips" holds "web"`},
		"an address with a zone":    {args: "IP=fe80::1%eth0", says: `IP in CNI_ARGS holds "fe80::1%eth0"`},
		"a prefix without address":  {conf: `,"args":{"cni":{"ips":["/24"]}}`, says: `"args.cni.ips" holds "/24"`},
		"an empty string in a list": {conf: `,"args":{"cni":{"ips":[""]}}`, says: `"args.cni.ips" holds ""`},
	} {
		t.Run(name, func(t *testing.T) {
			conf := check.Value(parseNetConf([]byte(`{"name":"n","type":"fenceline"` + c.conf + `}`)))(t)
			env := check.Value(parseEnvironment(c.args))(t)
			got, err := conf.requestedIPs(env)
			if c.says != "" {
				wantCode(t, err, agentapi.CodeInvalidNetworkConfig, c.says)
				return
			}
			var want []netip.Addr
			for _, a := range c.want {
				want = append(want, netip.MustParseAddr(a))
			}
			check.That(t, err == nil && slices.Equal(got, want), "got %v, %v; want %v", got, err, want)
		})
	}
}

func TestCNIARGSNameThePod(t *testing.T) {
	for name, c := range map[string]struct {
		args string
		pod  agentapi.Pod
		code uint
		says string
	}{
		"as containerd sets them": {
			args: "IgnoreUnknown=1;K8S_POD_NAMESPACE=default;K8S_POD_NAME=web-0;K8S_POD_INFRA_CONTAINER_ID=abc;K8S_POD_UID=u",
			pod:  agentapi.Pod{Namespace: "default", Name: "web-0", UID: "u"},
		},
		"without UID, as old runtimes": {args: "K8S_POD_NAMESPACE=default;K8S_POD_NAME=web-0",
			pod: agentapi.Pod{Namespace: "default", Name: "web-0"}},
		"a value may hold an equals sign": {args: "K8S_POD_NAMESPACE=default;K8S_POD_NAME=web-0;LABEL=a=b;",
			pod: agentapi.Pod{Namespace: "default", Name: "web-0"}},
		"none":       {args: "", code: 4, says: "K8S_POD_NAMESPACE and K8S_POD_NAME"},
		"no name":    {args: "K8S_POD_NAMESPACE=default", code: 4, says: "lacks K8S_POD_NAME"},
		"not a pair": {args: "K8S_POD_NAME", code: 4, says: `"K8S_POD_NAME", which is not KEY=VALUE`},
	} {
		t.Run(name, func(t *testing.T) {
			env, err := parseEnvironment(c.args)
			if err == nil {
				err = env.requirePod()
			}
			if c.code != 0 {
				wantCode(t, err, c.code, c.says)
				return
			}
			check.That(t, err == nil && env.pod == c.pod, "got %+v, %v", env.pod, err)
		})
	}
}

func TestGCTellsAnEmptyListFromNone(t *testing.T) {
	for name, c := range map[string]struct {
		list  string
		count int
		code  uint
	}{
		"two are valid":             {`"cni.dev/valid-attachments":[{"containerID":"a","ifname":"eth0"},{"containerID":"b","ifname":"net1"}]`, 2, 0},
		"none is valid":             {`"cni.dev/valid-attachments":[]`, 0, 0},
		"under the name before 1.1": {`"cni.dev/attachments":[{"containerID":"a","ifname":"eth0"}]`, 1, 0},
		"the list is missing":       {`"x":1`, 0, 7},
		"none, as libcni writes it": {`"cni.dev/valid-attachments":null,"cni.dev/attachments":null`, 0, 0},
		"null is the weaker of two": {`"cni.dev/valid-attachments":null,"cni.dev/attachments":[{"containerID":"a","ifname":"eth0"}]`, 1, 0},
		"it is no list":             {`"cni.dev/valid-attachments":"all"`, 0, 6},
	} {
		t.Run(name, func(t *testing.T) {
			conf := check.Value(parseNetConf([]byte(`{"name":"n","type":"fenceline",` + c.list + `}`)))(t)
			got, err := conf.validAttachments()
			if c.code != 0 {
				wantCode(t, err, c.code, "nothing is released")
				return
			}
			check.That(t, err == nil && got != nil && len(got) == c.count, "got %v, %v", got, err)
		})
	}
}

// wantCode checks that the error has the CNI code and says each of the words.
func wantCode(t *testing.T, err error, code uint, says ...string) {
	t.Helper()
	e, ok := errors.AsType[*agentapi.Error](err)
	check.Must(t, ok && e.Code == code, "got %T %v, want code %d", err, err, code)
	check.Says(t, e, says...)
}

// TestMain lets the tests of this package put socket and spool anywhere. They share the plugin that the first
// one builds.
func TestMain(m *testing.M) {
	code, err := shareAll(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

func shareAll(m *testing.M) (int, error) {
	if err := os.Setenv(dirsVariable, "/"); err != nil {
		return 0, err
	}
	if programs.Dir() == "" { // a guest has those of its host
		dir, err := os.MkdirTemp("", "fenceline-programs-")
		if err != nil {
			return 0, err
		}
		defer os.RemoveAll(dir)
		if err := programs.Share(context.Background(), dir); err != nil {
			return 0, err
		}
	}
	return m.Run(), nil
}

// A network configuration may be a tenant's, and the plugin writes as root.
func TestANetworkConfigurationNamesNoPathElsewhere(t *testing.T) {
	for name, row := range map[string]struct {
		dirs, field, path string
		ok                bool
	}{
		"the default socket":                   {"", "socket", "/run/fenceline/agent.sock", true},
		"another socket beside it":             {"", "socket", "/run/fenceline/second.sock", true},
		"the default spool":                    {"", "spool", "/var/lib/fenceline/spool", true},
		"the socket of the runtime":            {"", "socket", "/run/containerd/containerd.sock", false},
		"a spool that is a directory of cron":  {"", "spool", "/etc/cron.d", false},
		"a path that climbs out":               {"", "spool", "/var/lib/fenceline/../../../etc/cron.d", false},
		"a directory of a similar name":        {"", "spool", "/var/lib/fenceline-evil/spool", false},
		"the directory itself":                 {"", "spool", "/var/lib/fenceline", false},
		"the journal":                          {"", "spool", "/var/lib/fenceline/attachments", false},
		"a directory in the spool":             {"", "spool", "/var/lib/fenceline/spool/a", true},
		"a directory that the node allows":     {"/opt/a:/opt/b", "spool", "/opt/b/spool", true},
		"a directory that the node forgot":     {"/opt/a:/opt/b", "spool", "/opt/c/spool", false},
		"an empty entry allows nothing":        {":", "spool", "/etc/cron.d", false},
		"a relative entry allows nothing":      {"etc", "spool", "/etc/cron.d", false},
		"the spool's directory for the socket": {"", "socket", "/var/lib/fenceline/agent.sock", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv(dirsVariable, row.dirs)
			_, err := parseNetConf(fmt.Appendf(nil, `{"name":"n","type":"fenceline","ipam":{%q:%q}}`, row.field, row.path))
			check.Must(t, (err == nil) == row.ok, "%v", err)
			check.That(t, err == nil || strings.Contains(err.Error(), dirsVariable), "it says %q, and not what to do", err)
		})
	}
}

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

// FuzzCall: each part of a configuration and of CNI_ARGS is read, or refused with a CNI error.
func FuzzCall(f *testing.F) {
	for _, text := range []string{
		`{"type":"fenceline"}`, `{"ipam":{"type":"fenceline"}}`, `{"type":"fenceline","cniVersion":"1.0.0","prevResult":{"cniVersion":"1.0.0"}}`,
		`{"type":"fenceline","cniVersion":"1.0.0","prevResult":{"interfaces":[{"name":"eth0","sandbox":"/n","mac":"02:00:00:00:00:01"}],"ips":[{"address":"192.0.2.7/24","gateway":"192.0.2.1","interface":0}]}}`,
		`{"type":"fenceline","cniVersion":"1.0.0","prevResult":{"interfaces":[null],"ips":[{"address":"192.0.2.7/24","interface":0}]}}`,
		`{"type":"fenceline","cniVersion":"1.0.0","prevResult":{"ips":[null]}}`,
		`{"type":"fenceline","cniVersion":"0.3.1","prevResult":{"interfaces":[null],"ips":[null],"routes":[null]}}`,
		`{"type":"fenceline","cniVersion":"0.4.0","prevResult":{"ips":[{"version":"4","address":"::ffff:192.0.2.7/120"}]}}`,
		`{"ipam":{"type":"fenceline","socket":"/run/a","spool":"/b"},"args":{"cni":{"ips":["192.0.2.7/24","::ffff:192.0.2.7"]}},"runtimeConfig":{"ips":["fe80::1%a"]}}`,
		`{"type":"fenceline","cni.dev/valid-attachments":[{"containerID":"a","ifname":"eth0"}]}`, `{"type":"fenceline","cni.dev/attachments":[]}`,
	} {
		f.Add([]byte(text), "K8S_POD_NAMESPACE=a;K8S_POD_NAME=b;IP=192.0.2.7,fd00::7")
		f.Add([]byte(text), "IgnoreUnknown")
	}
	f.Fuzz(func(t *testing.T, stdin []byte, args string) {
		refused := func(err error) bool {
			e, ok := errors.AsType[*agentapi.Error](err)
			check.That(t, err == nil || ok && e.Code != 0, "%s, %q: %T %v", stdin, args, err, err)
			return err != nil
		}
		env, err := parseEnvironment(args)
		if refused(err) || refused(env.requirePod()) {
			env = environment{}
		}
		conf, err := parseNetConf(stdin)
		if refused(err) {
			return
		}
		ips, err := conf.requestedIPs(env)
		refused(err)
		for i, ip := range ips {
			if !ip.IsValid() || ip.Zone() != "" || ip.Is4In6() || slices.Contains(ips[:i], ip) {
				t.Errorf("%s, %q: addresses %s", stdin, args, ips)
			}
		}
		if valid, err := conf.validAttachments(); !refused(err) && valid == nil {
			t.Errorf("%s: no list of attachments", stdin)
		}
		previous, err := conf.previous()
		if refused(err) {
			return
		}
		setMAC(previous, "eth0", "02:00:00:00:00:01")
		for _, c := range configured(previous, "eth0") {
			check.That(t, c.Address.IsValid() && !c.Address.Addr().Is4In6() && !c.Gateway.Is4In6(), "%s: address %+v", stdin, c)
		}
	})
}

func TestACallWithRangesAndWithoutAPodStandsAlone(t *testing.T) {
	here, gone := filepath.Join(t.TempDir(), "agent.sock"), filepath.Join(t.TempDir(), "none", "agent.sock")
	const ranges = `"ranges":[[{"subnet":"10.0.0.0/24"}]]`
	for _, row := range []struct {
		name, top, ipam, args, container, socket string
		want                                     bool
		verb                                     string
	}{
		{"ranges", "", ranges, "", "c", here, true, "ADD"},
		{"the older form", "", `"subnet":"10.0.0.0/24"`, "", "c", here, true, "ADD"},
		{"the capability", `"runtimeConfig":{"ipRanges":[[{"subnet":"10.0.0.0/24"}]]},`, `"dataDir":"/x"`, "", "c", here, true, "ADD"},
		{"other arguments", "", ranges, "IgnoreUnknown=1;IP=10.0.0.7", "c", here, true, "ADD"},
		{"the arguments of podman", "", ranges, "IgnoreUnknown=1;K8S_POD_NAME=web", "c", here, true, "ADD"},
		{"the arguments of nerdctl", "", ranges, "IgnoreUnknown=1;NERDCTL_CNI_DHCP_HOSTNAME=web", "c", here, true, "ADD"},
		{"ranges and a pod", "", ranges, podArgs, "c", gone, false, "ADD"},
		{"ranges, a pod, and the setting", "", ranges + `,"standalone":true`, podArgs, "c", here, true, "ADD"},
		{"ranges and the other setting", "", ranges + `,"standalone":false`, "", "c", gone, false, "ADD"},
		{"no ranges", "", `"dataDir":"/x"`, "", "c", gone, false, "ADD"},
		{"a DEL without ranges on a node", "", `"dataDir":"/x"`, "", "c", here, false, "DEL"},
		{"a DEL without ranges elsewhere", "", `"dataDir":"/x"`, "", "c", gone, true, "DEL"},
		{"a DEL of a pod without ranges", "", `"dataDir":"/x"`, podArgs, "c", gone, false, "DEL"},
		{"GC and STATUS on a node", "", ranges, "", "", here, false, "STATUS"},
		{"GC and STATUS elsewhere", "", ranges, "", "", gone, true, "STATUS"},
		{"GC and STATUS on a node, by the setting", "", ranges + `,"standalone":true`, "", "", here, true, "STATUS"},
	} {
		t.Run(row.name, func(t *testing.T) {
			conf := check.Value(parseNetConf(fmt.Appendf(nil, `{"cniVersion":"1.1.0","name":"net","type":"macvlan",%s"ipam":{"type":"fenceline","socket":%q,%s}}`, row.top, row.socket, row.ipam)))(t)
			env := check.Value(parseEnvironment(row.args))(t)
			c := &call{args: &skel.CmdArgs{ContainerID: row.container}, conf: conf, env: env}
			check.Equal(t, c.standsAlone(row.verb), row.want, "got")
		})
	}
}
