// SPDX-License-Identifier: Apache-2.0

package poolset

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/test/check"
)

// poolOf is a pool under test. Its methods set one field each.
type poolOf v1alpha1.IPPool

func pool(name, subnet string) *poolOf {
	return &poolOf{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.IPPoolSpec{Subnet: subnet}}
}

func v4(name string) *poolOf { return pool(name, "10.0.0.0/24") }
func v6(name string) *poolOf { return pool(name, "fd00::/64") }

func (p *poolOf) ips(entries ...string) *poolOf     { p.Spec.IPs = entries; return p }
func (p *poolOf) without(entries ...string) *poolOf { p.Spec.ExcludeIPs = entries; return p }
func (p *poolOf) gateway(addr string) *poolOf       { p.Spec.Gateway = &addr; return p }
func (p *poolOf) ipVersion(v int64) *poolOf         { p.Spec.IPVersion = &v; return p }
func (p *poolOf) disabled(v bool) *poolOf           { p.Spec.Disable = &v; return p }
func (p *poolOf) deleting() *poolOf                 { p.DeletionTimestamp = &metav1.Time{}; return p }
func (p *poolOf) object() *v1alpha1.IPPool          { return (*v1alpha1.IPPool)(p) }

// routed adds routes as "dst gw" or "dst".
func (p *poolOf) routed(routes ...string) *poolOf {
	for _, r := range routes {
		dst, gw, _ := strings.Cut(r, " ")
		p.Spec.Routes = append(p.Spec.Routes, v1alpha1.Route{Dst: dst, Gw: gw})
	}
	return p
}

func setOf(t *testing.T, entries ...string) Set {
	t.Helper()
	s, err := Parse(entries)
	check.OK(t, err)
	return s
}
