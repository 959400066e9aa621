// SPDX-License-Identifier: Apache-2.0

package poolset

import (
	"context"
	"encoding/json"
	"net/netip"
	"slices"
	"strings"
	"sync"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fenceline/fenceline/apis/v1alpha1"
)

// Reserved answers what an ADD asks about the reservations of the cluster.
type Reserved interface {
	// Set returns ReservedSet of them all.
	Set() Set
	// For returns at least those that keep an address for a pod, and those that have one of their addresses.
	For(pod *v1alpha1.Holder) []v1alpha1.ReservedIP
	// At returns at least those that have an address.
	At(addr netip.Addr) []v1alpha1.ReservedIP
}

// Listed are reservations in a list. All of them answer each question.
type Listed []v1alpha1.ReservedIP

// Set implements Reserved.
func (l Listed) Set() Set { return ReservedSet(l) }

// For implements Reserved.
func (l Listed) For(*v1alpha1.Holder) []v1alpha1.ReservedIP { return l }

// At implements Reserved.
func (l Listed) At(netip.Addr) []v1alpha1.ReservedIP { return l }

// Keeper is a reader that has the reservations packed.
type Keeper interface {
	client.Reader
	// Reservations returns those that the reader knows now.
	Reservations() (*Packed, error)
}

// ReadReserved returns what Reservations returns. From a Keeper it costs the same however many there are.
func ReadReserved(ctx context.Context, reader client.Reader) (Reserved, error) {
	keeper, ok := reader.(Keeper)
	if !ok {
		all, err := Reservations(ctx, reader)
		return Listed(all), err
	}
	packed, err := keeper.Reservations()
	if err != nil {
		return nil, err
	}
	balancers, err := Balancers(ctx, reader)
	return beside{packed, balancers}, err
}

// Packed are reservations in little memory, since each agent knows all of the cluster, and needs few of them. It is
// immutable, and reads the addresses of all at the first question alone. Safe for concurrent use.
type Packed struct {
	texts []string

	mu     sync.Mutex
	parsed bool
	// set has the addresses of all, and shared those that two have.
	set, shared Set
	// of are the texts of those for a namespace, if it was asked for.
	of map[string][]string
	// with is the set with those of the Services in withIPs.
	with    Set
	withIPs string
}

// NewPacked returns the reservations in texts of Pack, which must not be changed any more.
func NewPacked(texts []string) *Packed {
	return &Packed{texts: texts, of: map[string][]string{}}
}

// Pack returns what the rules read of a reservation: the name, the addresses and the rest of the spec, on a line each.
// Texts are ordered by name.
func Pack(r *v1alpha1.ReservedIP) (string, error) {
	spec := r.Spec
	spec.IPs = nil
	rest, err := json.Marshal(spec)
	return r.Name + "\n" + strings.Join(r.Spec.IPs, " ") + "\n" + string(rest), err
}

// PackedName returns the name in a text of Pack.
func PackedName(text string) string {
	name, _, _ := strings.Cut(text, "\n")
	return name
}

// packedIPs returns the addresses in a text of Pack, with a space between two.
func packedIPs(text string) string {
	_, text, _ = strings.Cut(text, "\n")
	ips, _, _ := strings.Cut(text, "\n")
	return ips
}

func unpack(text string) (r v1alpha1.ReservedIP) {
	lines := strings.SplitN(text, "\n", 3)
	_ = json.Unmarshal([]byte(lines[2]), &r.Spec) // Pack wrote it
	r.Name, r.Spec.IPs = lines[0], strings.Split(lines[1], " ")
	return r
}

// Set implements Reserved.
func (p *Packed) Set() Set {
	all, _ := p.sets()
	return all
}

// sets returns the addresses of all, and those that two have.
func (p *Packed) sets() (all, shared Set) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.parsed {
		return p.set, p.shared
	}
	var spans []span
	for _, text := range p.texts {
		for entry := range strings.SplitSeq(packedIPs(text), " ") {
			if s, err := parseEntry(entry); err == nil {
				spans = append(spans, s)
			}
		}
	}
	p.shared = newSet(overlaps(spans))
	p.set = newSet(spans)
	p.set.spans = slices.Clone(p.set.spans) // many may have become one
	p.parsed = true
	return p.set, p.shared
}

