// SPDX-License-Identifier: Apache-2.0

package standalone

import (
	"encoding/json"
	"fmt"
	"math/big"
	"net"
	"net/netip"
	"slices"
	"strings"

	"github.com/containernetworking/plugins/plugins/ipam/host-local/backend/allocator"
)

// hasFree reports whether a range set has an address that is no gateway and is not taken.
func hasFree(set allocator.RangeSet, taken []entry) bool {
	free := new(big.Int)
	for _, r := range set {
		free.Add(free, big.NewInt(1))
		free.Add(free, new(big.Int).Sub(new(big.Int).SetBytes(r.RangeEnd), new(big.Int).SetBytes(r.RangeStart)))
		if r.Contains(r.Gateway) {
			free.Sub(free, big.NewInt(1))
		}
		free.Sub(free, big.NewInt(int64(len(noHosts(r)))))
		for _, e := range taken {
			if !e.stale && r.Contains(net.IP(e.addr.AsSlice())) {
				free.Sub(free, big.NewInt(1))
			}
		}
	}
	return free.Sign() > 0
}

// setsOf writes the range sets as their first and last addresses.
func setsOf(conf *allocator.IPAMConfig) string {
	var sets []string
	for _, set := range conf.Ranges {
		sets = append(sets, set.String())
	}
	return strings.Join(sets, " or ")
}

// noHosts returns the network and broadcast addresses of an IPv4 range (RFC 1122 section 3.2.1.3).
func noHosts(r allocator.Range) (found []netip.Addr) {
	network, last := r.Subnet.IP.To4(), slices.Clone(r.Subnet.IP.To4())
	for i := range last {
		last[i] |= ^r.Subnet.Mask[i]
	}
	for _, ip := range []net.IP{network, last} {
		if ip != nil && r.Contains(ip) && !ip.Equal(r.Gateway) {
			found = append(found, addrOf(ip))
		}
	}
	return found
}

// checkRanges refuses two mistakes that host-local accepts: a gateway that the containers cannot
// reach, and a start behind the last address. From such a start, host-local hands out addresses
// outside the range, and panics at the last address of all.
func checkRanges(conf *allocator.IPAMConfig) error {
	for i, set := range conf.Ranges {
		for j, r := range set {
			if subnet := net.IPNet(r.Subnet); !subnet.Contains(r.Gateway) {
				return fmt.Errorf(`the "gateway" of range %d in range set %d is %s, outside "subnet" %s: write an address of the subnet, or remove it for the first one`,
					j, i, r.Gateway, subnet.String())
			}
			if addrOf(r.RangeEnd).Less(addrOf(r.RangeStart)) {
				return fmt.Errorf(`the "rangeStart" of range %d in range set %d is %s, after "rangeEnd" %s: write an earlier address`,
					j, i, r.RangeStart, r.RangeEnd)
			}
		}
	}
	return nil
}

// rangeConf is a range as the configuration has it.
type rangeConf struct {
	Subnet     string `json:"subnet"`
	RangeStart string `json:"rangeStart"`
	RangeEnd   string `json:"rangeEnd"`
	Gateway    string `json:"gateway"`
}

// explain names the field and the value that host-local's loader has refused. The loader names only
// the value.
func explain(stdin []byte, refusal error) error {
	var conf struct {
		IPAM struct {
			rangeConf
			Ranges [][]rangeConf `json:"ranges"`
		} `json:"ipam"`
		RuntimeConfig struct {
			IPRanges [][]rangeConf `json:"ipRanges"`
		} `json:"runtimeConfig"`
	}
	if json.Unmarshal(stdin, &conf) != nil {
		return refusal
	}
	if conf.IPAM.Subnet != "" {
		if err := conf.IPAM.explain(`"ipam.`); err != nil {
			return err
		}
	}
	for _, list := range []struct {
		key  string
		sets [][]rangeConf
	}{{"ipam.ranges", conf.IPAM.Ranges}, {"runtimeConfig.ipRanges", conf.RuntimeConfig.IPRanges}} {
		for i, set := range list.sets {
			if len(set) == 0 {
				return fmt.Errorf(`"%s[%d]" is empty: write a range such as {"subnet": "10.0.0.0/24"}`, list.key, i)
			}
			for j, r := range set {
				if err := r.explain(fmt.Sprintf(`"%s[%d][%d].`, list.key, i, j)); err != nil {
					return err
				}
			}
		}
	}
	return refusal
}

// explain returns the fault of a range, or nil. key is the beginning of the names of its fields.
func (r rangeConf) explain(key string) error {
	subnet, err := netip.ParsePrefix(r.Subnet)
	switch {
	case err != nil:
		return fmt.Errorf(`%ssubnet" is %q: write a subnet such as "10.0.0.0/24"`, key, r.Subnet)
	case subnet != subnet.Masked():
		return fmt.Errorf(`%ssubnet" is %q, which has bits after its prefix length: write %q`, key, r.Subnet, subnet.Masked())
	case subnet.Bits() > subnet.Addr().BitLen()-2:
		return fmt.Errorf(`%ssubnet" is %q, which is too small: the largest prefix length is %d`, key, r.Subnet, subnet.Addr().BitLen()-2)
	}
	ends := map[string]netip.Addr{}
	for _, f := range []struct{ name, value string }{{"rangeStart", r.RangeStart}, {"rangeEnd", r.RangeEnd}, {"gateway", r.Gateway}} {
		if f.value == "" {
			continue
		}
		addr, err := netip.ParseAddr(f.value)
		if err != nil {
			return fmt.Errorf(`%s%s" is %q: write an address`, key, f.name, f.value)
		}
		if !subnet.Contains(addr.Unmap()) {
			return fmt.Errorf(`%s%s" is %q, outside "subnet" %q`, key, f.name, f.value, r.Subnet)
		}
		ends[f.name] = addr
	}
	if first, last := ends["rangeStart"], ends["rangeEnd"]; first.IsValid() && last.IsValid() && last.Less(first) {
		return fmt.Errorf(`%srangeEnd" is %q, before "rangeStart" %q: exchange them`, key, r.RangeEnd, r.RangeStart)
	}
	return nil
}
