// SPDX-License-Identifier: Apache-2.0

//go:build api

package records

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/test/check"
)

func (e *env) testSubnetsAccepted(t *testing.T) {
	for name, spec := range map[string]fields{
		"IPv4, a subnet alone":  {"subnet": "10.1.0.0/24"},
		"IPv6, a subnet alone":  {"subnet": "fd00:1::/64"},
		"ranges, CIDRs, single": {"subnet": "10.1.0.0/16", "ips": list("10.1.0.9-10.1.0.10", "10.1.2.0/24", "10.1.3.4"), "excludeIPs": list("10.1.0.9")},
		"all fields": {
			"subnet": "10.1.0.0/24", "ipVersion": int64(4), "gateway": "10.1.0.1", "vlan": int64(5), "network": "lab-2", "default": true,
			"routes": []any{map[string]any{"dst": "192.168.0.0/16", "gw": "10.1.0.2"}}, "maxPerNamespace": int64(1),
			"namespaceName": list("shop"), "namespaceAffinity": map[string]any{"matchLabels": map[string]any{"tier": "gold"}},
			"sourceGuard": "Observe", "sourceGuardAllow": map[string]any{"cidrs": []any{"10.1.0.9/32"}, "roles": []any{"Router"}},
		},
		"4096 ranges of the widest form": {"subnet": "fd00:1::/64", "ips": widest(4096), "excludeIPs": widest(4096)},
	} {
		t.Run(name, func(t *testing.T) {
			check.Is(t, e.admin.Create(t.Context(), record("IPSubnet", "subnet", spec), client.DryRunAll), nil, "got")
		})
	}
}

func (e *env) testSubnetsRefused(t *testing.T) {
	with := func(field string, value any) fields { return fields{"subnet": "10.1.0.0/24", field: value} }
	for name, c := range map[string]struct {
		spec fields
		want string
	}{
		"no subnet":                {fields{}, "spec.subnet: Required value"},
		"subnet is no CIDR":        {fields{"subnet": "10.1.0.0"}, ": 10.1.0.0 is not a CIDR"},
		"subnet has host bits set": {fields{"subnet": "10.1.0.1/24"}, ": 10.1.0.1/24 has host bits set"},
		"ipVersion":                {with("ipVersion", int64(6)), "ipVersion 6 is not the version of subnet 10.1.0.0/24"},
		"gateway outside":          {with("gateway", "10.1.1.1"), "gateway 10.1.1.1 lies outside subnet 10.1.0.0/24"},
		"a reserved subnet":        {fields{"subnet": "127.0.0.0/24"}, "127.0.0.0/24 has addresses that no pod can have"},
		"vlan":                     {with("vlan", int64(4095)), "spec.vlan"},
		"network":                  {with("network", "Lab"), "network must be lower case letters"},
		"ips outside":              {with("ips", list("10.1.0.1", "10.1.1.1")), "ips: 10.1.1.1 lies outside subnet 10.1.0.0/24"},
		"ips is no address":        {with("ips", list("ten")), ": ten is neither an address nor a CIDR nor a range"},
		"excludeIPs outside":       {with("excludeIPs", list("10.1.0.0/23")), "excludeIPs: 10.1.0.0/23 lies outside subnet 10.1.0.0/24"},
		"route of another version": {with("routes", []any{map[string]any{"dst": "fd00::/64"}}), "routes: dst must be of the IP version of subnet"},
		"a negative quota":         {with("maxPerNamespace", int64(-1)), "spec.maxPerNamespace"},
		"a quota of 0":             {with("maxPerNamespace", int64(0)), "spec.maxPerNamespace"},
		"an empty namespace":       {with("namespaceName", list("")), "spec.namespaceName[0]"},
		"an unknown source guard":  {with("sourceGuard", "On"), "spec.sourceGuard"},
	} {
		t.Run(name, func(t *testing.T) {
			e.refused(t, e.admin.Create(t.Context(), record("IPSubnet", "subnet", c.spec), client.DryRunAll), c.want)
		})
	}
}

