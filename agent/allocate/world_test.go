// SPDX-License-Identifier: Apache-2.0

package allocate

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fenceline/fenceline/agent/ipam"
	"github.com/fenceline/fenceline/apis/v1alpha1"
)

// world is random pools and reservations, and random pods that ask for their addresses.
type world struct {
	seed     uint64
	pools    []v1alpha1.IPPool
	reserved []string
	history  *history
	// allowsAll is what each pool might hand out if nothing were reserved, and
	// allows what it may; shared tells which of them overlap another.
	allowsAll, allows map[string][]netip.Addr
	shared            map[string]bool
}

// ask is the request of one interface of a pod, with what the test knows of it
// without reading it: the pools that its first source names.
type ask struct {
	ipam.Request
	v4, v6 []string
	// implied: the pools offer themselves, a family is wanted where one is meant for the pod.
	implied bool
	// ofPod: an annotation of the pod itself names the pools.
	ofPod bool
	// mistakes are what may be told of the annotation that names the pools.
	mistakes   []string
	definition string
	// kept are the leases that are kept for the interface.
	kept []*v1alpha1.IPLease
}

var (
	subnetsV4 = []string{"10.0.0.0/28", "10.0.0.0/27", "10.0.0.16/28", "10.0.1.0/30", "10.0.2.0/31", "10.0.3.0/32"}
	subnetsV6 = []string{"fd00::/124", "fd00::/64", "fd00:1::/125", "fd00:2::/127", "fd00:3::/128"}
)

const unknownPool = "nowhere"

func newWorld(seed uint64) *world {
	r := rand.New(rand.NewPCG(seed, 1))
	w := &world{seed: seed, history: &history{}, allowsAll: map[string][]netip.Addr{}, allows: map[string][]netip.Addr{}, shared: map[string]bool{}}
	for range r.IntN(3) {
		w.reserved = append(w.reserved, entryOf(r, pick(r, append(subnetsV4, subnetsV6...))))
	}
	for i := range 1 + r.IntN(5) {
		w.pools = append(w.pools, randomPool(r, i))
	}
	for i := range w.pools {
		p := &w.pools[i]
		w.allowsAll[p.Name] = allowed(p, nil)
		w.allows[p.Name], w.shared[p.Name] = allowed(p, w.reserved), overlaps(p, w.pools)
	}
	return w
}

func randomPool(r *rand.Rand, i int) v1alpha1.IPPool {
	family, subnets := "v4", subnetsV4
	if r.IntN(3) == 0 {
		family, subnets = "v6", subnetsV6
	}
	p := v1alpha1.IPPool{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%s-%d", family, i)}}
	s := &p.Spec
	s.Subnet = pick(r, subnets)
	entries := func(least, most int) (all []string) {
		for range least + r.IntN(most-least+1) {
			all = append(all, entryOf(r, s.Subnet))
		}
		return all
	}
	// Nobody looks at each address of a /64.
	if chance(r, 70) || strings.HasSuffix(s.Subnet, "/64") {
		s.IPs = entries(1, 3)
	}
	s.ExcludeIPs = entries(0, 1)
	if chance(r, 30) {
		gateway := addrOf(r, s.Subnet).String()
		s.Gateway = &gateway
	}
	s.Network = pick(r, []string{"", "", "red"})
	s.Disable = maybe(r, 5, true)
	s.Default = maybe(r, 60, true)
	if chance(r, 5) {
		p.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)}
	}
	if chance(r, 5) {
		p.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionReady, Status: metav1.ConditionFalse, Reason: "Overlapping"}}
	}
	if chance(r, 8) {
		s.NodeName = []string{pick(r, []string{"n0", "n1"})}
	}
	if chance(r, 8) {
		s.NamespaceName = []string{pick(r, []string{"shop", "bank"})}
	}
	if chance(r, 8) {
		s.MultusName = []string{pick(r, []string{"nets/a", "nets/b"})}
	}
	for _, affinity := range []**metav1.LabelSelector{&s.NodeAffinity, &s.NamespaceAffinity, &s.PodAffinity} {
		if chance(r, 8) {
			*affinity = &metav1.LabelSelector{MatchLabels: map[string]string{"kind": pick(r, []string{"x", "y"})}}
		}
	}
	if chance(r, 50) {
		s.Reclaim = &v1alpha1.Reclaim{Cooldown: &v1alpha1.Duration{Duration: pick(r, []time.Duration{0, time.Millisecond, time.Hour})}}
	}
	// The bitmap may say anything.
	bits := make([]byte, r.IntN(9))
	for i := range bits {
		bits[i] = byte(r.Uint32())
	}
	p.Status.InUse = pick(r, []string{"", "?", base64.StdEncoding.EncodeToString(bits)})
	return p
}

