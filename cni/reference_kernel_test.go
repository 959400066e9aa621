// SPDX-License-Identifier: Apache-2.0

//go:build kernel

package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fenceline/fenceline/test/check"
)

// hostLocal is the type of the reference plugin.
const hostLocal = "host-local"

// referenceCall is a call of a runtime. Its container is "c" and its interface "eth0" unless named.
type referenceCall struct {
	verb, container, iface, args, netns string
	// fails: both plugins return an error.
	fails bool
}

func add(containers ...string) (calls []referenceCall) {
	for _, c := range containers {
		calls = append(calls, referenceCall{verb: "ADD", container: c})
	}
	return calls
}

func del(containers ...string) (calls []referenceCall) {
	for _, c := range containers {
		calls = append(calls, referenceCall{verb: "DEL", container: c})
	}
	return calls
}

func failing(calls []referenceCall) []referenceCall {
	for i := range calls {
		calls[i].fails = true
	}
	return calls
}

func many(lists ...[]referenceCall) (all []referenceCall) {
	for _, l := range lists {
		all = append(all, l...)
	}
	return all
}

// documented are the documented behaviours of host-local (cni.dev) and the cases of its own tests
// (host_local_test.go, allocator_test.go, config_test.go, range_test.go). A conf has the members of
// the configuration after its name, with DIR for the directory of the row.
func documented() map[string]struct {
	conf  string
	files map[string]string
	calls []referenceCall
} {
	type row = struct {
		conf  string
		files map[string]string
		calls []referenceCall
	}
	ipam := func(members string) string { return `"ipam":{"type":"TYPE","dataDir":"DIR",` + members + `}` }
	one := ipam(`"ranges":[[{"subnet":"10.1.2.0/29"}]]`)
	lastBy := map[string]string{"last_reserved_ip.0": "10.1.2.4"}
	return map[string]row{
		"one range: ADD, CHECK, DEL, DEL again": {conf: one, calls: many(add("c"), []referenceCall{{verb: "CHECK", container: "c"}}, del("c", "c"))},
		"the gateway and the last address of a subnet are left out; then it is full": {
			conf: one, calls: many(add("a", "b", "c", "d", "e"), failing(add("f")), del("b"), add("g"))},
		"round robin: a freed address comes last":    {conf: one, calls: many(add("a"), del("a"), add("b"), del("b"), add("c"))},
		"round robin begins after the last address":  {conf: one, files: lastBy, calls: add("a", "b")},
		"the last address is none":                   {conf: one, files: map[string]string{"last_reserved_ip.0": "nonsense"}, calls: add("a")},
		"the last address is empty":                  {conf: one, files: map[string]string{"last_reserved_ip.0": ""}, calls: add("a")},
		"the last address is outside":                {conf: one, files: map[string]string{"last_reserved_ip.0": "192.0.2.1"}, calls: add("a")},
		"a file that is no address":                  {conf: one, files: map[string]string{"nonsense": "c\r\neth0x", "README": "hello"}, calls: many(add("a"), del("a"))},
		"an address file of an old version, no name": {conf: one, files: map[string]string{"10.1.2.2": "old"}, calls: many([]referenceCall{{verb: "CHECK", container: "old"}}, add("a"), del("old"), add("b"))},
		"the same container twice":                   {conf: one, calls: many(add("a"), failing(add("a")), del("a"), add("a"))},
		"two interfaces of a container": {conf: one, calls: []referenceCall{
			{verb: "ADD", iface: "eth0"}, {verb: "ADD", iface: "eth1"}, {verb: "DEL", iface: "eth0"}, {verb: "CHECK", iface: "eth1"}, {verb: "CHECK", iface: "eth0", fails: true}}},
		"CHECK without an address":                    {conf: one, calls: []referenceCall{{verb: "CHECK", container: "c", fails: true}}},
		"the older form at the top":                   {conf: ipam(`"subnet":"10.1.2.0/24","rangeStart":"10.1.2.9","rangeEnd":"10.1.2.11","gateway":"10.1.2.254"`), calls: many(add("a", "b", "c"), failing(add("d")))},
		"the older form and ranges":                   {conf: ipam(`"subnet":"10.1.2.0/24","ranges":[[{"subnet":"10.1.3.0/24"}]]`), calls: add("a", "b")},
		"dual stack":                                  {conf: ipam(`"ranges":[[{"subnet":"10.1.2.0/24"}],[{"subnet":"2001:db8:1::/48"}]]`), calls: many(add("a", "b"), del("a"))},
		"two sets of IPv4":                            {conf: ipam(`"ranges":[[{"subnet":"10.1.2.0/24"}],[{"subnet":"10.1.3.0/24"}]]`), calls: add("a", "b")},
		"several ranges in a set, disjoint":           {conf: ipam(`"ranges":[[{"subnet":"10.1.2.0/30"},{"subnet":"10.1.2.4/30"},{"subnet":"10.9.0.0/30","gateway":"10.9.0.2"}]]`), calls: many(add("a", "b", "c"), failing(add("d")), del("b"), add("e"))},
		"a set that is full frees the others":         {conf: ipam(`"ranges":[[{"subnet":"10.1.2.0/24"}],[{"subnet":"10.1.3.0/30"}]]`), calls: many(add("a"), failing(add("b")), del("a"), add("b"))},
		"routes with and without gateway":             {conf: ipam(`"ranges":[[{"subnet":"10.1.2.0/24"}]],"routes":[{"dst":"0.0.0.0/0"},{"dst":"192.168.0.0/16","gw":"10.1.2.1"},{"dst":"10.9.0.0/16","mtu":1400,"priority":10,"table":7,"scope":0}]`), calls: add("a")},
		"resolvConf":                                  {conf: ipam(`"ranges":[[{"subnet":"10.1.2.0/24"}]],"resolvConf":"DIR/resolv.conf"`), files: map[string]string{"../resolv.conf": "nameserver 192.0.2.3\n# nameserver 192.0.2.4\n;x y\nlonely\ndomain example.com\nsearch example.org example.net\noptions ndots:2 rotate\n"}, calls: add("a")},
		"resolvConf is missing":                       {conf: ipam(`"ranges":[[{"subnet":"10.1.2.0/24"}]],"resolvConf":"DIR/none"`), calls: failing(add("a"))},
		"capability ipRanges":                         {conf: `"runtimeConfig":{"ipRanges":[[{"subnet":"10.7.0.0/24"}]]},` + one, calls: add("a")},
		"only capability ipRanges":                    {conf: `"runtimeConfig":{"ipRanges":[[{"subnet":"10.7.0.0/24"}]]},` + strings.Replace(ipam(``), `,}`, `}`, 1), calls: add("a")},
		"capability ips":                              {conf: `"runtimeConfig":{"ips":["10.1.2.3"]},` + one, calls: many(add("a"), failing(add("b")))},
		"args.cni.ips with prefix":                    {conf: `"args":{"cni":{"ips":["10.1.2.3/29"]}},` + one, calls: add("a")},
		"IP in CNI_ARGS":                              {conf: one, calls: []referenceCall{{verb: "ADD", args: "IP=10.1.2.3"}}},
		"a requested address of each family":          {conf: `"runtimeConfig":{"ips":["2001:db8::5","10.1.2.5"]},` + ipam(`"ranges":[[{"subnet":"10.1.2.0/24"}],[{"subnet":"2001:db8::/64"}]]`), calls: add("a")},
		"a requested address outside":                 {conf: `"runtimeConfig":{"ips":["192.0.2.9"]},` + one, calls: failing(add("a"))},
		"the gateway is requested":                    {conf: `"runtimeConfig":{"ips":["10.1.2.1"]},` + one, calls: failing(add("a"))},
		"more requests than sets":                     {conf: `"runtimeConfig":{"ips":["10.1.2.2","192.0.2.9"]},` + one, calls: failing(add("a"))},
		"unknown CNI_ARGS":                            {conf: one, calls: []referenceCall{{verb: "ADD", args: "FOO=1", fails: true}, {verb: "ADD", args: "IgnoreUnknown=1;FOO=1"}}},
		"no ranges":                                   {conf: `"ipam":{"type":"TYPE","standalone":true,"dataDir":"DIR"}`, calls: failing(add("a"))},
		"an empty set":                                {conf: ipam(`"ranges":[[]]`), calls: failing(add("a"))},
		"overlapping sets":                            {conf: ipam(`"ranges":[[{"subnet":"10.1.2.0/24"}],[{"subnet":"10.1.2.0/28"}]]`), calls: failing(add("a"))},
		"overlapping ranges of a set":                 {conf: ipam(`"ranges":[[{"subnet":"10.1.2.0/24"},{"subnet":"10.1.2.0/28"}]]`), calls: failing(add("a"))},
		"mixed families in a set":                     {conf: ipam(`"ranges":[[{"subnet":"10.1.2.0/24"},{"subnet":"2001:db8::/64"}]]`), calls: failing(add("a"))},
		"host bits":                                   {conf: ipam(`"ranges":[[{"subnet":"10.1.2.3/24"}]]`), calls: failing(add("a"))},
		"a subnet too small":                          {conf: ipam(`"ranges":[[{"subnet":"10.1.2.0/31"}]]`), calls: failing(add("a"))},
		"rangeStart outside":                          {conf: ipam(`"ranges":[[{"subnet":"10.1.2.0/24","rangeStart":"10.1.3.1"}]]`), calls: failing(add("a"))},
		"rangeEnd outside":                            {conf: ipam(`"ranges":[[{"subnet":"10.1.2.0/24","rangeEnd":"10.1.3.1"}]]`), calls: failing(add("a"))},
		"end before start":                            {conf: ipam(`"ranges":[[{"subnet":"10.1.2.0/24","rangeStart":"10.1.2.9","rangeEnd":"10.1.2.8"}]]`), calls: failing(add("a"))},
		"a range of one address":                      {conf: ipam(`"ranges":[[{"subnet":"10.1.2.0/24","rangeStart":"10.1.2.9","rangeEnd":"10.1.2.9"}]]`), calls: many(add("a"), failing(add("b")))},
		"a range of the gateway alone":                {conf: ipam(`"ranges":[[{"subnet":"10.1.2.0/24","rangeStart":"10.1.2.1","rangeEnd":"10.1.2.1"}]]`), calls: failing(add("a"))},
		"a node's podCIDR, as flannel delegates it":   {conf: ipam(`"ranges":[[{"subnet":"10.244.1.0/24"}]],"routes":[{"dst":"10.244.0.0/16"}]`), calls: many(add("a", "b"), del("a"))},
		"white space in an address file":              {conf: one, files: map[string]string{"10.1.2.2": " c\r\neth0 \n"}, calls: []referenceCall{{verb: "CHECK"}, {verb: "DEL"}, {verb: "ADD"}}},
		"the last address ends a range of several":    {conf: ipam(`"ranges":[[{"subnet":"10.1.2.0/30"},{"subnet":"10.1.2.4/30"}]]`), files: map[string]string{"last_reserved_ip.0": "10.1.2.2"}, calls: add("a", "b")},
		"a requested address before rangeStart":       {conf: `"runtimeConfig":{"ips":["10.1.2.9"]},` + ipam(`"ranges":[[{"subnet":"10.1.2.0/24","rangeStart":"10.1.2.10","rangeEnd":"10.1.2.20"}]]`), calls: failing(add("a"))},
		"a requested address after rangeEnd":          {conf: `"runtimeConfig":{"ips":["10.1.2.21"]},` + ipam(`"ranges":[[{"subnet":"10.1.2.0/24","rangeStart":"10.1.2.10","rangeEnd":"10.1.2.20"}]]`), calls: failing(add("a"))},
		"a requested address of each set of IPv4":     {conf: `"runtimeConfig":{"ips":["10.1.3.5","10.1.2.5"]},` + ipam(`"ranges":[[{"subnet":"10.1.2.0/24"}],[{"subnet":"10.1.3.0/24"}]]`), calls: add("a")},
		"ranges of a subnet, disjoint in two sets":    {conf: ipam(`"ranges":[[{"subnet":"10.1.2.0/24","rangeEnd":"10.1.2.9"}],[{"subnet":"10.1.2.0/24","rangeStart":"10.1.2.10"}]]`), calls: add("a")},
		"ranges of a subnet that overlap in two sets": {conf: ipam(`"ranges":[[{"subnet":"10.1.2.0/24","rangeEnd":"10.1.2.10"}],[{"subnet":"10.1.2.0/24","rangeStart":"10.1.2.10"}]]`), calls: failing(add("a"))},
		"host bits of IPv6":                           {conf: ipam(`"ranges":[[{"subnet":"2001:db8:1::24/64"}]]`), calls: failing(add("a"))},
	}
}

