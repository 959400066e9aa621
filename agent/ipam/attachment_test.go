// SPDX-License-Identifier: Apache-2.0

package ipam

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/fenceline/fenceline/cni/agentapi"
	"github.com/fenceline/fenceline/internal/poolset"
	"github.com/fenceline/fenceline/test/check"
)

const (
	multusNetworks = "k8s.v1.cni.cncf.io/networks"
	multusDefault  = "v1.multus-cni.io/default-network"
)

func podWith(annotations map[string]string) Pod {
	return Pod{Namespace: "shop", Name: "web-0", Annotations: annotations}
}

func TestTheInterfacesOfAPodWithTheirDefinitions(t *testing.T) {
	const json = `[{"name":"a"},{"name":"b","namespace":"infra","interface":"ib0"},{"name":"c"}]`
	for _, c := range []struct{ rule, network, networks, want string }{
		{"the cluster's network has none", "", "", "eth0="},
		{"a pod's own default network is that of eth0", "kube-system/m", "", "eth0=kube-system/m"},
		{"a default network without namespace is looked for where Multus is", "m", "", "eth0=kube-system/m"},
		{"a default network in JSON", `[{"name":"m","namespace":"infra"}]`, "", "eth0=infra/m"},
		{"a default network may ask for another name", "infra/m@lan0", "", "lan0=infra/m"},
		{"names count from net1, by order", "", "a,b", "eth0= net1=shop/a net2=shop/b"},
		{"a namespace before the name", "", "infra/a, b", "eth0= net1=infra/a net2=shop/b"},
		{"an interface after the name", "", "infra/a@lan0,b", "eth0= lan0=infra/a net2=shop/b"},
		{"blanks around everything", "", " infra / a @ lan0 , b ", "eth0= lan0=infra/a net2=shop/b"},
		{"the JSON form, and each entry its own namespace", "", json, "eth0= net1=shop/a ib0=infra/b net3=shop/c"},
		{"the JSON form with fields of other plugins", "", `[{"name":"a","ips":["10.0.0.7/24"],"mac":"c2:b0:57:49:47:f1","default-route":["10.0.0.1"],"cni-args":{"x":1}}]`, "eth0= net1=shop/a"},
		{"the older name of the field", "", `[{"name":"a","interfaceRequest":"lan0"}]`, "eth0= lan0=shop/a"},
		{"one network twice", "", "a,a", "eth0= net1=shop/a net2=shop/a"},
		{"both annotations", "m", "a", "eth0=kube-system/m net1=shop/a"},
		{"an empty list", "", "[]", "eth0="},
	} {
		t.Run(c.rule, func(t *testing.T) {
			annotations := map[string]string{multusNetworks: c.networks}
			if c.network != "" {
				annotations[multusDefault] = c.network
			}
			check.Equal(t, attachmentsOf(t, podWith(annotations), Multus{}), c.want, "got")
		})
	}
}

// attachmentsOf lists the attachments of a pod as "interface=definition".
func attachmentsOf(t *testing.T, pod Pod, m Multus) string {
	t.Helper()
	var got []string
	for _, a := range check.Value(Attachments(pod, m))(t) {
		got = append(got, a.Interface+"="+a.Definition)
	}
	return strings.Join(got, " ")
}

func TestTheInterfacesThatMultusGivesToPods(t *testing.T) {
	m := Multus{Namespace: "nets", Cluster: "nets/m", Additional: []string{"nets/s", ""}, Without: []string{"kube-system"}}
	for _, c := range []struct {
		rule, namespace, network, networks string
		multus                             Multus
		want                               string
	}{
		{"the cluster's network is that of eth0", "shop", "", "", m, "eth0=nets/m net1=nets/s net2="},
		{"the pod's own networks come after the additional ones", "shop", "", "a,b@lan0", m, "eth0=nets/m net1=nets/s net2= net3=shop/a lan0=shop/b"},
		{"a pod's own default network replaces the cluster's", "shop", "infra/x", "", m, "eth0=infra/x net1=nets/s net2="},
		{"a default network without namespace is looked for where Multus looks", "shop", "x", "", m, "eth0=nets/x net1=nets/s net2="},
		{"pods of the system get no additional networks", "kube-system", "", "a", m, "eth0=nets/m net1=kube-system/a"},
		{"a cluster's network from a file has no definition", "shop", "", "a", Multus{Namespace: "nets"}, "eth0= net1=shop/a"},
	} {
		t.Run(c.rule, func(t *testing.T) {
			pod := podWith(map[string]string{multusNetworks: c.networks})
			pod.Namespace = c.namespace
			if c.network != "" {
				pod.Annotations[multusDefault] = c.network
			}
			check.Equal(t, attachmentsOf(t, pod, c.multus), c.want, "got")
		})
	}
}

