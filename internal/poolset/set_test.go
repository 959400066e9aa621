// SPDX-License-Identifier: Apache-2.0

package poolset

import (
	"math"
	"math/rand/v2"
	"net/netip"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/test/check"
)

func TestSetsOfEntries(t *testing.T) {
	for name, c := range map[string]struct {
		entries []string
		len     uint64
		in, out []string
		at      map[uint64]string
	}{
		"nothing":         {len: 0, out: []string{"10.0.0.1", "::1"}},
		"an address":      {entries: []string{"10.0.0.7"}, len: 1, in: []string{"10.0.0.7", "::ffff:10.0.0.7"}, out: []string{"10.0.0.6", "10.0.0.8"}},
		"a range":         {entries: []string{"10.0.0.250-10.0.1.5"}, len: 12, at: map[uint64]string{0: "10.0.0.250", 6: "10.0.1.0", 11: "10.0.1.5"}},
		"a CIDR":          {entries: []string{"10.0.0.0/30"}, len: 4, in: []string{"10.0.0.0", "10.0.0.3"}, out: []string{"10.0.0.4"}},
		"overlapping":     {entries: []string{"10.0.0.1-10.0.0.10", "10.0.0.5-10.0.0.7", "10.0.0.10-10.0.0.12"}, len: 12},
		"adjacent":        {entries: []string{"10.0.0.3", "10.0.0.1-10.0.0.2"}, len: 3, at: map[uint64]string{2: "10.0.0.3"}},
		"out of order":    {entries: []string{"10.0.0.9", "10.0.0.1"}, len: 2, at: map[uint64]string{0: "10.0.0.1", 1: "10.0.0.9"}},
		"the last v4":     {entries: []string{"255.255.255.254-255.255.255.255", "255.255.255.255"}, len: 2},
		"both families":   {entries: []string{"fd00::1", "10.0.0.1"}, len: 2, at: map[uint64]string{0: "10.0.0.1", 1: "fd00::1"}},
		"an IPv6 range":   {entries: []string{"fd00::ffff-fd00::1:0"}, len: 2, at: map[uint64]string{1: "fd00::1:0"}},
		"a /64":           {entries: []string{"fd00::/64"}, len: math.MaxUint64, in: []string{"fd00::ffff:ffff:ffff:ffff"}, out: []string{"fd00:0:0:1::"}, at: map[uint64]string{1 << 40: "fd00::100:0:0"}},
		"a /65":           {entries: []string{"fd00::/65"}, len: 1 << 63, at: map[uint64]string{1<<63 - 1: "fd00::7fff:ffff:ffff:ffff"}},
		"v4-mapped":       {entries: []string{"::/79"}, len: 1<<49 - 1<<32, out: []string{"10.0.0.1"}, at: map[uint64]string{1<<48 - 1<<32 - 1: "::fffe:ffff:ffff", 1<<48 - 1<<32: "::1:0:0:0"}},
		"all of IPv6":     {entries: []string{"::/0"}, len: math.MaxUint64, in: []string{"ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"}, out: []string{"10.0.0.1"}},
		"far apart in v6": {entries: []string{"fd00::1", "fe00::1-fe00::2"}, len: 3, at: map[uint64]string{2: "fe00::2"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := setOf(t, c.entries...)
			check.Equal(t, s.Len(), c.len, "length")
			for _, a := range c.in {
				check.That(t, s.Contains(netip.MustParseAddr(a)), "%s is missing", a)
			}
			for _, a := range c.out {
				check.That(t, !s.Contains(netip.MustParseAddr(a)), "%s should not be in it", a)
			}
			for i, want := range c.at {
				check.Equal(t, s.At(i), netip.MustParseAddr(want), "address %d is", i)
				check.Equal(t, s.Rank(netip.MustParseAddr(want)), i, "rank of %s is", want)
			}
		})
	}
}

func TestEntriesThatAreRefused(t *testing.T) {
	for entry, want := range map[string]string{
		"":                    `entry 0: "" is not an IP address`,
		"10.0.0":              `entry 0: "10.0.0" is not an IP address`,
		"10.0.0.01":           `entry 0: "10.0.0.01" is not an IP address`,
		"::ffff:10.0.0.1":     `entry 0: "::ffff:10.0.0.1" is not an IP address`,
		"fe80::1%eth0":        `entry 0: "fe80::1%eth0" is not an IP address`,
		"10.0.0.1-":           `entry 0: "" is not an IP address`,
		"10.0.0.1 - 10.0.0.2": `entry 0: "10.0.0.1 " is not an IP address`,
		"10.0.0.1-fd00::1":    "entry 0: range 10.0.0.1-fd00::1 mixes IPv4 and IPv6",
		"10.0.0.2-10.0.0.1":   "entry 0: range 10.0.0.2-10.0.0.1 ends before it starts",
		"fd00::a-fd00::9":     "entry 0: range fd00::a-fd00::9 ends before it starts",
		"10.0.0.0/33":         `entry 0: "10.0.0.0/33" is not a CIDR`,
		"10.0.0.1/24":         "entry 0: CIDR 10.0.0.1/24 has host bits set, write 10.0.0.0/24",
	} {
		_, err := Parse([]string{entry})
		check.That(t, err != nil && err.Error() == want, "%q: got %v, want %s", entry, err, want)
	}
}

