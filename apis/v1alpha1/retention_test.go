// SPDX-License-Identifier: Apache-2.0

package v1alpha1_test

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/test/check"
)

const (
	static, retention           = "ipam.fenceline.io/static-ip", "ipam.fenceline.io/ip-retention"
	otherStatic, otherRetention = "ipam.spidernet.io/static-ip", "ipam.spidernet.io/ip-retention"
	aliasStatic                 = "network.beta.kubernetes.io/ucloud-statefulset-static-ip"
	aliasRetention              = "network.beta.kubernetes.io/ucloud-statefulset-ip-claim-policy"
)

type annotations = map[string]string

func TestRetentionThatAnnotationsAskFor(t *testing.T) {
	const nothing = time.Duration(-1)
	forever := v1alpha1.LeaseRetention{Policy: v1alpha1.RetainForever}
	lasting := func(d time.Duration) v1alpha1.LeaseRetention {
		return v1alpha1.LeaseRetention{Policy: v1alpha1.RetainFor, Duration: &metav1.Duration{Duration: d}}
	}
	for _, row := range []struct {
		name string
		on   annotations
		want v1alpha1.LeaseRetention
	}{
		{"no annotation asks for nothing", nil, lasting(nothing)},
		{"other annotations ask for nothing", annotations{"ipam.fenceline.io/ippool": "{}"}, lasting(nothing)},
		{"static-ip false asks for nothing", annotations{static: "false"}, lasting(nothing)},
		{"empty values ask for nothing", annotations{static: "", retention: ""}, lasting(nothing)},
		{"static-ip alone: for ever", annotations{static: "true"}, forever},
		{"static-ip with an empty ip-retention: for ever", annotations{static: "true", retention: ""}, forever},
		{"ip-retention alone asks for a fixed address too", annotations{retention: "forever"}, forever},
		{"both", annotations{static: "true", retention: "48h"}, lasting(48 * time.Hour)},
		{"0 keeps nothing that the StatefulSet does not own", annotations{retention: "0"}, lasting(0)},
		{"a bare number is hours", annotations{retention: "36"}, lasting(36 * time.Hour)},
		{"minutes", annotations{retention: "1h30m"}, lasting(90 * time.Minute)},
		{"fractions of a second are nothing that a lease could record", annotations{retention: "333.33333333h"}, lasting(333*time.Hour + 20*time.Minute)},
		{"nor are microseconds", annotations{retention: "100us"}, lasting(0)},
		{"the longest duration", annotations{retention: "87600"}, lasting(v1alpha1.MaxRetention)},
		{"the other prefix is understood", annotations{otherStatic: "true", otherRetention: "2"}, lasting(2 * time.Hour)},
		{"ours wins", annotations{retention: "1", otherRetention: "2"}, lasting(time.Hour)},
		{"the alias: for ever", annotations{aliasStatic: "true"}, forever},
		{"the alias: hours", annotations{aliasStatic: "true", aliasRetention: "48"}, lasting(48 * time.Hour)},
		{"the alias: 0 hours", annotations{aliasStatic: "true", aliasRetention: "0"}, lasting(0)},
		{"the alias of ip-retention alone", annotations{aliasRetention: "2"}, lasting(2 * time.Hour)},
		{"ours wins over the alias", annotations{retention: "1", aliasRetention: "2"}, lasting(time.Hour)},
		{"an annotation of lower precedence does not contradict ours: false", annotations{static: "false", aliasRetention: "2"}, lasting(nothing)},
		{"an annotation of lower precedence does not contradict ours: a retention", annotations{retention: "1", aliasStatic: "false"}, lasting(time.Hour)},
		{"an annotation of lower precedence does not make ours wrong: static-ip", annotations{retention: "1", aliasStatic: "yes"}, lasting(time.Hour)},
		{"an annotation of lower precedence does not make ours wrong: ip-retention", annotations{static: "true", aliasRetention: "two"}, forever},
		{"ours wins, one by one", annotations{static: "true", otherStatic: "false", otherRetention: "2"}, lasting(2 * time.Hour)},
	} {
		t.Run(row.name, func(t *testing.T) {
			got := check.Value(v1alpha1.ParseRetention(row.on))(t)
			if row.want.Duration != nil && row.want.Duration.Duration == nothing {
				if got != nil {
					t.Errorf("it asks for %s", got.Policy)
				}
				return
			}
			if got == nil || got.Policy != row.want.Policy || (got.Duration == nil) != (row.want.Duration == nil) ||
				(got.Duration != nil && got.Duration.Duration != row.want.Duration.Duration) {
				t.Errorf("got %+v, want %+v", got, row.want)
			}
		})
	}
}

func TestAnnotationsThatAskForNoRetention(t *testing.T) {
	for _, row := range []struct {
		name string
		on   annotations
		says string
	}{
		{"static-ip is neither true nor false", annotations{static: "yes"}, `ipam.fenceline.io/static-ip is "yes", expected true or false`},
		{"the alias of static-ip is neither true nor false", annotations{aliasStatic: "1"}, `network.beta.kubernetes.io/ucloud-statefulset-static-ip is "1", expected true or false`},
		{"the alias of ip-retention is no number of hours", annotations{aliasRetention: "48h"}, `network.beta.kubernetes.io/ucloud-statefulset-ip-claim-policy is "48h", expected a number of hours`},
		{"the alias of ip-retention is negative", annotations{aliasStatic: "true", aliasRetention: "-1"}, `network.beta.kubernetes.io/ucloud-statefulset-ip-claim-policy is "-1", expected a number of hours`},
		{"the aliases contradict each other", annotations{aliasStatic: "false", aliasRetention: "1"}, "ucloud-statefulset-static-ip is false: remove one of them"},
		{"a day is no unit", annotations{retention: "2d"}, `ipam.fenceline.io/ip-retention is "2d", expected forever, a duration such as 48h, or a number of hours`},
		{"a word", annotations{retention: "never"}, "it is not a duration"},
		{"a negative duration", annotations{retention: "-1h"}, "it is negative"},
		{"a negative number", annotations{retention: "-1"}, "it is not a duration"},
		{"more than ten years", annotations{retention: "87601"}, "it is longer than 87600h: write forever instead"},
		{"more hours than a duration holds", annotations{retention: "99999999"}, "it is not a duration"},
		{"a retention without a fixed address", annotations{static: "false", retention: "48h"}, "but ipam.fenceline.io/static-ip is false"},
		{"the annotation is named with the prefix that it has", annotations{otherRetention: "x"}, "annotation ipam.spidernet.io/ip-retention"},
		{"a bad one of ours is not replaced by the other prefix", annotations{retention: "x", otherRetention: "2"}, "annotation ipam.fenceline.io/ip-retention"},
	} {
		t.Run(row.name, func(t *testing.T) {
			got, err := v1alpha1.ParseRetention(row.on)
			check.That(t, err != nil && strings.Contains(err.Error(), row.says), "got %+v and %v, want an error that says %q", got, err, row.says)
		})
	}
}

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