// overlaps sorts spans, and returns the parts that two of them have.
func overlaps(spans []span) (found []span) {
	slices.SortFunc(spans, func(a, b span) int { return a.from.Compare(b.from) })
	for i, far := 1, 0; i < len(spans); i++ {
		s, last := spans[i], spans[far].to
		if s.from.Compare(last) <= 0 {
			if last.Less(s.to) {
				s.to = last
			}
			found = append(found, s)
		}
		if last.Less(spans[i].to) {
			far = i
		}
	}
	return found
}

// For implements Reserved. It unpacks those whose text names the pod, its owner or its namespace alone: Grants decides.
func (p *Packed) For(pod *v1alpha1.Holder) (all []v1alpha1.ReservedIP) {
	_, shared := p.sets()
	var own []string
	for _, text := range p.ofNamespace(pod.Namespace) {
		if strings.Contains(text, `{"namespace":"`+pod.Namespace+`"}`) || names(text, pod.Pod) || names(text, pod.OwnerName) {
			own, all = append(own, text), append(all, unpack(text))
		}
	}
	addrs := ReservedSet(all)
	if !addrs.Overlaps(shared) {
		return all
	}
	for _, text := range p.texts {
		if len(own) > 0 && own[0] == text { // both are in the same order
			own = own[1:]
		} else if addrs.overlapsAny(packedIPs(text)) {
			all = append(all, unpack(text))
		}
	}
	return all
}

// names reports whether a text has a name.
func names(text, name string) bool { return strings.Contains(text, `"`+name+`"`) }

// ofNamespace returns the texts that name a namespace.
func (p *Packed) ofNamespace(namespace string) []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	found, known := p.of[namespace]
	if !known {
		for _, text := range p.texts {
			if strings.Contains(text, `"namespace":"`+namespace+`"`) {
				found = append(found, text)
			}
		}
		p.of[namespace] = found
	}
	return found
}

// At implements Reserved.
func (p *Packed) At(addr netip.Addr) (all []v1alpha1.ReservedIP) {
	if !p.Set().Contains(addr) {
		return nil
	}
	one := Of(addr)
	for _, text := range p.texts {
		if one.overlapsAny(packedIPs(text)) {
			all = append(all, unpack(text))
		}
	}
	return all
}

// overlapsAny reports whether one of the entries, with a space between two, has an address of the set.
func (s Set) overlapsAny(entries string) bool {
	for entry := range strings.SplitSeq(entries, " ") {
		if sp, err := parseEntry(entry); err == nil && s.Overlaps(Set{spans: []span{sp}}) {
			return true
		}
	}
	return false
}

// setWith returns the set with the addresses of Services, whose last result it remembers.
func (p *Packed) setWith(balancers []v1alpha1.ReservedIP) Set {
	all := p.Set()
	if len(balancers) == 0 {
		return all
	}
	var ips []string
	for i := range balancers {
		ips = append(ips, balancers[i].Spec.IPs...)
	}
	slices.Sort(ips) // a cache lists Services in any order
	key := strings.Join(ips, " ")
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.withIPs != key {
		p.with, p.withIPs = all.Plus(ReservedSet(balancers)), key
	}
	return p.with
}

// beside are packed reservations, and those that stand for Services.
type beside struct {
	packed    *Packed
	balancers []v1alpha1.ReservedIP
}

func (b beside) Set() Set { return b.packed.setWith(b.balancers) }

func (b beside) For(pod *v1alpha1.Holder) []v1alpha1.ReservedIP {
	return append(b.packed.For(pod), b.balancers...)
}

func (b beside) At(addr netip.Addr) []v1alpha1.ReservedIP {
	return append(b.packed.At(addr), b.balancers...)
}