func TestNetworksThatCannotBeUsed(t *testing.T) {
	for _, c := range []struct{ rule, annotation, value, problem string }{
		{"broken JSON", multusNetworks, `[{"name":"a"}`, "not the JSON expected: unexpected end of JSON input"},
		{"an object in place of the list", multusNetworks, `{"name":"a"}`, "not the JSON expected: json: cannot unmarshal object"},
		{"an entry that is null", multusNetworks, `[null]`, "entry 0 names no network"},
		{"an entry without a name", multusNetworks, `[{"name":"a"},{"namespace":"b"}]`, "entry 1 names no network"},
		{"an empty item", multusNetworks, "a,,b", "entry 1 names no network"},
		{"a comma at the end", multusNetworks, "a,", "entry 1 names no network"},
		{"two slashes", multusNetworks, "a/b/c", "entry 0 names no network"},
		{"two interfaces", multusNetworks, "a@b@c", "entry 0 names no network"},
		{"no namespace before the slash", multusNetworks, "/a", "entry 0 names no network"},
		{"an interface asked for twice", multusNetworks, "a@lan0,b@lan0", `two networks make the interface "lan0"`},
		{"an interface asked for that another gets by order", multusNetworks, "a@net2,b", `two networks make the interface "net2"`},
		{"the first interface once more", multusNetworks, "a@eth0", `two networks make the interface "eth0"`},
		{"too many", multusNetworks, strings.Repeat("a,", 256) + "a", "it has 257 entries, more than 256"},
		{"two default networks", multusDefault, "a,b", "it names 2 networks, a pod has one default network"},
		{"an empty default network", multusDefault, "", "entry 0 names no network"},
		{"a default network of no entries", multusDefault, "[]", "it names 0 networks"},
	} {
		t.Run(c.rule, func(t *testing.T) {
			_, err := Attachments(podWith(map[string]string{c.annotation: c.value}), Multus{})
			bad, ok := errors.AsType[*AnnotationError](err)
			check.Must(t, ok && bad.Annotation == c.annotation && bad.Value == c.value && bad.On == "pod shop/web-0", "got %v", err)
			check.Says(t, err, c.problem, `expected the form "namespace/name@net1, …"`)
		})
	}
}

func TestMultusName(t *testing.T) {
	networks := onPod(multusNetworks, "infra/lan, spare@ib0")
	on := func(iface string) func(*Request) { return onInterface(iface, has("eth0")) }
	pools := objects(v4("lan").attachments("infra/lan"), v4("spare").attachments("shop/spare"),
		v4("own").attachments("kube-system/macvlan"), v4("any"))
	candidates := inConfig([]string{"any", "own", "spare", "lan"}, nil)
	without := func(r *Request) { delete(r.Pod.Annotations, multusDefault) }
	clusterNetwork := func(definition string) func(*Request) { return func(r *Request) { r.Multus.Cluster = definition } }
	for _, c := range []struct {
		rule    string
		request Request
		want    string
	}{
		{"the definition of net1", requestOf(candidates, networks, on("net1")), "v4: lan any"},
		{"the definition of an interface with a name of its own", requestOf(candidates, networks, on("ib0")), "v4: spare any"},
		{"the definition of the default network", requestOf(candidates, networks), "v4: own any"},
		{"an interface of which the pod says nothing has none", requestOf(candidates, on("lan7")), "v4: any"},
		{"the definition of Multus' cluster network", requestOf(candidates, without, clusterNetwork("kube-system/macvlan")), "v4: own any"},
		{"another cluster network", requestOf(candidates, without, clusterNetwork("kube-system/other")), "v4: any"},
	} {
		t.Run(c.rule, func(t *testing.T) {
			got, err := ChoosePools(c.request, pools, poolset.Set{})
			check.That(t, err == nil && names(got) == c.want, "got %q, %v, want %q", names(got), err, c.want)
		})
	}
	_, err := ChoosePools(requestOf(inConfig([]string{"lan"}, nil), on("lan7")), pools, poolset.Set{})
	const want = "pool lan: its multusName [infra/lan] does not list interface lan7, which neither an annotation of the pod nor Multus' configuration makes from a definition"
	check.Says(t, err, want)
}