func (e *env) testSubnetChanges(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*v1alpha1.IPSubnetSpec)
		want   string
	}{
		"subnet":    {func(s *v1alpha1.IPSubnetSpec) { s.Subnet = "10.1.0.0/25" }, "subnet is immutable"},
		"network":   {func(s *v1alpha1.IPSubnetSpec) { s.Network = "b" }, "network is immutable"},
		"addresses": {func(s *v1alpha1.IPSubnetSpec) { s.IPs = []string{"10.1.0.4"} }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			e.create(t, record("IPSubnet", "changing", fields{"subnet": "10.1.0.0/24"}))
			subnet := &v1alpha1.IPSubnet{}
			check.OK(t, e.admin.Get(t.Context(), objectKey("changing"), subnet))
			c.change(&subnet.Spec)
			e.expect(t, e.admin.Update(t.Context(), subnet), c.want)
		})
	}
}

// testSubnetStatus: only the controller writes the status.
func (e *env) testSubnetStatus(t *testing.T) {
	e.create(t, record("IPSubnet", "floor", fields{"subnet": "10.1.0.0/24"}))
	subnet := &v1alpha1.IPSubnet{}
	check.OK(t, e.controller.Get(t.Context(), objectKey("floor"), subnet))
	subnet.Status = v1alpha1.IPSubnetStatus{
		Total: 253, Allocated: 3, Free: 250, PoolCount: 1, Pools: []v1alpha1.SubnetPool{{Name: "web", Addresses: 3}},
		Carving: []v1alpha1.Carving{{Pool: "web", IPs: []string{"10.1.0.2-10.1.0.4"}}},
		Unserved: []v1alpha1.Unserved{{
			Application: v1alpha1.Application{APIGroup: "apps", Kind: "Deployment", Namespace: "shop", Name: "web", Interface: "eth0"}, Message: "too few",
		}},
	}
	e.refused(t, e.agent(t, "n7").Status().Update(t.Context(), subnet.DeepCopy()), `cannot update resource "ipsubnets/status"`)
	check.OK(t, e.controller.Status().Update(t.Context(), subnet.DeepCopy()))
	check.OK(t, e.controller.Get(t.Context(), objectKey("floor"), subnet))
	s := subnet.Status
	check.That(t, s.Carving[0].Pool == "web" && s.Unserved[0].Name == "web" && s.Pools[0].Addresses == 3, "the status is %+v", s)
}

// testPoolsOfSubnets: the controller makes the pools of subnets, and only these. People do not change
// their addresses.
func (e *env) testPoolsOfSubnets(t *testing.T) {
	application := map[string]any{"apiGroup": "apps", "kind": "Deployment", "namespace": "shop", "name": "web", "interface": "eth0"}
	whole := func() fields {
		return fields{"subnet": "10.1.0.0/24", "ipSubnet": "floor", "application": application, "ips": list("10.1.0.2-10.1.0.4"), "namespaceName": list("shop")}
	}
	without := func(field string) fields {
		spec := whole()
		delete(spec, field)
		return spec
	}
	t.Run("without an application", func(t *testing.T) {
		e.refused(t, e.controller.Create(t.Context(), record("IPPool", "web", without("application"))), "a pool of an IPSubnet has application and ips")
	})
	t.Run("without addresses it would have the whole subnet", func(t *testing.T) {
		e.refused(t, e.controller.Create(t.Context(), record("IPPool", "web", without("ips"))), "a pool of an IPSubnet has application and ips")
	})
	t.Run("the controller makes no other pool", func(t *testing.T) {
		e.refused(t, e.controller.Create(t.Context(), record("IPPool", "web", without("ipSubnet"))), "makes and deletes only the pools of IPSubnets")
		e.create(t, record("IPPool", "drawn", fields{"subnet": "10.3.0.0/24"}))
		e.refused(t, e.controller.Delete(t.Context(), &v1alpha1.IPPool{ObjectMeta: metav1.ObjectMeta{Name: "drawn"}}), "makes and deletes only the pools of IPSubnets")
	})
	t.Run("a person makes none", func(t *testing.T) {
		e.refused(t, e.admin.Create(t.Context(), record("IPPool", "web", whole())), "the controller makes the pools of IPSubnet floor")
	})
	t.Run("a person edits one", func(t *testing.T) {
		check.OK(t, e.controller.Create(t.Context(), record("IPPool", "web", whole())))
		pool := &v1alpha1.IPPool{}
		for field, change := range map[string]func(*v1alpha1.IPPoolSpec){
			"ips":         func(s *v1alpha1.IPPoolSpec) { s.IPs = []string{"10.1.0.2"} },
			"excludeIPs":  func(s *v1alpha1.IPPoolSpec) { s.ExcludeIPs = []string{"10.1.0.2"} },
			"application": func(s *v1alpha1.IPPoolSpec) { s.Application.Name = "other" },
			"namespace":   func(s *v1alpha1.IPPoolSpec) { s.NamespaceName = nil },
		} {
			check.OK(t, e.admin.Get(t.Context(), objectKey("web"), pool))
			change(&pool.Spec)
			if err := e.admin.Update(t.Context(), pool); err == nil {
				t.Errorf("an edit of %s is accepted", field)
			} else {
				e.refused(t, err, "the controller writes ips, excludeIPs, namespaceName and application")
			}
		}
		check.OK(t, e.admin.Get(t.Context(), objectKey("web"), pool))
		pool.Spec.Disable = new(true)
		check.Is(t, e.admin.Update(t.Context(), pool), nil, "got")
		pool.Spec.IPSubnet = ""
		e.refused(t, e.admin.Update(t.Context(), pool), "ipSubnet is immutable")
		check.Is(t, e.admin.Delete(t.Context(), pool), nil, "got")
	})
	t.Run("a person deletes one", func(t *testing.T) { e.testDeletionsOfPools(t, record("IPPool", "web", whole())) })
}

