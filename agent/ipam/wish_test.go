// SPDX-License-Identifier: Apache-2.0

package ipam

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/internal/poolset"
	"github.com/fenceline/fenceline/test/check"
)

// ordinal makes the pod the one of a StatefulSet with this ordinal.
func ordinal(n int64) func(*Request) { return func(r *Request) { r.Pod.Ordinal = &n } }

// ofDeployment makes the pod one of several.
func ofDeployment(r *Request) { r.Pod.Shares = true }

func TestAddressesThatAnAnnotationChooses(t *testing.T) {
	const key = "ipam.fenceline.io/ips"
	// a serves node n1, and b node n2.
	pools := objects(
		v4("a").ips("10.0.0.10-10.0.0.19").gateway("10.0.0.1").without("10.0.0.15"),
		pool("b", "10.0.9.0/24").ips("10.0.9.10-10.0.9.19").nodes("n2"),
		v6("c"), v4("shut").ips("10.0.0.50-10.0.0.59").unasked(), pool("d", "10.0.8.0/24"),
	)
	type list = []func(*Request)
	for _, row := range []struct {
		rule, value string
		change      list
		// want are the wishes of the families, "*" after those that are shared, or a part of the error.
		want string
	}{
		{"a single pod has the address", "10.0.0.12", nil, "10.0.0.12"},
		{"as the CNI convention writes it, with a prefix length", `["10.0.0.12/24"]`, nil, "10.0.0.12"},
		{"one of each family", "10.0.0.12, fd00::9", nil, "10.0.0.12; fd00::9"},
		{"an ordinal has its own", `["10.0.0.10", "10.0.0.11", "10.0.0.12"]`, list{ordinal(1)}, "10.0.0.11"},
		{"an ordinal has its own of each family, however they are mixed", "fd00::10,10.0.0.10,10.0.0.11,fd00::11", list{ordinal(1)}, "10.0.0.11; fd00::11"},
		{"kube-ovn's pairs", "10.0.0.10,fd00::10;10.0.0.11,fd00::11", list{ordinal(1)}, "10.0.0.11; fd00::11"},
		{"an ordinal does not mind the addresses of others", "10.0.0.10, 10.7.7.7", list{ordinal(0)}, "10.0.0.10"},
		{"a Deployment's pods share a list", "10.0.0.10, 10.0.0.11", list{ofDeployment}, "10.0.0.10 10.0.0.11*"},
		{"and a list of one", "10.0.0.10", list{ofDeployment}, "10.0.0.10*"},
		{"so do pods without an owner, whatever number their name ends with", "10.0.0.10, 10.0.0.11", nil, "10.0.0.10 10.0.0.11*"},
		{"a shared list may have addresses of other nodes", "10.0.0.10, 10.0.9.11", list{ofDeployment}, "10.0.0.10*"},
		{"for an interface by its name", `[{"interface": "net1", "ips": ["10.0.0.11"]}, {"interface": "eth0", "ips": ["10.0.0.12"]}]`, nil, "10.0.0.12"},
		{"for the interfaces by their order", `[{"ips": ["10.0.0.11"]}, {"ips": ["10.0.0.12"]}]`, list{onInterface("net1", has("eth0"))}, "10.0.0.12"},
		{"a plain list is for the first interface", "10.0.0.11", list{onInterface("net1", has("eth0"))}, ""},
		{"CNI requests one of the list", "10.0.0.11, 10.0.0.12", list{ofDeployment, asking("10.0.0.12")}, "10.0.0.12"},
		{"kept for the pod, though its pool takes no requests", "10.0.0.52", list{keeping("10.0.0.52", "shut")}, "10.0.0.52"},

		{"CNI requests another", "10.0.0.11", list{asking("10.0.0.12")}, "requested address 10.0.0.12 for pod shop/web-0 interface eth0: annotation " + key + " of pod shop/web-0 names other addresses"},
		{"the pool takes no requests", "10.0.0.52", nil, "requested address 10.0.0.52 for pod shop/web-0 interface eth0, entry 0 of annotation " + key + " of pod shop/web-0: pool shut takes no requests for an address (ipRequests: false); free this address, or name another one there"},
		{"the second of a shared list is excluded", "10.0.0.10, 10.0.0.15", list{ofDeployment}, "entry 1 of annotation " + key + " of pod shop/web-0: it is excluded from pool a"},
		{"reserved", "10.0.0.19", nil, "entry 0 of annotation " + key + " of pod shop/web-0: it is reserved; free this address, or name another one there"},
		{"of a load balancer", "10.0.0.19", list{func(r *Request) {
			r.Reservations = poolset.Listed{{TypeMeta: metav1.TypeMeta{Kind: "Service"}, ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}, Spec: v1alpha1.ReservedIPSpec{IPs: []string{"10.0.0.19"}}}}
		}}, "it is reserved by Service shop/web of type LoadBalancer; free this address"},
		{"kept for the pod, and of a load balancer", "10.0.0.19", list{func(r *Request) {
			r.Reservations = poolset.Listed{
				{ObjectMeta: metav1.ObjectMeta{Name: "own"}, Spec: v1alpha1.ReservedIPSpec{IPs: []string{"10.0.0.19"}, For: &v1alpha1.ReservedFor{Namespace: "shop", Pod: "web-0"}}},
				{TypeMeta: metav1.TypeMeta{Kind: "Service"}, ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}, Spec: v1alpha1.ReservedIPSpec{IPs: []string{"10.0.0.19"}}},
			}
		}}, "it is reserved by Service shop/web of type LoadBalancer; free this address"},
		{"kept for another ordinal of its StatefulSet", "10.0.0.19", list{ofSet, func(r *Request) {
			r.Reservations = poolset.Listed{reserving("set", "", v1alpha1.ReservedFor{StatefulSet: "web"}, "10.0.0.18-10.0.0.19"), reserving("own", "lab", v1alpha1.ReservedFor{Pod: "web-0"}, "10.0.0.19")}
		}}, "it is reserved by ReservedIP set; free this address"},
		{"kept for the pod in another network", "10.0.0.19", list{func(r *Request) {
			r.Reservations = poolset.Listed{reserving("own", "lab", v1alpha1.ReservedFor{Pod: "web-0"}, "10.0.0.19")}
		}}, `it is reserved by ReservedIP own, for pools of network "lab"; free this address`},
		{"kept for the pod twice", "10.0.0.19", list{func(r *Request) {
			r.Reservations = poolset.Listed{reserving("own", "", v1alpha1.ReservedFor{Pod: "web-0"}, "10.0.0.19"), reserving("more", "", v1alpha1.ReservedFor{Pod: "web-0"}, "10.0.0.18-10.0.0.19")}
		}}, "it is reserved by ReservedIP own and ReservedIP more; free this address"},
		{"outside of all pools", "10.0.0.10, 10.7.7.7", list{ordinal(1)}, "entry 1 of annotation " + key + " of pod shop/web-0: it is outside of the pools [a shut]"},
		{"in a pool of other nodes", "10.0.9.11", nil, "pool b has it, but does not serve the interface: its nodeName [n2] does not list node n1"},
		{"a shared list whose pools all are of other nodes", "10.0.9.11, 10.0.9.12", list{ofDeployment}, "requested address 10.0.9.11 for pod shop/web-0 interface eth0, entry 0 of annotation " + key + " of pod shop/web-0: it is outside of the pools [a shut]; pool b has it, but"},
		{"in a pool that nobody names", "10.0.8.9", nil, "pool d has it, but is not one of the pools of the CNI configuration"},
		{"shorter than the ordinal", "10.0.0.10, 10.0.0.11", list{ordinal(2)}, "the list has 2 addresses of a family, and none for ordinal 2: add addresses, or scale to 2 replicas"},
		{"no address", "10.0.0.10, web", nil, `entry 1, "web", is no IP address`},
		{"a range", "10.0.0.10-10.0.0.12", nil, `entry 0, "10.0.0.10-10.0.0.12", is no IP address`},
		{"an empty entry", "10.0.0.10,,10.0.0.11", nil, `entry 1, "", is no IP address`},
		{"a name of kube-ovn's pool", "pool-a", nil, `entry 0, "pool-a", is no IP address`},
		{"a prefix length too long", "10.0.0.10/33", nil, `has the prefix length "33"`},
		{"a zone", "fe80::1%eth0", nil, "is no IP address"},
		{"an IPv4 address as IPv6", "::ffff:10.0.0.10", nil, "entry 0, ::ffff:10.0.0.10, mixes the families: write 10.0.0.10"},
		{"more of one family than of the other", "10.0.0.10, 10.0.0.11, fd00::10", list{ordinal(0)}, "it names 2 IPv4 and 1 IPv6 addresses"},
		{"twice the same", "10.0.0.10, 10.0.0.11, 10.0.0.10", list{ordinal(0)}, "entry 2, 10.0.0.10, is there twice"},
		{"twice the same, in two spellings", "fd00::10, fd00:0::10", list{ordinal(0)}, "entry 1, fd00:0::10, is there twice"},
		{"twice the same interface", `[{"interface": "eth0", "ips": ["10.0.0.11"]}, {"interface": "eth0", "ips": ["10.0.0.12"]}]`, nil, "interface eth0 is named twice"},
		{"nothing", "", nil, `entry 0, "", is no IP address`},
		{"an empty list", "[]", nil, "it names 0 addresses for an interface"},
		{"an object", `{"ipv4": ["10.0.0.10"]}`, nil, "it is an object, and no list"},
		{"an unknown field", `[{"interface": "eth0", "ipv4": ["10.0.0.11"]}]`, nil, `unknown field "ipv4"`},
		{"more than a list may have", strings.Repeat("10.0.0.10,", 256), nil, "it names 257 addresses for an interface, expected 1 to 256"},
		{"a family without a pool", "fd00::9", list{func(r *Request) { r.ConfigPools.V6 = nil }}, "no pool of its family is chosen"},
	} {
		t.Run(row.rule, func(t *testing.T) {
			request := requestOf(append(list{inConfig([]string{"a", "b", "shut"}, []string{"c"}), onPod(key, row.value)}, row.change...)...)
			delete(request.Pod.Annotations, "v1.multus-cni.io/default-network")
			got, err := ChoosePools(request, pools, setOf(t, "10.0.0.19"))
			if err != nil {
				bad, refused := (*AnnotationError)(nil), (*RequestedError)(nil)
				check.That(t, errors.As(err, &bad) || errors.As(err, &refused), "it is a %T", err)
				check.Must(t, row.want != "" && strings.Contains(err.Error(), row.want), "got  %v\nwant %s", err, row.want)
				return
			}
			var wishes []string
			for _, f := range got.Families {
				if f.Wish == nil {
					check.That(t, len(f.Pools) > 0 && f.Pools[0].Only == nil, "without a wish, the pools are %+v", f.Pools)
					continue
				}
				wishes = append(wishes, wishOf(t, f))
			}
			check.Equal(t, strings.Join(wishes, "; "), row.want, "the wishes are")
		})
	}
}

