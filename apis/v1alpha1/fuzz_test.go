// SPDX-License-Identifier: Apache-2.0

package v1alpha1_test

import (
	"net/netip"
	"testing"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/test/check"
)

// FuzzLeaseNames: each name that is read is the name of its address.
func FuzzLeaseNames(f *testing.F) {
	for _, name := range []string{
		"192.0.2.7", "lab.192.0.2.7", "fd00-0020-0000-0000-0000-0000-0000-000e", "lab.fd00-0020-0000-0000-0000-0000-0000-000e",
		"fe80--1%eth0", "fd00--1", "--ffff-192.0.2.7", "a.b.192.0.2.7", ".192.0.2.7", "192.0.2", "", "fd00:20::e",
	} {
		f.Add(name)
	}
	f.Fuzz(func(t *testing.T, name string) {
		network, addr, err := v1alpha1.ParseLeaseName(name)
		if err != nil {
			check.That(t, network == "" && addr == (netip.Addr{}), "%q: %q, %s and %v", name, network, addr, err)
			return
		}
		check.Equal(t, v1alpha1.LeaseName(network, addr), name, "%q is read as %s in network %q, whose name is", name, addr, network)
	})
}

// FuzzRetention: a retention that a lease can record, or an error of bounded length.
func FuzzRetention(f *testing.F) {
	for i := range v1alpha1.FixedAddressAnnotations() {
		for _, value := range []string{"", "true", "false", "forever", "48h", "1.5s", "0", "-1h", "999999", "1e3h", "87600h", "87600h1ns", "2562047h48m"} {
			f.Add(byte(i), value, "true")
			f.Add(byte(i), value, "")
		}
	}
	f.Fuzz(func(t *testing.T, which byte, value, static string) {
		keys := v1alpha1.FixedAddressAnnotations()
		annotations := map[string]string{keys[0]: static}
		annotations[keys[int(which)%len(keys)]] = value
		fixed, err := v1alpha1.ParseFixedAddress(annotations)
		if err != nil {
			if len(err.Error()) > 4096 {
				t.Errorf("an error of %d bytes", len(err.Error()))
			}
			return
		}
		r := fixed.Retention
		if r == nil {
			return
		}
		check.That(t, fixed.Key != "" && (r.Policy == v1alpha1.RetainFor) == (r.Duration != nil), "%v: %+v", annotations, fixed)
		if d := r.Duration; d != nil && (d.Duration < 0 || d.Duration > v1alpha1.MaxRetention || len(d.Duration.String()) > 16) {
			t.Errorf("%v: %s", annotations, d.Duration)
		}
	})
}
