// SPDX-License-Identifier: Apache-2.0

package ipam

import (
	"errors"
	"strings"
	"testing"

	"github.com/fenceline/fenceline/internal/poolset"
	"github.com/fenceline/fenceline/test/check"
)

func TestAnnotationsThatCannotBeUsed(t *testing.T) {
	const ippools, ippool, ns = "ipam.fenceline.io/ippools", "ipam.fenceline.io/ippool", "ipam.fenceline.io/default-ipv4-ippool"
	for _, c := range []struct {
		rule, annotation, value, problem string
	}{
		{"no JSON", ippool, `a`, "not the JSON expected: invalid character 'a' looking for beginning of value"},
		{"an empty value", ippool, ``, "not the JSON expected: EOF"},
		{"another JSON type", ippool, `["a"]`, "not the JSON expected: json: cannot unmarshal array into Go value"},
		{"an unknown field", ippool, `{"ipv4pools":["a"]}`, `not the JSON expected: json: unknown field "ipv4pools"`},
		{"more than one value", ippool, `{"ipv4":["a"]} {}`, "more follows after the JSON value"},
		{"no pool", ippool, `{}`, "it names nothing"},
		{"an empty name", ippool, `{"ipv4":[""]}`, "a pool's name is empty"},
		{"a pool named twice", ippool, `{"ipv4":["a","b","a"]}`, "pool a is named twice"},
		{"a broken pattern", ippool, `{"ipv4":["a["]}`, `"a[" is not a valid pattern`},
		{"an unknown pool", ippool, `{"ipv4":["a","x"]}`, "there is no pool x"},
		{"a pool of the other family", ippool, `{"ipv4":["c"]}`, "pool c: its subnet fd00::/64 is of the other family"},
		{"an empty list of interfaces", ippools, `[]`, "the list has 0 entries, expected 1 to 256"},
		{"null", ippools, `null`, "the list has 0 entries, expected 1 to 256"},
		{"an entry without pools", ippools, `[{"interface":"eth0","ipv4":["a"]},{"interface":"net1"}]`, "entry 1 names nothing"},
		{"an interface named twice", ippools, `[{"interface":"eth0","ipv4":["a"]},{"interface":"eth0","ipv4":["b"]}]`, "interface eth0 is named twice"},
		{"an interface by no name that one can have", ippools, `[{"interface":"eth0 ","ipv4":["a"]}]`, `"eth0 " is not the name of an interface`},
		{"an object in place of the list", ippools, `{"ipv4":["a"]}`, "not the JSON expected"},
		{"a bare name on a namespace", ns, `a`, "not the JSON expected"},
		{"no pool on a namespace", ns, `[]`, "it names nothing"},
		{"more pools than anybody names", ippool, `{"ipv4":["` + strings.Repeat(`a","`, 256) + `a"]}`, "it names 257 pools of a family, more than 256"},
		{"more interfaces than a pod has", ippools, "[" + strings.Repeat(`{"ipv4":["a"]},`, 256) + `{"ipv4":["a"]}]`, "the list has 257 entries"},
		{"nesting without end", ippool, strings.Repeat("[", 20000), "not the JSON expected"},
		{"an unknown pool on a namespace", ns, `["x"]`, "there is no pool x"},
	} {
		t.Run(c.rule, func(t *testing.T) {
			change, on := onPod(c.annotation, c.value), "pod shop/web-0"
			if c.annotation == ns {
				change, on = onNamespace(c.annotation, c.value), "namespace shop"
			}
			// A good source below must not be used in its place.
			_, err := ChoosePools(requestOf(change, inConfig([]string{"b"}, nil)), objects(v4("a"), v4("b"), v6("c")), poolset.Set{})
			bad := (*AnnotationError)(nil)
			check.Must(t, errors.As(err, &bad), "got %v, want an AnnotationError", err)
			if bad.Annotation != c.annotation || bad.On != on || bad.Value != c.value {
				t.Errorf("it names %s of %s with value %q", bad.Annotation, bad.On, bad.Value)
			}
			check.Says(t, err, c.annotation, on, c.problem, "; expected the form "+bad.Expected)
		})
	}
}

func TestAMalformedAnnotationOfOursIsNotReplacedByTheOtherPrefix(t *testing.T) {
	_, err := ChoosePools(requestOf(onPod("ipam.fenceline.io/ippool", "{"), onPod("ipam.spidernet.io/ippool", `{"ipv4":["a"]}`)),
		objects(v4("a")), poolset.Set{})
	check.That(t, err != nil, "no error")
}

func TestALongValueIsCutInTheError(t *testing.T) {
	_, err := ChoosePools(requestOf(onPod("ipam.fenceline.io/ippool", strings.Repeat("x", 5000))), nil, poolset.Set{})
	check.That(t, err != nil && len(err.Error()) <= 700, "%d bytes of error", len(err.Error()))
}
