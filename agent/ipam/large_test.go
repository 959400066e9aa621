// SPDX-License-Identifier: Apache-2.0

package ipam

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/fenceline/fenceline/apis/poolset"
)

// large is a pool with as many entries as the API server accepts, in no order.
func large() *poolOf {
	var ips, excluded []string
	for i := range 4096 {
		at := i * 1031 % 4096
		ips = append(ips, fmt.Sprintf("10.0.%d.%d", at/128, 2*(at%128)))
		excluded = append(excluded, fmt.Sprintf("10.0.%d.%d", 64+at/128, 2*(at%128)))
	}
	p := pool("large", "10.0.0.0/16").ips(ips...)
	p.Spec.ExcludeIPs = excluded
	return p
}

func TestTheErrorAboutALargePoolIsShort(t *testing.T) {
	p := large()
	for i, entry := range p.Spec.IPs {
		p.Spec.IPs[i] = entry + "-10.0.0.0"
	}
	_, err := ChoosePools(requestOf(inConfig([]string{"large"}, nil)), objects(p), poolset.Set{})
	if none := (*NoPoolError)(nil); !errors.As(err, &none) {
		t.Fatal(err)
	}
	if text := err.Error(); len(text) > 1500 || !strings.Contains(text, "spec.ips[1]: range") || !strings.Contains(text, "more") {
		t.Errorf("%d bytes: %.1500s", len(text), text)
	}
	p = large()
	p.Spec.IPs[3000] = "10.0.0.9-10.0.0.8"
	if _, err := ChoosePools(requestOf(inConfig([]string{"large"}, nil)), objects(p), poolset.Set{}); !strings.Contains(fmt.Sprint(err), "spec.ips[3000]: range 10.0.0.9-10.0.0.8 ends before it starts") {
		t.Error(err)
	}
}

// BenchmarkChooseLargePool is the part of an ADD that grows with the entries of its pool.
func BenchmarkChooseLargePool(b *testing.B) {
	pools := objects(large())
	request := requestOf(inConfig([]string{"large"}, nil))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := ChoosePools(request, pools, poolset.Set{}); err != nil {
			b.Fatal(err)
		}
	}
}