func TestMACsBesideChosenAddresses(t *testing.T) {
	const at = "annotation ipam.fenceline.io/ips of pod shop/web-0"
	pools := objects(v4("a").ips("10.0.0.10-10.0.0.19").choosingMACs("0a:58"), v6("c"), v4("own").ips("10.0.0.50-10.0.0.59"))
	type list = []func(*Request)
	for _, row := range []struct {
		rule, value string
		change      list
		want        string // the MACs by address, or a part of the error
	}{
		{"of a single pod", `[{"ips": ["10.0.0.10"], "macs": ["0a:58:00:00:00:01"]}]`, nil, "map[10.0.0.10:0a:58:00:00:00:01]"},
		{"of an ordinal, in upper case, with both families", `[{"ips": ["10.0.0.10", "fd00::10", "10.0.0.11", "fd00::11"], "macs": ["0a:58:00:00:00:01", "0A-58-00-00-00-0B"]}]`,
			list{ordinal(1)}, "map[10.0.0.11:0a:58:00:00:00:0b]"},
		{"of a list that pods share", `[{"ips": ["10.0.0.10", "10.0.0.11"], "macs": ["0a:58:00:00:00:01", "0a:58:00:00:00:02"]}]`,
			list{ofDeployment}, "map[10.0.0.10:0a:58:00:00:00:01 10.0.0.11:0a:58:00:00:00:02]"},
		{"CNI requests one of the list", `[{"ips": ["10.0.0.10", "10.0.0.11"], "macs": ["0a:58:00:00:00:01", "0a:58:00:00:00:02"]}]`,
			list{ofDeployment, asking("10.0.0.11")}, "map[10.0.0.10:0a:58:00:00:00:01 10.0.0.11:0a:58:00:00:00:02]"},
		{"none", `[{"ips": ["10.0.0.10"]}]`, nil, "map[]"},
		{"another prefix", `[{"ips": ["10.0.0.10"], "macs": ["0a:59:00:00:00:01"]}]`, nil,
			"entry 0 of " + at + ": pool a takes no MAC 0a:59:00:00:00:01: set its macPolicy to type Chosen with a prefix that the MAC has, or leave out macs"},
		{"a pool without the policy", `[{"ips": ["10.0.0.50"], "macs": ["0a:58:00:00:00:01"]}]`, nil, "pool own takes no MAC 0a:58:00:00:00:01"},
		{"an IPv6 address beside an IPv4 one that is not chosen", `[{"ips": ["fd00::10"], "macs": ["0a:58:00:00:00:01"]}]`, nil, "name that as well"},
		{"of two, one has none", `[{"ips": ["10.0.0.10", "10.0.0.11"], "macs": ["0a:58:00:00:00:01"]}]`, nil, "it names 1 MACs for 2 addresses of a family"},
		{"twice", `[{"ips": ["10.0.0.10", "10.0.0.11"], "macs": ["0a:58:00:00:00:01", "0A:58:00:00:00:01"]}]`, nil, "macs entry 1, 0A:58:00:00:00:01, is there twice"},
		{"a multicast one", `[{"ips": ["10.0.0.10"], "macs": ["0b:58:00:00:00:01"]}]`, nil, `macs entry 0, "0b:58:00:00:00:01", is no MAC of an interface`},
		{"of InfiniBand", `[{"ips": ["10.0.0.10"], "macs": ["0a:58:00:00:00:01:00:02"]}]`, nil, "is no MAC of an interface"},
	} {
		t.Run(row.rule, func(t *testing.T) {
			request := requestOf(append(list{inConfig([]string{"a", "own"}, []string{"c"}), onPod("ipam.fenceline.io/ips", row.value)}, row.change...)...)
			delete(request.Pod.Annotations, "v1.multus-cni.io/default-network")
			got, err := ChoosePools(request, pools, poolset.Set{})
			if err != nil {
				check.Must(t, strings.Contains(err.Error(), row.want), "got  %v\nwant %s", err, row.want)
				return
			}
			check.Equal(t, fmt.Sprint(got.MACs), row.want, "the MACs are")
		})
	}
}

// wishOf describes the addresses that a family may give, and checks that its pools have no others.
func wishOf(t *testing.T, f Family) string {
	t.Helper()
	var all []netip.Addr
	for _, p := range f.Pools {
		all = append(all, p.Only...)
		check.That(t, p.Closed != nil || p.Set.Equal(poolset.Of(p.Only...)), "pool %s hands out %v, want %v", p.Pool.Name, p.Set.Entries(), p.Only)
	}
	text := strings.Trim(fmt.Sprint(all), "[]")
	if f.Wish.Shared {
		text += "*"
	}
	check.Equal(t, f.Requested.IsValid(), !f.Wish.Shared, "it insists on %s:", f.Requested)
	return text
}