// A pod that names its interfaces has those, and no others.
func TestAnInterfaceThatThePodDoesNotHave(t *testing.T) {
	networks := onPod(multusNetworks, "lan")
	for _, c := range []struct {
		rule, annotation, value string
		networks                func(*Request)
		refused                 bool
	}{
		{"in ippools", "ipam.fenceline.io/ippools", `[{"interface":"etho","ipv4":["a"]}]`, networks, true},
		{"in default-route-nic", "ipam.fenceline.io/default-route-nic", "etho", networks, true},
		{"in ippools, of a pod that does not name its interfaces", "ipam.fenceline.io/ippools", `[{"interface":"lan7","ipv4":["a"]}]`, inConfig([]string{"a"}, nil), false},
		{"in default-route-nic, of a pod that does not name its interfaces", "ipam.fenceline.io/default-route-nic", "lan7", inConfig([]string{"a"}, nil), false},
	} {
		t.Run(c.rule, func(t *testing.T) {
			_, err := ChoosePools(requestOf(c.networks, onPod(c.annotation, c.value), inConfig([]string{"a"}, nil)), objects(v4("a")), poolset.Set{})
			if !c.refused {
				check.That(t, err == nil, "%v", err)
				return
			}
			want := fmt.Sprintf("annotation %s of pod shop/web-0 is %q: the pod has no interface etho, its annotations name [\"eth0\" \"net1\"]", c.annotation, c.value)
			check.That(t, err != nil && strings.HasPrefix(err.Error(), want), "got  %v\nwant %s", err, want)
		})
	}
}

func TestAnnotationsThatCannotBeUsed(t *testing.T) {
	const ippools, ippool, ns = "ipam.fenceline.io/ippools", "ipam.fenceline.io/ippool", "ipam.fenceline.io/default-ipv4-ippool"
	for _, c := range []struct {
		rule, annotation, value, problem string
	}{
		{"no JSON", ippool, `a`, "not the JSON expected: invalid character 'a' looking for beginning of value"},
		{"an empty value", ippool, ``, "not the JSON expected: EOF"},
		{"another JSON type", ippool, `["a"]`, "not the JSON expected: json: cannot unmarshal array into Go value"},
		{"an unknown field", ippool, `{"ipv4pools":["a"]}`, `not the JSON expected: json: unknown field "ipv4pools"`},
		{"more than one value", ippool, `{"ipv4":["a"]} {}`, "more follows after the JSON value"},
		{"no pool", ippool, `{}`, "it names nothing"},
		{"an empty name", ippool, `{"ipv4":[""]}`, "a pool's name is empty"},
		{"a pool named twice", ippool, `{"ipv4":["a","b","a"]}`, `pool "a" is named twice`},
		{"a broken pattern", ippool, `{"ipv4":["a["]}`, `"a[" is not a valid pattern`},
		{"an unknown pool", ippool, `{"ipv4":["a","x"]}`, `there is no pool "x"`},
		{"a pool of the other family", ippool, `{"ipv4":["c"]}`, "pool c: its subnet fd00::/64 is of the other family"},
		{"an empty list of interfaces", ippools, `[]`, "the list has 0 entries, expected 1 to 256"},
		{"null", ippools, `null`, "the list has 0 entries, expected 1 to 256"},
		{"an entry without pools", ippools, `[{"interface":"eth0","ipv4":["a"]},{"interface":"net1"}]`, "entry 1 names nothing"},
		{"an interface named twice", ippools, `[{"interface":"eth0","ipv4":["a"]},{"interface":"eth0","ipv4":["b"]}]`, "interface eth0 is named twice"},
		{"an interface by no name that one can have", ippools, `[{"interface":"eth0 ","ipv4":["a"]}]`, `"eth0 " is not the name of an interface`},
		{"an object in place of the list", ippools, `{"ipv4":["a"]}`, "not the JSON expected"},
		{"a bare name on a namespace", ns, `a`, "not the JSON expected"},
		{"no pool on a namespace", ns, `[]`, "it names nothing"},
		{"more pools than anybody names", ippool, `{"ipv4":["` + strings.Repeat(`a","`, 256) + `a"]}`, "it names 257 pools of a family, more than 256"},
		{"more interfaces than a pod has", ippools, "[" + strings.Repeat(`{"ipv4":["a"]},`, 256) + `{"ipv4":["a"]}]`, "the list has 257 entries"},
		{"nesting without end", ippool, strings.Repeat("[", 20000), "not the JSON expected"},
		{"an unknown pool on a namespace", ns, `["x"]`, `there is no pool "x"`},
	} {
		t.Run(c.rule, func(t *testing.T) {
			change, on := onPod(c.annotation, c.value), "pod shop/web-0"
			if c.annotation == ns {
				change, on = onNamespace(c.annotation, c.value), "namespace shop"
			}
			// A good source below must not be used in its place.
			_, err := ChoosePools(requestOf(change, inConfig([]string{"b"}, nil)), objects(v4("a"), v4("b"), v6("c")), poolset.Set{})
			bad, ok := errors.AsType[*AnnotationError](err)
			check.Must(t, ok && bad.Annotation == c.annotation && bad.On == on && bad.Value == c.value, "got %v", err)
			check.Says(t, err, c.annotation, on, c.problem, "; expected the form "+bad.Expected)
		})
	}
}

