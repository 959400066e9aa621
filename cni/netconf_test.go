// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/fenceline/fenceline/cni/agentapi"
	"github.com/fenceline/fenceline/test/check"
)

func TestAConfigurationIsDelegatedChainedOrRefused(t *testing.T) {
	for name, c := range map[string]struct {
		conf    string
		chained bool
		code    uint
		says    []string
	}{
		"IPAM of macvlan": {
			conf: `{"name":"n","type":"macvlan","ipam":{"type":"fenceline"}}`,
		},
		"chained": {
			conf: `{"name":"n","type":"fenceline"}`, chained: true,
		},
		"chained, with paths": {
			conf: `{"name":"n","type":"fenceline","ipam":{"socket":"/s"}}`, chained: true,
		},
		"fields of other plugins and of other IPAMs are ignored": {
			conf: `{"name":"n","type":"macvlan","mode":"bridge","mtu":1400,"ipam":{"type":"fenceline","log_level":"DEBUG"}}`,
		},
		"both": {
			conf: `{"name":"n","type":"fenceline","ipam":{"type":"fenceline"}}`,
			code: 7, says: []string{`"ipam.type"`, "remove"},
		},
		"neither": {
			conf: `{"name":"n","type":"macvlan","ipam":{"type":"host-local"}}`,
			code: 7, says: []string{`"macvlan"`, `"host-local"`, `"ipam": {"type": "fenceline"}`},
		},
		"a relative socket": {
			conf: `{"name":"n","type":"macvlan","ipam":{"type":"fenceline","socket":"agent.sock"}}`,
			code: 7, says: []string{`"ipam.socket"`, `"agent.sock"`, "absolute"},
		},
		"a relative spool": {
			conf: `{"name":"n","type":"macvlan","ipam":{"type":"fenceline","spool":"spool"}}`,
			code: 7, says: []string{`"ipam.spool"`, "absolute"},
		},
		"a grace that is no duration": {
			conf: `{"name":"n","type":"macvlan","ipam":{"type":"fenceline","status_grace":"60"}}`,
			code: 7, says: []string{`"ipam.status_grace"`, `"60"`, `"30s"`},
		},
		"a negative grace": {
			conf: `{"name":"n","type":"macvlan","ipam":{"type":"fenceline","status_grace":"-1s"}}`,
			code: 7, says: []string{`"-1s"`},
		},
		"a pool without a name": {
			conf: `{"name":"n","type":"macvlan","ipam":{"type":"fenceline","default_ipv6_ippool":["a",""]}}`,
			code: 7, says: []string{`"ipam.default_ipv6_ippool"`, "remove"},
		},
		"pools that are no list": {
			conf: `{"name":"n","type":"macvlan","ipam":{"type":"fenceline","default_ipv4_ippool":"a"}}`,
			code: 6, says: []string{"default_ipv4_ippool"},
		},
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
	c, err := parseNetConf([]byte(`{"name":"n","type":"macvlan","master":"eth1.5","ipam":{"type":"fenceline",
		"default_ipv4_ippool":["primary","backup"],"default_ipv6_ippool":["six"],"socket":"/s","spool":"/d"},
		"deviceID":"0000:03:02.1","runtimeConfig":{"deviceID":"0000:03:02.0"}}`))
	check.OK(t, err)
	want := agentapi.Network{
		Name: "n", Type: "macvlan", Master: "eth1.5", Device: "0000:03:02.0",
		DefaultIPv4IPPool: []string{"primary", "backup"}, DefaultIPv6IPPool: []string{"six"},
	}
	got := c.network()
	check.That(t, reflect.DeepEqual(got, want), "network() = %+v\nwant        %+v", got, want)
	check.That(t, c.IPAM.Socket == "/s" && c.IPAM.Spool == "/d", "paths %q and %q", c.IPAM.Socket, c.IPAM.Spool)
	c, err = parseNetConf([]byte(`{"name":"n","type":"fenceline"}`))
	check.OK(t, err)
	if c.IPAM.Socket != agentapi.DefaultSocket || c.IPAM.Spool != agentapi.DefaultSpool {
		t.Errorf("default paths %q and %q", c.IPAM.Socket, c.IPAM.Spool)
	}
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
		"without UID, as old runtimes": {
			args: "K8S_POD_NAMESPACE=default;K8S_POD_NAME=web-0",
			pod:  agentapi.Pod{Namespace: "default", Name: "web-0"},
		},
		"a value may hold an equals sign": {
			args: "K8S_POD_NAMESPACE=default;K8S_POD_NAME=web-0;LABEL=a=b;",
			pod:  agentapi.Pod{Namespace: "default", Name: "web-0"},
		},
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
		"two are valid":              {`"cni.dev/valid-attachments":[{"containerID":"a","ifname":"eth0"},{"containerID":"b","ifname":"net1"}]`, 2, 0},
		"none is valid":              {`"cni.dev/valid-attachments":[]`, 0, 0},
		"under the name before 1.1":  {`"cni.dev/attachments":[{"containerID":"a","ifname":"eth0"}]`, 1, 0},
		"the list is missing":        {`"x":1`, 0, 7},
		"the list is null, so none ": {`"cni.dev/valid-attachments":null`, 0, 7},
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

// TestMain lets the tests of this package put socket and spool anywhere.
func TestMain(m *testing.M) {
	if err := os.Setenv(dirsVariable, "/"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(m.Run())
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