// Both plugins give the same results and leave the same files, also when every second call is
// served by the other one. The files do not depend on the version, so one version shows this.
func TestStandAloneIsTheReference(t *testing.T) {
	bin := binaries(t)
	for name, row := range documented() {
		for _, version := range []string{"0.3.1", "0.4.0", "1.0.0", "1.1.0"} {
			t.Run(name+"/"+version, func(t *testing.T) {
				t.Parallel()
				world := map[string]*referenceWorld{}
				orders := map[string][]string{"reference": {hostLocal}, "ours": {pluginType}}
				if version == "1.1.0" {
					orders["in turns"], orders["in turns, ours first"] = []string{hostLocal, pluginType}, []string{pluginType, hostLocal}
				}
				for who, order := range orders {
					world[who] = newReferenceWorld(t, bin, version, row.conf, row.files, order)
				}
				for i, c := range row.calls {
					if c.verb == "CHECK" && version == "0.3.1" {
						continue
					}
					want := world["reference"].call(t, i, c)
					check.Must(t, want.failed == c.fails, "call %d, %+v: the reference failed: %v\n%s", i, c, want.failed, want.text)
					for who, w := range world {
						if who == "reference" {
							continue
						}
						got := w.call(t, i, c)
						if got.failed != want.failed || !got.failed && got.text != want.text {
							t.Errorf("%s, call %d, %+v: %s\nthe reference: %s", who, i, c, got.text, want.text)
						}
						check.Same(t, got.files, want.files, "%s, files after call %d, %+v", who, i, c)
					}
				}
			})
		}
	}
}

