// SPDX-License-Identifier: Apache-2.0

package movein

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"path"
	"slices"
	"strings"

	"github.com/fenceline/fenceline/internal/poolset"
)

// MaxFiles is the greatest number of addresses for which a move writes files on each node, or SpiderReservedIPs.
const MaxFiles = 1 << 16

// defaultDataDir is where host-local keeps its files, unless a definition says otherwise.
const defaultDataDir = "/var/lib/cni/networks"

// Directory is where host-local keeps the files of a network, on each node.
type Directory struct {
	DataDir, Network string
}

func (d Directory) String() string { return path.Join(d.DataDir, d.Network) }

// localConfig is the ipam of host-local.
type localConfig struct {
	localRange
	Ranges     [][]localRange `json:"ranges"`
	Routes     []localRoute   `json:"routes"`
	DataDir    string         `json:"dataDir"`
	ResolvConf string         `json:"resolvConf"`
}

type localRange struct {
	Subnet  string `json:"subnet"`
	Start   string `json:"rangeStart"`
	End     string `json:"rangeEnd"`
	Gateway string `json:"gateway"`
}

type localRoute struct {
	GW string `json:"gw"`
}

// span is a range as host-local reads it.
type span struct {
	subnet            netip.Prefix
	from, to, gateway netip.Addr
}

// span fills in what a range leaves out.
func (r localRange) span() (s span, err error) {
	if s.subnet, err = netip.ParsePrefix(r.Subnet); err != nil {
		return s, fmt.Errorf("subnet: %w", err)
	}
	if s.subnet != s.subnet.Masked() || s.subnet.Bits() > s.subnet.Addr().BitLen()-2 {
		return s, fmt.Errorf("subnet %s has host bits, or too few addresses: host-local refuses it", s.subnet)
	}
	s.from, s.to = s.subnet.Addr().Next(), lastOf(s.subnet)
	if s.to.Is4() {
		s.to = s.to.Prev()
	}
	s.gateway = s.from
	for _, of := range []struct {
		key, text string
		value     *netip.Addr
	}{{"rangeStart", r.Start, &s.from}, {"rangeEnd", r.End, &s.to}, {"gateway", r.Gateway, &s.gateway}} {
		if of.text == "" {
			continue
		}
		if *of.value, err = netip.ParseAddr(of.text); err != nil {
			return s, fmt.Errorf("%s: %w", of.key, err)
		}
	}
	if !s.subnet.Contains(s.from) || !s.subnet.Contains(s.to) || s.to.Less(s.from) {
		return s, fmt.Errorf("rangeStart %s and rangeEnd %s are no range of %s", s.from, s.to, s.subnet)
	}
	return s, nil
}

// hostLocal reads what a definition has for it.
func (n *network) hostLocal(text json.RawMessage) error {
	var c localConfig
	if err := json.Unmarshal(text, &c); err != nil {
		return fmt.Errorf("read ipam of spec.config: %w", err)
	}
	if n.files.DataDir = defaultDataDir; c.DataDir != "" {
		n.files.DataDir = path.Clean(c.DataDir)
	}
	if n.files.Network == "" { // then Multus gives it the name of the definition
		n.files.Network = n.Definition.Name
	}
	if strings.Contains(n.files.Network, "/") || strings.Trim(n.files.Network, ".") == "" {
		return fmt.Errorf("name %q is no directory of host-local", n.files.Network)
	}
	sets := c.Ranges
	if c.Subnet != "" {
		sets = append([][]localRange{{c.localRange}}, sets...)
	}
	if len(sets) == 0 {
		return errors.New("it has no range; pods may have it in their annotations: write the range into the definition first")
	}
	if c.ResolvConf != "" {
		n.notes = append(n.notes, fmt.Sprintf("resolvConf of definition %s has no effect with Fenceline", n))
	}
	needsGateway := slices.ContainsFunc(c.Routes, func(r localRoute) bool { return r.GW == "" })
	for _, set := range sets {
		s, err := servedBy(set, needsGateway)
		if err != nil {
			return err
		}
		n.ranges = append(n.ranges, s)
	}
	return nil
}