// pod returns what the interfaces of a random pod ask for.
func (w *world) pod(r *rand.Rand, node, name string) []ask {
	definitions := []string{"", "nets/a", "nets/b"}[:1+r.IntN(3)]
	pod := ipam.Pod{
		Namespace: pick(r, []string{"shop", "bank"}), Name: name,
		Labels:      map[string]string{"kind": pick(r, []string{"x", "y"})},
		Annotations: map[string]string{"k8s.v1.cni.cncf.io/networks": strings.Join(definitions[1:], ",")},
	}
	namespace := map[string]string{}
	config := ipam.ConfigPools{}
	asks := make([]ask, len(definitions))
	source := r.IntN(5)
	// Sources below the one that decides name anything.
	for at := source; at < 4; at++ {
		if at > source && chance(r, 50) {
			continue
		}
		v4, v6, mistakes := w.names(r)
		switch at {
		case 0:
			// An entry for each interface, by name or by order.
			var entries []map[string]any
			for i := range asks {
				v4, v6, mistakes := w.names(r)
				entry := map[string]any{"ipv4": v4, "ipv6": v6}
				if chance(r, 50) {
					entry["interface"] = interfaceOf(i)
				}
				entries = append(entries, entry)
				asks[i] = ask{v4: v4, v6: v6, mistakes: mistakes, ofPod: true}
			}
			pod.Annotations["ipam.fenceline.io/ippools"] = text(entries)
			continue
		case 1:
			pod.Annotations["ipam.spidernet.io/ippool"] = text(map[string]any{"ipv4": v4, "ipv6": v6})
		case 2:
			// Beside an annotation with our prefix, one with the other prefix would not be read.
			keys := [2]string{"ipam.fenceline.io/default-ipv4-ippool", "ipam.fenceline.io/default-ipv6-ippool"}
			if chance(r, 50) {
				keys = [2]string{"ipam.spidernet.io/defaultv4ippool", "ipam.spidernet.io/defaultv6ippool"}
			}
			if len(v4) > 0 {
				namespace[keys[0]] = text(v4)
			}
			if len(v6) > 0 {
				namespace[keys[1]] = text(v6)
			}
		case 3:
			config, mistakes = ipam.ConfigPools{V4: v4, V6: v6}, nil
		}
		if at == source {
			for i := range asks {
				asks[i] = ask{v4: v4, v6: v6, mistakes: mistakes, ofPod: source == 1}
			}
		}
	}
	for i := range asks {
		if source == 4 {
			asks[i] = ask{v4: w.defaults(), v6: w.defaults(), implied: true}
		}
		asks[i].definition = definitions[i]
		asks[i].Request = ipam.Request{
			Pod: pod, NamespaceLabels: map[string]string{"kind": pick(r, []string{"x", "y"})}, NamespaceAnnotations: namespace,
			NodeName: node, NodeLabels: labelsOf(node),
			Interface: interfaceOf(i), ConfigPools: config,
		}
		for before := range i {
			asks[i].Earlier = append(asks[i].Earlier, ipam.Interface{Name: interfaceOf(before)})
		}
		if chance(r, 15) {
			asks[i].IPs = []netip.Addr{addrOf(r, pick(r, w.pools).Spec.Subnet)}
		}
	}
	return asks
}

// names returns the names of some pools of one family or both, or patterns; and
// what is wrong with them, if an annotation says so.
func (w *world) names(r *rand.Rand) (v4, v6 []string, mistakes []string) {
	all := map[string][]string{"v4": nil, "v6": nil}
	for _, p := range w.pools {
		if family := p.Name[:2]; chance(r, 60) {
			all[family] = append(all[family], p.Name)
		}
	}
	for family, names := range all {
		r.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
		if chance(r, 10) {
			all[family] = append(names, family+"-*")
		}
	}
	if stray := pick(r, w.pools).Name; chance(r, 3) && stray[:2] == "v6" {
		all["v4"], mistakes = append(all["v4"], stray), append(mistakes, "pool "+stray+": its subnet")
	}
	if chance(r, 3) || len(all["v4"])+len(all["v6"]) == 0 {
		all["v4"], mistakes = append(all["v4"], unknownPool), append(mistakes, `there is no pool "`+unknownPool)
	}
	return all["v4"], all["v6"], mistakes
}

func (w *world) defaults() (names []string) {
	for _, p := range w.pools {
		if p.Spec.Default != nil && *p.Spec.Default {
			names = append(names, p.Name)
		}
	}
	return names
}

func labelsOf(node string) map[string]string {
	return map[string]string{"kind": map[string]string{"n0": "x"}[node]}
}

func interfaceOf(i int) string { return []string{"eth0", "net1", "net2"}[i] }

// addrOf returns one of the first 16 addresses of a subnet.
func addrOf(r *rand.Rand, subnet string) netip.Addr {
	p := netip.MustParsePrefix(subnet)
	a := p.Addr()
	for range r.IntN(16) {
		if next := a.Next(); p.Contains(next) {
			a = next
		}
	}
	return a
}

// entryOf returns an address, a range or a CIDR of a subnet.
func entryOf(r *rand.Rand, subnet string) string {
	a, b := addrOf(r, subnet), addrOf(r, subnet)
	switch r.IntN(3) {
	case 0:
		return a.String()
	case 1:
		if bits := a.BitLen() - 2; bits >= netip.MustParsePrefix(subnet).Bits() {
			return netip.PrefixFrom(a, bits).Masked().String()
		}
	}
	if b.Less(a) {
		a, b = b, a
	}
	return a.String() + "-" + b.String()
}

func text(v any) string {
	t, err := json.Marshal(v)
	if err != nil {
		panic(err) // strings alone
	}
	return string(t)
}

func pick[T any](r *rand.Rand, from []T) T { return from[r.IntN(len(from))] }

func chance(r *rand.Rand, percent int) bool { return r.IntN(100) < percent }

func maybe[T any](r *rand.Rand, percent int, v T) *T {
	if chance(r, percent) {
		return &v
	}
	return nil
}