// referenceWorld is a directory of data files, and the plugins that share it.
type referenceWorld struct {
	bin, dir, version, conf string
	order                   []string
}

// outcome is what a call returned and left.
type outcome struct {
	failed bool
	text   string
	files  map[string]string
}

func newReferenceWorld(t *testing.T, bin, version, conf string, files map[string]string, order []string) *referenceWorld {
	t.Helper()
	w := &referenceWorld{bin, t.TempDir(), version, conf, order}
	for name, text := range files {
		path := filepath.Join(w.dir, "net", name)
		check.OK(t, errors.Join(os.MkdirAll(filepath.Join(w.dir, "net"), 0o755), os.WriteFile(path, []byte(text), 0o600)))
	}
	return w
}

func (w *referenceWorld) call(t *testing.T, i int, c referenceCall) outcome {
	t.Helper()
	who := w.order[i%len(w.order)]
	conf := strings.NewReplacer("TYPE", who, "DIR", w.dir).Replace(fmt.Sprintf(`{"cniVersion":%q,"name":"net","type":"macvlan",%s}`, w.version, w.conf))
	out, err := callPlugin(t, w.bin, who, c, conf)
	return outcome{err != nil, compact(out), filesOf(t, filepath.Join(w.dir, "net"))}
}

// callPlugin starts a plugin and returns its output.
func callPlugin(t testing.TB, bin, who string, c referenceCall, conf string) ([]byte, error) {
	t.Helper()
	return pluginCall(t, bin, who, c, conf).Output()
}

