// SPDX-License-Identifier: Apache-2.0

//go:build api

package records

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/test/check"
)

func (e *env) testReservationsAccepted(t *testing.T) {
	for name, spec := range map[string]fields{
		"an address":                {"ips": list("10.1.0.7")},
		"ranges, CIDRs, single":     {"ips": list("10.1.0.9-10.1.0.10", "10.1.2.0/24", "10.1.3.4", "10.1.4.4-10.1.4.4")},
		"a range over octets":       {"ips": list("9.255.255.255-10.0.0.0", "10.1.255.200-10.2.0.1", "10.1.0.255-10.1.1.0")},
		"both IP versions together": {"ips": list("10.1.0.7", "fd00:1::10-fd00:1::ffff", "fd00:1:0:0:1::/80")},
		"ipVersion 4":               {"ips": list("10.1.0.7", "10.1.2.0/24"), "ipVersion": int64(4)},
		"ipVersion 6":               {"ips": list("fd00:1::5", "fd00:1::10-fd00:1::ffff"), "ipVersion": int64(6)},
		"4096 entries":              {"ips": many(4096)},
		"4096 entries of the widest form, with ipVersion":                 {"ips": widest(4096), "ipVersion": int64(6)},
		"ranges that end before they start, which the controller reports": {"ips": list("fd00::20-fd00::10", "10.1.0.20-10.1.0.3")},
	} {
		t.Run(name, func(t *testing.T) {
			check.Is(t, e.admin.Create(t.Context(), record("ReservedIP", "reserved", spec), client.DryRunAll), nil, "got")
		})
	}
}

func (e *env) testReservationsRefused(t *testing.T) {
	for name, c := range map[string]struct {
		spec fields
		want string // the sentence, which names the field
	}{
		"no ips":                       {fields{}, "spec.ips: Required value"},
		"an empty list":                {fields{"ips": []any{}}, "spec.ips"},
		"an IPv6 CIDR with host bits":  {fields{"ips": list("fd00::1/64")}, ": fd00::1/64 has host bits set"},
		"ipVersion is neither 4 nor 6": {fields{"ips": list("10.1.0.1"), "ipVersion": int64(5)}, "spec.ipVersion: Unsupported value: 5"},
		"ipVersion 6 with IPv4":        {fields{"ips": list("fd00::1", "10.1.0.1"), "ipVersion": int64(6)}, "ips: 10.1.0.1 is not of ipVersion"},
		"ipVersion 4 with IPv6":        {fields{"ips": list("10.1.0.1", "fd00::/64"), "ipVersion": int64(4)}, "ips: fd00::/64 is not of ipVersion"},
	} {
		t.Run(name, func(t *testing.T) {
			err := e.admin.Create(t.Context(), record("ReservedIP", "reserved", c.spec), client.DryRunAll)
			e.refused(t, err, "spec.ip")
			e.refused(t, err, c.want)
		})
	}
}

// spiderReservedIP is the example of Spiderpool's own documentation.
const spiderReservedIP = `
apiVersion: spiderpool.spidernet.io/v2beta1
kind: SpiderReservedIP
metadata:
  name: exclude-ips
spec:
  ipVersion: 4
  ips:
    - 10.6.168.40-10.6.168.44
    - 10.6.168.50
`

// testReservationOfSpiderpool: apiVersion and kind are all that has to change.
func (e *env) testReservationOfSpiderpool(t *testing.T) {
	text := strings.Replace(spiderReservedIP, "spiderpool.spidernet.io/v2beta1", v1alpha1.GroupVersion().String(), 1)
	text = strings.Replace(text, "SpiderReservedIP", "ReservedIP", 1)
	manifest := &unstructured.Unstructured{}
	check.OK(t, yaml.UnmarshalStrict([]byte(text), &manifest.Object))
	e.create(t, manifest)
	r := &v1alpha1.ReservedIP{}
	check.OK(t, e.admin.Get(t.Context(), objectKey("exclude-ips"), r))
	check.That(t, len(r.Spec.IPs) == 2 && r.Spec.IPVersion != nil && *r.Spec.IPVersion == 4, "spec is %+v", r.Spec)
}

// testReservationStatus: the controller writes the status, and nobody the spec by it.
func (e *env) testReservationStatus(t *testing.T) {
	e.create(t, record("ReservedIP", "routers", fields{"ips": list("10.1.0.1")}))
	r := &v1alpha1.ReservedIP{}
	check.OK(t, e.controller.Get(t.Context(), objectKey("routers"), r))
	r.Status.InUse, r.Spec.IPs = 3, []string{"10.1.0.2"}
	agent := e.agent(t, "n7")
	e.refused(t, agent.Status().Update(t.Context(), r.DeepCopy()), `cannot update resource "reservedips/status"`)
	e.refused(t, e.controller.Update(t.Context(), r.DeepCopy()), `cannot update resource "reservedips"`)
	check.OK(t, e.controller.Status().Update(t.Context(), r.DeepCopy()))
	check.OK(t, agent.Get(t.Context(), objectKey("routers"), r))
	check.That(t, r.Status.InUse == 3 && r.Spec.IPs[0] == "10.1.0.1", "after the controller's write: %+v, %+v", r.Spec, r.Status)
}