// TestSetsAgainstABitmap compares the set operations with the plain ones on
// sixty-four addresses at the edges of both families.
func TestSetsAgainstABitmap(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for _, base := range []string{"0.0.0.0", "10.0.0.240", "255.255.255.192", "::", "fd00::ffff:ffff:ffff:fff0", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffc0"} {
		addrs := []netip.Addr{netip.MustParseAddr(base)}
		for len(addrs) < 64 {
			addrs = append(addrs, addrs[len(addrs)-1].Next())
		}
		for range 500 {
			a, inA := randomSet(r, addrs)
			b, inB := randomSet(r, addrs)
			minus, overlap := a.Minus(b), false
			var index uint64
			for i, addr := range addrs {
				want := inA[i] && !inB[i]
				overlap = overlap || inA[i] && inB[i]
				check.Must(t, a.Contains(addr) == inA[i] && minus.Contains(addr) == want, "%v minus %v: wrong about %s", a, b, addr)
				check.Must(t, minus.Rank(addr) == index, "%v: rank of %s is %d, want %d", minus, addr, minus.Rank(addr), index)
				if want {
					check.Must(t, minus.At(index) == addr, "%v: address %d is %s, want %s", minus, index, minus.At(index), addr)
					index++
				}
			}
			check.Must(t, minus.Len() == index && a.Overlaps(b) == overlap && b.Overlaps(a) == overlap,
				"%v, %v: length %d want %d, overlap %v want %v", a, b, minus.Len(), index, a.Overlaps(b), overlap)
		}
	}
}

func randomSet(r *rand.Rand, addrs []netip.Addr) (Set, []bool) {
	in := make([]bool, len(addrs))
	var spans []span
	for range r.IntN(6) {
		from := r.IntN(len(addrs))
		to := min(len(addrs)-1, from+r.IntN(12))
		spans = append(spans, span{addrs[from], addrs[to]})
		for i := from; i <= to; i++ {
			in[i] = true
		}
	}
	return newSet(spans), in
}

func TestBitOfAnAddressIsItsOffsetInTheSubnet(t *testing.T) {
	for _, c := range []struct {
		subnet, addr string
		offset       uint64
		ok           bool
	}{
		{"10.0.0.0/24", "10.0.0.0", 0, true},
		{"10.0.0.0/24", "10.0.0.255", 255, true},
		{"10.0.0.0/24", "10.0.1.0", 0, false},
		{"10.0.0.0/24", "fd00::1", 0, false},
		{"fd00::/64", "fd00::1:0", 1 << 16, true},
	} {
		got, ok := Offset(netip.MustParsePrefix(c.subnet), netip.MustParseAddr(c.addr))
		check.That(t, got == c.offset && ok == c.ok, "%s in %s: %d, %v, want %d, %v", c.addr, c.subnet, got, ok, c.offset, c.ok)
	}
}

func TestBitmapLayoutIsThatOfTheAPI(t *testing.T) {
	// Offsets 0, 9 and 15: byte 0 is 0x01, byte 1 is 0x82.
	check.Equal(t, EncodeBitmap(Bitmap(nil).Mark(0).Mark(9).Mark(15)), "AYI=", "encoded as")
}

func TestBitmapRoundTrip(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for range 200 {
		marked := map[uint64]bool{}
		b := make(Bitmap, r.IntN(64))
		for range r.IntN(20) {
			offset := uint64(r.IntN(2000))
			marked[offset] = true
			b = b.Mark(offset)
		}
		got := check.Value(DecodeBitmap(EncodeBitmap(b)))(t)
		for offset := range uint64(2100) {
			check.Must(t, got.Has(offset) == marked[offset], "offset %d: %v", offset, got.Has(offset))
		}
	}
}

func TestAnOffsetWithoutABitIsNotMarked(t *testing.T) {
	b := Bitmap(nil).Mark(MaxBitmapBits)
	check.That(t, len(b) == 0 && !b.Has(MaxBitmapBits) && !b.Has(1<<63), "%d bytes for an offset beyond the end", len(b))
}

func TestABitmapThatIsNotBase64IsAnError(t *testing.T) {
	check.That(t, check.Err(DecodeBitmap("?")) != nil, "no error")
}

// poolOf is a pool under test. Its methods set one field each.
type poolOf v1alpha1.IPPool