func TestAMalformedAnnotationOfOursIsNotReplacedByTheOtherPrefix(t *testing.T) {
	_, err := ChoosePools(requestOf(onPod("ipam.fenceline.io/ippool", "{"), onPod("ipam.spidernet.io/ippool", `{"ipv4":["a"]}`)),
		objects(v4("a")), poolset.Set{})
	check.That(t, err != nil, "no error")
}

func TestALongValueIsCutInTheError(t *testing.T) {
	_, err := ChoosePools(requestOf(onPod("ipam.fenceline.io/ippool", strings.Repeat("x", 5000))), nil, poolset.Set{})
	check.That(t, err != nil && len(err.Error()) <= 700, "%d bytes of error", len(err.Error()))
}

// Whatever people write into an annotation: an answer, or an error that names an annotation or a pool.
func FuzzAnnotations(f *testing.F) {
	keys := []string{
		"ipam.fenceline.io/ippools", "ipam.fenceline.io/ippool", "ipam.fenceline.io/subnets", "ipam.fenceline.io/subnet",
		"ipam.fenceline.io/routes", "ipam.fenceline.io/default-route-nic", multusNetworks, multusDefault,
		"ipam.fenceline.io/default-ipv4-ippool", "ipam.fenceline.io/mode", "ipam.fenceline.io/host-link",
	}
	for i := range keys {
		for _, value := range []string{
			"", "a", "null", "[]", "[null]", "{}", `["a"]`, `["a*","[","a["]`, `[{"interface":"eth0","ipv4":["a"],"cleangateway":true}]`,
			`[{"ipv4":["*"]},{"ipv6":["c"]}]`, `{"ipv4":["a","?"],"ipv6":["c"]}`, `[{"dst":"0.0.0.0/0","gw":"10.0.0.2"}]`,
			`[{"dst":"::/0","gw":"fe80::1"}]`, "ns/a@net1, b", `[{"name":"a","interface":"net2"},{"name":"b"}]`, "eth0", "net1",
			"true", "off", `[{"interface":"net1","mode":"off"}]`, `[{"interface":"eth0","hostLink":true}]`,
		} {
			f.Add(byte(i), value, "net1")
		}
	}
	pools := objects(v4("a").gateway("10.0.0.1"), v4("b").disabled(), v6("c").asDefault())
	f.Fuzz(func(t *testing.T, key byte, value, iface string) {
		name := keys[int(key)%len(keys)]
		routing, err := RoutingOf(podWith(map[string]string{name: value}), iface, agentapi.Routing{})
		bad := (*AnnotationError)(nil)
		check.That(t, (err == nil || errors.As(err, &bad)) && (routing.Mode != agentapi.ModeOff || routing.HostLink == nil), "routing %+v, %v", routing, err)
		for _, change := range []func(*Request){onPod(name, value), onNamespace(name, value)} {
			request := requestOf(change, onInterface(iface, has("eth0", "10.0.0.0/24")), inConfig([]string{"a"}, nil))
			choice, err := ChoosePools(request, pools, poolset.Set{})
			if err != nil {
				bad, none, awaited := (*AnnotationError)(nil), (*NoPoolError)(nil), (*PoolAwaitedError)(nil)
				check.That(t, (errors.As(err, &bad) || errors.As(err, &none) || errors.As(err, &awaited)) && len(err.Error()) <= 64<<10,
					"%d bytes of %v", len(err.Error()), err)
				continue
			}
			check.That(t, len(choice.Families) != 0, "neither an address nor an error")
			for i := range choice.Families {
				for _, c := range choice.Families[i].Pools {
					check.Is(t, check.Err(choice.Families[i].RoutesThrough(c.Pool)), nil, "got")
				}
			}
		}
	})
}

func FuzzNetworks(f *testing.F) {
	for _, value := range []string{
		"a", "ns/a@net1, b", "a,,b", "a@b@c", "[null]", "[{}]", `[{"name":"a"}]`, `[{"name":"a","interface":"eth0"}]`, `{"name":"a"}`, `"a"`,
	} {
		f.Add(value)
	}
	f.Fuzz(func(t *testing.T, value string) {
		for _, key := range []string{multusNetworks, multusDefault} {
			all, err := Attachments(podWith(map[string]string{key: value}), Multus{})
			if err != nil {
				bad := (*AnnotationError)(nil)
				check.That(t, errors.As(err, &bad), "%T", err)
				continue
			}
			seen := map[string]bool{}
			for i, a := range all {
				check.That(t, a.Interface != "" && !seen[a.Interface] && (i <= 0 || a.Definition != ""), "attachment %d is %+v", i, a)
				seen[a.Interface] = true
			}
		}
	})
}