// pluginCall is a call of a plugin that has not begun.
func pluginCall(t testing.TB, bin, who string, c referenceCall, conf string) *exec.Cmd {
	t.Helper()
	plugin := exec.CommandContext(t.Context(), filepath.Join(bin, who))
	plugin.Env = []string{
		"CNI_COMMAND=" + c.verb, "CNI_CONTAINERID=" + cmp.Or(c.container, "c"), "CNI_IFNAME=" + cmp.Or(c.iface, "eth0"),
		"CNI_PATH=" + bin, "CNI_NETNS=" + cmp.Or(c.netns, "/some/where"), "CNI_ARGS=" + c.args,
	}
	plugin.Stdin = strings.NewReader(conf)
	return plugin
}

// compact removes the white space of JSON.
func compact(text []byte) string {
	var b bytes.Buffer
	if json.Compact(&b, text) != nil {
		return string(text)
	}
	return b.String()
}

// filesOf returns the files of a directory with their contents.
func filesOf(t *testing.T, dir string) map[string]string {
	t.Helper()
	found := map[string]string{}
	entries, err := os.ReadDir(dir)
	check.Must(t, err == nil || errors.Is(err, fs.ErrNotExist), "%v", err)
	for _, e := range entries {
		text := check.Value(os.ReadFile(filepath.Join(dir, e.Name())))(t)
		found[e.Name()] = string(text)
	}
	return found
}
