// SPDX-License-Identifier: Apache-2.0

package demand

import (
	"errors"
	"strings"
	"testing"

	"github.com/fenceline/fenceline/test/check"
)

const (
	ours   = "ipam.fenceline.io/"
	theirs = "ipam.spidernet.io/"
)

func TestDemandsOfAnnotations(t *testing.T) {
	one := []Interface{{Name: "0", V4: []string{"a"}}}
	for _, row := range []struct {
		rule        string
		annotations map[string]string
		want        Demand
		ok          bool
	}{
		{"nothing", map[string]string{ours + "ippool-ip-number": "5"}, Demand{}, false},
		{"a subnet is for the first interface", map[string]string{ours + "subnet": `{"ipv4":["a"]}`},
			Demand{Interfaces: one, Size: Flexible(), Reclaim: true}, true},
		{"the spelling of Spiderpool", map[string]string{theirs + "subnet": `{"ipv4":["a"]}`, theirs + "ippool-ip-number": "5", theirs + "ippool-reclaim": "false"},
			Demand{Interfaces: one, Size: Size{Fixed: true, Addresses: 5}}, true},
		{"our prefix takes precedence", map[string]string{theirs + "subnet": `{"ipv4":["b"]}`, ours + "subnet": `{"ipv4":["a"]}`, theirs + "ippool-ip-number": "5", ours + "ippool-ip-number": "+2"},
			Demand{Interfaces: one, Size: Size{Addresses: 2}, Reclaim: true}, true},
		{"a leftover beside our annotation of pools is not read", map[string]string{theirs + "subnet": `{"ipv4":["b"]}`, ours + "ippool": `{"ipv4":["p"]}`}, Demand{}, false},
		{"subnets before subnet", map[string]string{ours + "subnet": `{"ipv4":["b"]}`, ours + "subnets": `[{"ipv4":["a"]}]`},
			Demand{Interfaces: one, Size: Flexible(), Reclaim: true}, true},
		{"entries by name and by order", map[string]string{ours + "subnets": `[{"interface":"net1","ipv6":["c"]},{"ipv4":["a","b"]}]`},
			Demand{Interfaces: []Interface{{Name: "net1", V6: []string{"c"}}, {Name: "1", V4: []string{"a", "b"}}}, Size: Flexible(), Reclaim: true}, true},
	} {
		t.Run(row.rule, func(t *testing.T) {
			got, ok, err := Parse(row.annotations)
			got.Key, got.Value = "", ""
			check.Must(t, err == nil && ok == row.ok, "got %v, %v", ok, err)
			check.Same(t, got, row.want, "demand")
		})
	}
}

func TestValuesThatCannotBeUsed(t *testing.T) {
	for _, row := range []struct{ name, value, want string }{
		{"subnet", "a", "not the JSON expected"},
		{"subnet", `{}`, "it names nothing"},
		{"subnet", `{"ipv4":["a"]} x`, "more follows"},
		{"subnet", `{"ip4":["a"]}`, "unknown field"},
		{"subnet", `{"ipv4":["a\u001b[2J"]}`, `"a\x1b[2J" cannot be the name of an IPSubnet`},
		{"subnet", `{"ipv4":["a","a"]}`, "named twice"},
		{"subnets", `[]`, "expected 1 to 256"},
		{"subnets", `[{"interface":"eth\n0","ipv4":["a"]}]`, "not the name of an interface"},
		{"subnets", `[{"interface":"eth0","ipv4":["a"]},{"interface":"eth0","ipv4":["b"]}]`, "named twice"},
		{"ippool-ip-number", "0", "at least one address"},
		{"ippool-ip-number", "five", "not a number"},
		{"ippool-ip-number", "-1", "not a number"},
		{"ippool-ip-number", "5000", "more than 4096"},
		{"ippool-reclaim", "no", "neither true nor false"},
	} {
		annotations := map[string]string{ours + "subnet": `{"ipv4":["a"]}`}
		annotations[ours+row.name] = row.value
		_, ok, err := Parse(annotations)
		check.That(t, ok && err != nil && strings.Contains(err.Error(), row.want) && strings.Contains(err.Error(), ours+row.name),
			"%s=%s: got %v, want %q", row.name, row.value, err, row.want)
	}
}

func TestSizes(t *testing.T) {
	for _, row := range []struct {
		size           Size
		replicas, want int
	}{
		{Size{Fixed: true, Addresses: 5}, 9, 5},
		{Size{Addresses: 1}, 3, 4},
		{Size{Addresses: 0}, 3, 3},
		{Size{Addresses: 0}, 0, 0},
		{Size{Addresses: 1}, 0, 0},
		{Size{Fixed: true, Addresses: 5}, 0, 5},
	} {
		check.Equal(t, row.size.Of(row.replicas), row.want, "%+v of %d replicas:", row.size, row.replicas)
	}
}

func TestTheDemandOfAnInterface(t *testing.T) {
	d, _, err := Parse(map[string]string{ours + "subnets": `[{"ipv4":["a"]},{"interface":"net1","ipv4":["b"]}]`})
	check.OK(t, err)
	for _, row := range []struct {
		iface string
		index int
		want  string
	}{{"eth0", 0, "0"}, {"net1", 1, "net1"}, {"net1", 0, "net1"}, {"net2", 2, ""}} {
		got, ok := d.For(row.iface, row.index)
		check.That(t, got.Name == row.want && ok == (row.want != ""), "%s, number %d: entry %q, want %q", row.iface, row.index, got.Name, row.want)
	}
}

// FuzzDemand: a demand within its bounds, or an error that names the annotation.
func FuzzDemand(f *testing.F) {
	keys := Annotations()
	for i := range keys {
		for _, value := range []string{
			"", "null", "{}", "[]", `[{}]`, `{"ipv4":["a"]}`, `{"ipv4":["a","a"]}`, `{"ipv6":[""]}`, `[{"interface":"eth0","ipv4":["a"],"ipv6":["b"]}]`,
			`[{"ipv4":["a"]},{"interface":"0","ipv4":["b"]}]`, "3", "+3", "+0", "0", "-1", "+", "99999999", "true", "false", `{"ipv4":["a"]} {}`,
		} {
			f.Add(byte(i), value, "+1")
		}
	}
	f.Fuzz(func(t *testing.T, which byte, value, number string) {
		annotations := map[string]string{keys[2]: number}
		annotations[keys[int(which)%len(keys)]] = value
		d, ok, err := Parse(annotations)
		if err != nil {
			e, is := errors.AsType[*Error](err)
			check.That(t, is && annotations[e.Key] == e.Value && len(err.Error()) <= 64<<10, "%v: %T %v", annotations, err, err)
			return
		}
		if !ok {
			return
		}
		if n := d.Size.Addresses; n < 0 || n > MaxAddresses || d.Size.Fixed && n == 0 || len(d.Interfaces) == 0 || len(d.Interfaces) > MaxEntries {
			t.Errorf("%v: %+v", annotations, d)
		}
		for _, i := range d.Interfaces {
			if got, found := d.For(i.Name, -1); !found || got.Name != i.Name || len(i.V4)+len(i.V6) == 0 {
				t.Errorf("%v: interface %+v is found as %+v, %v", annotations, i, got, found)
			}
		}
	})
}