// servedBy returns the addresses of a set of ranges, of which a pod gets one.
func servedBy(set []localRange, needsGateway bool) (s served, err error) {
	var ranges, gateways []string
	for _, r := range set {
		one, err := r.span()
		if err != nil {
			return s, fmt.Errorf("range %q: %w", r.Subnet, err)
		}
		if s.prefix.IsValid() && s.prefix != one.subnet {
			return s, fmt.Errorf("a set of ranges has the subnets %s and %s: make two definitions", s.prefix, one.subnet)
		}
		s.prefix = one.subnet
		ranges = append(ranges, one.from.String()+"-"+one.to.String())
		switch {
		case r.Gateway != "" || needsGateway:
			if s.gateway.IsValid() && s.gateway != one.gateway {
				return s, fmt.Errorf("a set of ranges has the gateways %s and %s: make two definitions", s.gateway, one.gateway)
			}
			s.gateway = one.gateway
		case !slices.Contains(s.excluded, one.gateway.String()):
			s.excluded = append(s.excluded, one.gateway.String()) // host-local never gives it
		}
		gateways = append(gateways, one.gateway.String())
	}
	if len(ranges) == 0 {
		return s, errors.New("a set of ranges is empty")
	}
	all, err := poolset.Parse(ranges)
	if err != nil {
		return s, err
	}
	never, err := poolset.Parse(gateways)
	s.ips, s.set = ranges, all.Minus(never)
	s.gives = s.set
	return s, err
}

// splitIn has an ipam give none of the addresses, or none at all. A range without an address would be refused, also for
// a DEL, so the last range of a set has only its gateway, which host-local never gives.
func splitIn(ipam map[string]any, all bool, taken []netip.Addr) error {
	var texts []string
	for _, a := range taken {
		texts = append(texts, a.String())
	}
	without, err := poolset.Parse(texts)
	if err != nil {
		return err
	}
	sets := setsIn(ipam)
	for i, set := range sets {
		var parts []any
		var subnet netip.Prefix
		for _, each := range set {
			s, err := rangeIn(each).span()
			if err != nil {
				return err
			}
			subnet = s.subnet
			whole, err := poolset.Parse([]string{s.from.String() + "-" + s.to.String()})
			if err != nil {
				return err
			}
			if all {
				continue
			}
			for ends := range slices.Chunk(whole.Minus(without).Ends(), 2) {
				part := map[string]any{}
				for key, value := range each.(map[string]any) {
					part[key] = value
				}
				part["rangeStart"], part["rangeEnd"] = ends[0].String(), ends[1].String()
				parts = append(parts, part)
			}
		}
		if len(parts) == 0 {
			first := subnet.Addr().Next().String()
			parts = []any{map[string]any{"subnet": subnet.String(), "rangeStart": first, "rangeEnd": first, "gateway": first}}
		}
		sets[i] = parts
	}
	setSets(ipam, sets)
	return nil
}

// stripRanges leaves an ipam only the subnets of its ranges.
func stripRanges(ipam map[string]any) {
	sets := setsIn(ipam)
	for i, set := range sets {
		var subnets []any
		for _, each := range set {
			if subnet := any(rangeIn(each).Subnet); !slices.Contains(subnets, subnet) {
				subnets = append(subnets, subnet)
			}
		}
		sets[i] = subnets
	}
	setSets(ipam, sets)
}

// setsIn returns the sets of ranges of an ipam. The one of the old form is the first.
func setsIn(ipam map[string]any) (sets [][]any) {
	if subnet, _ := ipam["subnet"].(string); subnet != "" {
		old := map[string]any{}
		for _, key := range oldKeys {
			if value, ok := ipam[key]; ok {
				old[key] = value
			}
		}
		sets = append(sets, []any{old})
	}
	more, _ := ipam["ranges"].([]any)
	for _, each := range more {
		set, _ := each.([]any)
		sets = append(sets, set)
	}
	return sets
}

// setSets has an ipam serve sets of ranges. Their numbers stay, by which host-local names its files last_reserved_ip.
func setSets(ipam map[string]any, sets [][]any) {
	for _, key := range oldKeys {
		delete(ipam, key)
	}
	ipam["ranges"] = sets
}

// oldKeys are the keys of a range in the old form, which are in the ipam itself.
var oldKeys = []string{"subnet", "rangeStart", "rangeEnd", "gateway"}

func rangeIn(of any) (r localRange) {
	keys, _ := of.(map[string]any)
	for key, value := range map[string]*string{"subnet": &r.Subnet, "rangeStart": &r.Start, "rangeEnd": &r.End, "gateway": &r.Gateway} {
		*value, _ = keys[key].(string)
	}
	return r
}
