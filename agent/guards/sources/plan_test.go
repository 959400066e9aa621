// SPDX-License-Identifier: Apache-2.0

package sources

import (
	"net"
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/fenceline/fenceline/agent/journal"
	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/bpf"
	"github.com/fenceline/fenceline/test/check"
)

const (
	podMAC  = "02:00:00:00:01:01"
	vrrpMAC = "00:00:5e:00:01:01"
)

func pool(mode v1alpha1.SourceGuardMode, allow *v1alpha1.SourceGuardAllow) *v1alpha1.IPPool {
	p := &v1alpha1.IPPool{}
	p.Name, p.Spec.SourceGuard, p.Spec.SourceGuardAllow = "v4", mode, allow
	return p
}

func mac(text string) net.HardwareAddr { m, _ := net.ParseMAC(text); return m }

func prefixes(texts ...string) (all []netip.Prefix) {
	for _, text := range texts {
		all = append(all, netip.MustParsePrefix(text))
	}
	return all
}

func TestPlanSaysWhatThePoolsSay(t *testing.T) {
	const own = "fe80::ff:fe00:101/128"
	router := &v1alpha1.SourceGuardAllow{
		CIDRs: []string{"10.0.0.60/32", "::/0"}, MACs: []string{"00:00:5E:00:01:01"}, Roles: []v1alpha1.SourceGuardRole{v1alpha1.RoleRouter},
	}
	guarded := bpf.Sources{Mode: bpf.SourcesEnforce, MAC: mac(podMAC), Prefixes: prefixes(own)}
	for name, tc := range map[string]struct {
		pools []*v1alpha1.IPPool
		local []netip.Addr
		want  bpf.Sources
		slaac bool
	}{
		"as the API server has none set": {[]*v1alpha1.IPPool{pool("", nil)}, nil, guarded, false},
		"Enforce":                        {[]*v1alpha1.IPPool{pool("Enforce", nil)}, nil, guarded, false},
		"Observe": {[]*v1alpha1.IPPool{pool("Observe", nil)}, nil,
			bpf.Sources{Mode: bpf.SourcesObserve, MAC: mac(podMAC), Prefixes: prefixes(own)}, true},
		"Off": {[]*v1alpha1.IPPool{pool("Off", router)}, nil, bpf.Sources{MAC: mac(podMAC)}, true},
		"the strictest of two counts, and what any allows": {[]*v1alpha1.IPPool{pool("Off", router), pool("Enforce", router)}, nil, bpf.Sources{
			Mode: bpf.SourcesEnforce, MAC: mac(podMAC), MACs: []net.HardwareAddr{mac(vrrpMAC)},
			Prefixes: prefixes("10.0.0.60/32", "::/0", own), Allow: bpf.AllowRouter,
		}, true},
		"an address of RFC 7217": {[]*v1alpha1.IPPool{pool("Enforce", nil)}, []netip.Addr{netip.MustParseAddr("fe80::7")},
			bpf.Sources{Mode: bpf.SourcesEnforce, MAC: mac(podMAC), Prefixes: prefixes("fe80::7/128", own)}, false},
	} {
		t.Run(name, func(t *testing.T) {
			got := check.Value(Plan(&journal.Entry{MAC: podMAC}, tc.pools, tc.local))(t)
			check.SameBy(t, cmp.Options{cmpopts.EquateComparable(netip.Prefix{}), cmpopts.EquateEmpty()}, got, tc.want, "sources")
			check.Equal(t, mayAutoconfigure(got), tc.slaac, "may autoconfigure:")
		})
	}
}

func TestPlanRefusesWhatItCannotRead(t *testing.T) {
	for name, tc := range map[string]struct {
		mac   string
		allow v1alpha1.SourceGuardAllow
	}{
		"MAC of the journal": {"", v1alpha1.SourceGuardAllow{}},
		"CIDR":               {podMAC, v1alpha1.SourceGuardAllow{CIDRs: []string{"10.0.0.1"}}},
		"MAC":                {podMAC, v1alpha1.SourceGuardAllow{MACs: []string{"00:00"}}},
	} {
		t.Run(name, func(t *testing.T) {
			check.That(t, check.Err(Plan(&journal.Entry{MAC: tc.mac}, []*v1alpha1.IPPool{pool("Enforce", &tc.allow)}, nil)) != nil, "no error")
		})
	}
}
