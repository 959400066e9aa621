// SPDX-License-Identifier: Apache-2.0

package ipam

import (
	"errors"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/internal/poolset"
	"github.com/fenceline/fenceline/test/check"
)

func web(iface string) v1alpha1.Application {
	return v1alpha1.Application{APIGroup: "apps", Kind: "Deployment", Namespace: "default", Name: "web", Interface: iface}
}

// made returns a pool that the controller made of an IPSubnet for an application.
func made(name, subnet, cidr string, of v1alpha1.Application) v1alpha1.IPPool {
	p := v1alpha1.IPPool{Spec: v1alpha1.IPPoolSpec{Subnet: cidr, IPSubnet: subnet, Application: &of}}
	p.Name = name
	return p
}

func TestPoolsOfIPSubnets(t *testing.T) {
	other := web("0")
	other.Name = "other"
	pools := append(objects(v4("drawn")),
		made("web-0", "floor", "10.1.0.0/24", web("0")), made("web-0-v6", "floor-6", "fd00:1::/64", web("0")),
		made("web-net1", "floor", "10.1.0.0/24", web("net1")), made("other-0", "floor", "10.1.0.0/24", other),
		made("web-second", "second", "10.2.0.0/24", web("0")))
	const subnet, subnets = "ipam.fenceline.io/subnet", "ipam.fenceline.io/subnets"
	pod := func(r *Request) { r.Application = web("") }
	of := func(a v1alpha1.Application) func(*Request) { return func(r *Request) { r.Application = a } }
	defaults := func(r *Request) { r.Subnets = Subnets{V4: []string{"floor"}} }
	closed := func(r *Request) {
		r.Subnets.All = []v1alpha1.IPSubnet{{Spec: v1alpha1.IPSubnetSpec{NamespaceName: []string{"bank"}}}, {Spec: v1alpha1.IPSubnetSpec{
			NamespaceAffinity: &metav1.LabelSelector{MatchLabels: map[string]string{"tier": "silver"}},
		}}}
		r.Subnets.All[0].Name, r.Subnets.All[1].Name = "floor", "second"
	}
	second := func(r *Request) { r.Interface, r.Earlier = "net1", []Interface{{Name: "eth0"}} }
	for _, row := range []struct {
		rule  string
		edits []func(*Request)
		want  string // the pools, or a part of the error
	}{
		{"subnet", []func(*Request){pod, onPod(subnet, `{"ipv4":["floor"]}`)}, "web-0"},
		{"the other prefix", []func(*Request){pod, onPod("ipam.spidernet.io/subnet", `{"ipv4":["floor"]}`)}, "web-0"},
		{"it takes precedence over pools", []func(*Request){pod, onPod(subnet, `{"ipv4":["floor"]}`), onPod("ipam.fenceline.io/ippool", `{"ipv4":["drawn"]}`)}, "web-0"},
		{"two families", []func(*Request){pod, onPod(subnet, `{"ipv4":["floor"],"ipv6":["floor-6"]}`)}, "web-0 web-0-v6"},
		{"the pool of another subnet that is named", []func(*Request){pod, onPod(subnet, `{"ipv4":["missing","second"]}`)}, "web-second"},
		{"an entry of its name", []func(*Request){pod, second, onPod(subnets, `[{"interface":"net1","ipv4":["floor"]}]`)}, "web-net1"},
		{"the pool of its number, while the controller renames it", []func(*Request){pod, onPod(subnets, `[{"interface":"eth0","ipv4":["floor"]},{"interface":"net1","ipv4":["floor"]}]`)}, "web-0"},
		{"an interface without an entry", []func(*Request){pod, second, onPod(subnet, `{"ipv4":["floor"]}`), onPod("ipam.fenceline.io/ippool", `{"ipv4":["drawn"]}`)}, "drawn"},
		{"the pool of another application", []func(*Request){of(other), onPod(subnet, `{"ipv4":["floor"]}`)}, "other-0"},
		{"a pool of another application that is named", []func(*Request){of(other), onPod("ipam.fenceline.io/ippool", `{"ipv4":["web-0"]}`)}, "it is for Deployment default/web"},
		{"a pool that is not made yet", []func(*Request){pod, onPod(subnet, `{"ipv4":["missing"]}`)}, "the controller has not made the pool of Deployment default/web in IPSubnet missing yet: there is no such IPSubnet"},
		{"a bad value", []func(*Request){pod, onPod(subnet, `{"ip4":["floor"]}`)}, "annotation ipam.fenceline.io/subnet of pod"},
		{"a bad number", []func(*Request){pod, onPod(subnet, `{"ipv4":["floor"]}`), onPod("ipam.fenceline.io/ippool-ip-number", "x")}, "annotation ipam.fenceline.io/ippool-ip-number of pod"},
		{"a pod without an owner", []func(*Request){of(v1alpha1.Application{Kind: "Pod", Namespace: "default", Name: "bare"}), onPod(subnet, `{"ipv4":["floor"]}`)}, "give a fixed number"},
		{"a default subnet", []func(*Request){pod, defaults}, "web-0"},
		{"an annotation of pools before it", []func(*Request){pod, defaults, onPod("ipam.fenceline.io/ippool", `{"ipv4":["drawn"]}`)}, "drawn"},
		{"the configuration before it", []func(*Request){pod, defaults, func(r *Request) { r.ConfigPools.V4 = []string{"drawn"} }}, "drawn"},
		{"the pool of an IPSubnet that was closed to the namespace", []func(*Request){pod, closed, onPod(subnet, `{"ipv4":["floor"]}`)}, "it is of IPSubnet floor: its namespaceName [bank] does not list namespace shop"},
		{"that of another one", []func(*Request){pod, closed, onPod(subnet, `{"ipv4":["second"]}`)}, "it is of IPSubnet second: its namespaceAffinity (tier=silver) does not match the labels of namespace shop"},
		{"a default subnet of other namespaces is not for the pod", []func(*Request){pod, defaults, closed, func(r *Request) { r.Subnets.V4 = []string{"floor"} }}, "no pool for"},
		{"not for a pod without an owner", []func(*Request){of(v1alpha1.Application{Kind: "Pod", Namespace: "default", Name: "bare"}), defaults}, "no pool for"},
		{"not for a second interface", []func(*Request){pod, second, defaults}, "no pool for"},
	} {
		t.Run(row.rule, func(t *testing.T) {
			choice, err := ChoosePools(requestOf(row.edits...), pools, poolset.Set{})
			var names []string
			for _, f := range choice.Families {
				for _, c := range f.Pools {
					names = append(names, c.Pool.Name)
				}
			}
			if err != nil {
				check.Says(t, err, row.want)
				return
			}
			check.Equal(t, strings.Join(names, " "), row.want, "pools")
		})
	}
}

// The controller's reason is part of the error, so that the pod's owner need not look for it.
func TestAPodThatWaitsForItsPoolIsToldTheReason(t *testing.T) {
	subnet := v1alpha1.IPSubnet{Status: v1alpha1.IPSubnetStatus{Unserved: []v1alpha1.Unserved{
		{Application: web("net1"), Message: "of another interface"}, {Application: web("0"), Message: "4 addresses are wanted"},
	}}}
	subnet.Name = "floor"
	request := requestOf(onPod("ipam.fenceline.io/subnet", `{"ipv4":["floor"]}`), func(r *Request) {
		r.Application, r.Subnets.All = web(""), []v1alpha1.IPSubnet{subnet}
	})
	_, err := ChoosePools(request, nil, poolset.Set{})
	awaited, ok := errors.AsType[*PoolAwaitedError](err)
	check.That(t, ok && awaited.Why == "4 addresses are wanted", "got %v", err)
}
