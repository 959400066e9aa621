// SPDX-License-Identifier: Apache-2.0

package ipam

import (
	"errors"
	"strings"
	"testing"

	"github.com/fenceline/fenceline/apis/poolset"
)

func TestAPodThatNamesASubnetIsRefused(t *testing.T) {
	const subnet, subnets = "ipam.fenceline.io/subnet", "ipam.fenceline.io/subnets"
	const want = "IPSubnet is not available in this version: name pools with the annotation ippool or ippools"
	for _, c := range []struct{ rule, annotation, value string }{
		{"subnet", subnet, `{"ipv4":["a"]}`},
		{"subnets, of another interface", subnets, `[{"interface":"net1","ipv4":["a"]}]`},
		{"the other prefix", "ipam.spidernet.io/subnet", `{"ipv4":["a"]}`},
		{"a value that is no JSON", subnet, "a"},
		{"an empty list", subnets, "[]"},
	} {
		t.Run(c.rule, func(t *testing.T) {
			prefix, _, _ := strings.Cut(c.annotation, "/")
			request := requestOf(onPod(c.annotation, c.value), onPod(prefix+"/ippool", `{"ipv4":["d"]}`))
			_, err := ChoosePools(request, objects(v4("d")), poolset.Set{})
			bad := (*AnnotationError)(nil)
			if !errors.As(err, &bad) || bad.Annotation != c.annotation || bad.Value != c.value || !strings.Contains(err.Error(), want) {
				t.Errorf("got %v, want %s", err, want)
			}
		})
	}
}