func pool(name, subnet string) *poolOf {
	return &poolOf{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.IPPoolSpec{Subnet: subnet}}
}

func v4(name string) *poolOf { return pool(name, "10.0.0.0/24") }
func v6(name string) *poolOf { return pool(name, "fd00::/64") }

func (p *poolOf) ips(entries ...string) *poolOf     { p.Spec.IPs = entries; return p }
func (p *poolOf) without(entries ...string) *poolOf { p.Spec.ExcludeIPs = entries; return p }
func (p *poolOf) gateway(addr string) *poolOf       { p.Spec.Gateway = &addr; return p }
func (p *poolOf) allowing(cidrs ...string) *poolOf {
	p.Spec.SourceGuardAllow = &v1alpha1.SourceGuardAllow{CIDRs: cidrs}
	return p
}
func (p *poolOf) ipVersion(v int64) *poolOf { p.Spec.IPVersion = &v; return p }
func (p *poolOf) disabled(v bool) *poolOf   { p.Spec.Disable = &v; return p }
func (p *poolOf) deleting() *poolOf         { p.DeletionTimestamp = &metav1.Time{}; return p }
func (p *poolOf) object() *v1alpha1.IPPool  { return (*v1alpha1.IPPool)(p) }

// routed adds routes as "dst gw" or "dst".
func (p *poolOf) routed(routes ...string) *poolOf {
	for _, r := range routes {
		dst, gw, _ := strings.Cut(r, " ")
		p.Spec.Routes = append(p.Spec.Routes, v1alpha1.Route{Dst: dst, Gw: gw})
	}
	return p
}

func setOf(t *testing.T, entries ...string) Set {
	t.Helper()
	return check.Value(Parse(entries))(t)
}

// FuzzSets: entries that are read are a set whose own entries are read as the same set, and sets
// follow the laws of sets.
func FuzzSets(f *testing.F) {
	for _, texts := range [][2]string{
		{"", ""}, {"192.0.2.1-192.0.2.9,192.0.2.7", "192.0.2.4/30"}, {"0.0.0.0/0", "255.255.255.255"}, {"::/0,0.0.0.0", "ffff::-ffff::1"},
		{"::ffff:1.2.3.4", "fe80::1%eth0"}, {"192.0.2.9-192.0.2.1", "192.0.2.1/24"}, {"a-b-c", "-"},
	} {
		f.Add(texts[0], texts[1])
	}
	f.Fuzz(func(t *testing.T, one, other string) {
		a, err := Parse(strings.Split(one, ","))
		if err != nil {
			return
		}
		again, err := Parse(a.Entries())
		check.That(t, err == nil && again.Equal(a) && a.Len() != 0, "%q is %v, %v", one, a.Entries(), err)
		for _, i := range []uint64{0, a.Len() / 2, a.Len() - 1} {
			addr := a.At(i)
			got := a.Rank(addr)
			check.That(t, got == i && a.Contains(addr), "%q: %s at %d is at %d", one, addr, i, got)
		}
		b, err := Parse(strings.Split(other, ","))
		if err != nil {
			return
		}
		only, both := a.Minus(b), a.And(b)
		if !only.Plus(both).Equal(a) || !both.Equal(b.And(a)) || only.Overlaps(b) || a.Overlaps(b) != (both.Len() > 0) {
			t.Errorf("%q and %q: only %v, both %v", one, other, only.Entries(), both.Entries())
		}
	})
}

// FuzzBitmaps: a bitmap marks the same offsets when it is written again.
func FuzzBitmaps(f *testing.F) {
	for _, text := range []string{"", "AA==", "/w==", "AQAAAAA=", "====", "A", "AQ==\n"} {
		f.Add(text, uint64(7))
	}
	f.Add("", uint64(1)<<63)
	subnet := netip.MustParsePrefix("10.0.0.0/8")
	f.Fuzz(func(t *testing.T, text string, offset uint64) {
		b, err := DecodeBitmap(text)
		if err != nil {
			return
		}
		again, err := DecodeBitmap(EncodeBitmap(b))
		if err != nil || len(again) > len(b) {
			t.Errorf("%q is written as %q, %v", text, EncodeBitmap(b), err)
		}
		for i := range uint64(8*len(b) + 8) {
			if again.Has(i) != b.Has(i) {
				t.Errorf("%q: offset %d", text, i)
			}
		}
		had := again.Has(offset)
		got := again.Mark(offset).Has(offset)
		check.That(t, got == (had || offset < MaxBitmapBits), "%q: offset %d is marked: %v", text, offset, got)
		read, ok := Offset(subnet, advance(subnet.Addr(), offset%(1<<24)))
		check.That(t, ok && read == offset%(1<<24), "offset %d is read as %d, %v", offset, read, ok)
	})
}
