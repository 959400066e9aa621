// SPDX-License-Identifier: Apache-2.0

package ipam

import (
	"errors"
	"testing"

	"github.com/fenceline/fenceline/cni/agentapi"
	"github.com/fenceline/fenceline/internal/poolset"
)

// Whatever people write into an annotation: an answer, or an error that names
// an annotation or a pool.
func FuzzAnnotations(f *testing.F) {
	keys := []string{
		"ipam.fenceline.io/ippools", "ipam.fenceline.io/ippool", "ipam.fenceline.io/subnets", "ipam.fenceline.io/subnet",
		"ipam.fenceline.io/routes", "ipam.fenceline.io/default-route-nic", multusNetworks, multusDefault,
		"ipam.fenceline.io/default-ipv4-ippool", "ipam.fenceline.io/mode", "ipam.fenceline.io/host-link",
	}
	for i := range keys {
		for _, value := range []string{
			"", "a", "null", "[]", "[null]", "{}", `["a"]`, `["a*","[","a["]`, `[{"interface":"eth0","ipv4":["a"],"cleangateway":true}]`,
			`[{"ipv4":["*"]},{"ipv6":["c"]}]`, `{"ipv4":["a","?"],"ipv6":["c"]}`, `[{"dst":"0.0.0.0/0","gw":"10.0.0.2"}]`,
			`[{"dst":"::/0","gw":"fe80::1"}]`, "ns/a@net1, b", `[{"name":"a","interface":"net2"},{"name":"b"}]`, "eth0", "net1",
			"true", "off", `[{"interface":"net1","mode":"off"}]`, `[{"interface":"eth0","hostLink":true}]`,
		} {
			f.Add(byte(i), value, "net1")
		}
	}
	pools := objects(v4("a").gateway("10.0.0.1"), v4("b").disabled(), v6("c").asDefault())
	f.Fuzz(func(t *testing.T, key byte, value, iface string) {
		name := keys[int(key)%len(keys)]
		routing, err := RoutingOf(podWith(map[string]string{name: value}), iface, agentapi.Routing{})
		if bad := (*AnnotationError)(nil); err != nil && !errors.As(err, &bad) || routing.Mode == agentapi.ModeOff && routing.HostLink != nil {
			t.Errorf("routing %+v, %v", routing, err)
		}
		for _, change := range []func(*Request){onPod(name, value), onNamespace(name, value)} {
			request := requestOf(change, onInterface(iface, has("eth0", "10.0.0.0/24")), inConfig([]string{"a"}, nil))
			choice, err := ChoosePools(request, pools, poolset.Set{})
			if err != nil {
				bad, none, awaited := (*AnnotationError)(nil), (*NoPoolError)(nil), (*PoolAwaitedError)(nil)
				if !errors.As(err, &bad) && !errors.As(err, &none) && !errors.As(err, &awaited) || len(err.Error()) > 64<<10 {
					t.Errorf("%d bytes of %v", len(err.Error()), err)
				}
				continue
			}
			if len(choice.Families) == 0 {
				t.Error("neither an address nor an error")
			}
			for i := range choice.Families {
				for _, c := range choice.Families[i].Pools {
					if _, err := choice.Families[i].RoutesThrough(c.Pool); err != nil {
						t.Error(err)
					}
				}
			}
		}
	})
}

func FuzzNetworks(f *testing.F) {
	for _, value := range []string{
		"a", "ns/a@net1, b", "a,,b", "a@b@c", "[null]", "[{}]", `[{"name":"a"}]`, `[{"name":"a","interface":"eth0"}]`, `{"name":"a"}`, `"a"`,
	} {
		f.Add(value)
	}
	f.Fuzz(func(t *testing.T, value string) {
		for _, key := range []string{multusNetworks, multusDefault} {
			all, err := Attachments(podWith(map[string]string{key: value}), Multus{})
			if err != nil {
				if bad := (*AnnotationError)(nil); !errors.As(err, &bad) {
					t.Errorf("%T", err)
				}
				continue
			}
			seen := map[string]bool{}
			for i, a := range all {
				if a.Interface == "" || seen[a.Interface] || i > 0 && a.Definition == "" {
					t.Errorf("attachment %d is %+v", i, a)
				}
				seen[a.Interface] = true
			}
		}
	})
}