// testDeletionsOfPools: people delete a pool of a subnet while it has no lease, or by force.
func (e *env) testDeletionsOfPools(t *testing.T, made client.Object) {
	pool := &v1alpha1.IPPool{}
	used := func(leases int64) {
		t.Helper()
		check.OK(t, e.controller.Get(t.Context(), objectKey("web"), pool))
		pool.Status.Used = leases
		check.OK(t, e.controller.Status().Update(t.Context(), pool))
	}
	check.OK(t, e.controller.Create(t.Context(), made))
	e.cleanUp(t, made)
	used(2)
	const want = "pool web has 2 leases, and until they end, new pods of Deployment shop/web would get no address: scale it to 0 or delete it first"
	e.refused(t, e.admin.Delete(t.Context(), pool), want)
	e.refused(t, e.admin.DeleteAllOf(t.Context(), &v1alpha1.IPPool{}, client.DryRunAll), want)
	check.Is(t, e.controller.Delete(t.Context(), pool, client.DryRunAll), nil, "the controller deletes it:")
	used(0)
	check.Is(t, e.admin.Delete(t.Context(), pool, client.DryRunAll), nil, "without a lease:")
	used(1)
	pool.Annotations = map[string]string{v1alpha1.AnnotationForceDelete: ""}
	check.OK(t, e.admin.Update(t.Context(), pool))
	check.Is(t, e.admin.Delete(t.Context(), pool), nil, "by force:")
	e.create(t, record("IPPool", "drawn-too", fields{"subnet": "10.3.0.0/24"}))
	drawn := &v1alpha1.IPPool{}
	check.OK(t, e.controller.Get(t.Context(), objectKey("drawn-too"), drawn))
	drawn.Status.Used = 1
	check.OK(t, e.controller.Status().Update(t.Context(), drawn))
	check.Is(t, e.admin.Delete(t.Context(), drawn, client.DryRunAll), nil, "a pool that a person drew:")
}

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
	e.refused(t, agent.Status().Update(t.Context(), r.DeepCopy()), "an agent writes status.speakers of a ReservedIP only")
	e.refused(t, e.controller.Update(t.Context(), r.DeepCopy()), `cannot update resource "reservedips"`)
	check.OK(t, e.controller.Status().Update(t.Context(), r.DeepCopy()))
	check.OK(t, agent.Get(t.Context(), objectKey("routers"), r))
	check.That(t, r.Status.InUse == 3 && r.Spec.IPs[0] == "10.1.0.1", "after the controller's write: %+v, %+v", r.Spec, r.Status)
}
