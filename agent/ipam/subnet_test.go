package ipam

import (
	"errors"
	"fmt"
	"strings"
	"testing"
)

// made makes the pool p-<subnet> of each subnet but "bad" and "none".
type made struct{}

func (made) Pools(pod Pod, subnets []string, ipv6 bool) ([]string, error) {
	var pools []string
	for _, s := range subnets {
		switch s {
		case "bad":
			return nil, fmt.Errorf("subnet bad has no room for %s, IPv6 %v", pod.Name, ipv6)
		case "none":
		default:
			pools = append(pools, "p-"+s)
		}
	}
	return pools, nil
}

func fromSubnets(r *Request) { r.Subnets = made{} }

func TestTheSubnetIsTheFirstSource(t *testing.T) {
	pools := []*poolOf{v4("p-a"), v4("p-b"), v6("p-c"), v4("d"), v4("e").asDefault()}
	all := onPod("ipam.fenceline.io/subnet", `{"ipv4":["a"],"ipv6":["c"]}`)
	each := onPod("ipam.fenceline.io/subnets", `[{"interface":"net1","ipv4":["b"]},{"interface":"eth0","ipv4":["b"]}]`)
	other := onPod("ipam.fenceline.io/subnets", `[{"interface":"net1","ipv4":["b"]}]`)
	lower := onPod("ipam.fenceline.io/ippools", `[{"interface":"eth0","ipv4":["d"]}]`)
	runChoices(t, []choiceCase{
		{"subnet goes before ippools", requestOf(fromSubnets, all, lower), pools, "v4: p-a; v6: p-c"},
		{"subnets goes before subnet", requestOf(fromSubnets, each, all, lower), pools, "v4: p-b"},
		{"an interface without an entry takes subnet", requestOf(fromSubnets, other, all, lower), pools, "v4: p-a; v6: p-c"},
		{"an interface without an entry asks the next source", requestOf(fromSubnets, other, lower), pools, "v4: d"},
		{"the other prefix is understood", requestOf(fromSubnets, onPod("ipam.spidernet.io/subnet", `{"ipv4":["a"]}`)), pools, "v4: p-a"},
	})
}

func TestSubnetsThatCannotBeUsed(t *testing.T) {
	const subnet, subnets = "ipam.fenceline.io/subnet", "ipam.fenceline.io/subnets"
	const unavailable = "IPSubnet is not available in this version: name pools with the annotation ippool or ippools"
	for _, c := range []struct {
		rule, annotation, value, problem string
		provider                         bool
	}{
		{"subnet in a version without IPSubnet", subnet, `{"ipv4":["a"]}`, unavailable, false},
		{"subnets in a version without IPSubnet", subnets, `[{"interface":"net1","ipv4":["a"]}]`, unavailable, false},
		{"no JSON", subnet, "a", "not the JSON expected", true},
		{"no entry", subnets, "[]", "the list has 0 entries", true},
		{"a subnet that cannot serve", subnet, `{"ipv6":["bad"]}`, "subnet bad has no room for web-0, IPv6 true", true},
		{"a subnet of which no pool is made", subnets, `[{"ipv4":["none"]}]`, "no pool is made of subnets [none]", true},
		{"a pool that is not there yet", subnet, `{"ipv4":["x"]}`, "there is no pool p-x", true},
	} {
		t.Run(c.rule, func(t *testing.T) {
			request := requestOf(onPod(c.annotation, c.value), inConfig([]string{"d"}, nil))
			if c.provider {
				fromSubnets(&request)
			}
			_, err := ChoosePools(request, objects(v4("d")), Set{})
			bad := (*AnnotationError)(nil)
			if !errors.As(err, &bad) || bad.Annotation != c.annotation || bad.Value != c.value || !strings.Contains(err.Error(), c.problem) {
				t.Errorf("got %v, want %s", err, c.problem)
			}
		})
	}
}
