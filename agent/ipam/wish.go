// SPDX-License-Identifier: Apache-2.0

package ipam

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"

	"github.com/fenceline/fenceline/internal/demand"
)

// Wish is a wish for addresses of one family, of which the interface wants one.
type Wish struct {
	Addrs []netip.Addr
	// Shared: the interface gets one of the addresses that is free, as the other pods that share the list.
	// Otherwise Addrs has one address, and the interface gets no other one.
	Shared bool
	// By names the annotation for people. It is empty if CNI or Multus requests the address.
	By string
	// Reserved: a ReservedIP keeps the addresses for the pod.
	Reserved bool
	// entries are the places of Addrs in the annotation.
	entries []int
	// macs are the MACs beside Addrs, or none.
	macs []net.HardwareAddr
}

// describe names the entry of the annotation that wishes for address i. Without an annotation it is empty.
func (w Wish) describe(i int) string {
	if w.By == "" || i >= len(w.entries) {
		return w.By
	}
	return fmt.Sprintf("entry %d of %s", w.entries[i], w.By)
}

const ipsForm = `10.6.0.7, fd00::7, or ["10.6.0.7", "10.6.0.8"] for two replicas, or [{"interface": "net1", "ips": ["10.6.0.7"], "macs": ["02:00:00:00:00:07"]}]`

// wishedIPs is one entry of the annotation ips, in its longest form.
type wishedIPs struct {
	Interface string   `json:"interface"`
	IPs       []string `json:"ips"`
	// MACs are those of the interface beside the addresses of a family, or none.
	MACs []string `json:"macs"`
}

// readWishes returns the wishes of the annotation ips for the interface of the request.
func (s said) readWishes(req Request) ([]Wish, error) {
	a, ok := find(req.Pod.describe(), req.Pod.Annotations, ipsForm, annotationIPs)
	if !ok {
		return nil, nil
	}
	entries, err := a.readIPs()
	if err != nil {
		return nil, err
	}
	names := make([]string, len(entries))
	for i, e := range entries {
		if err := s.know(a, req, e.Interface); err != nil {
			return nil, err
		}
		if e.Interface != "" && slices.Contains(names[:i], e.Interface) {
			return nil, a.wrong("interface %s is named twice", e.Interface)
		}
		names[i] = e.Interface
	}
	var own []Wish
	at := entryOf(names, req.Interface, len(req.Earlier))
	for i, e := range entries {
		families, err := a.parseIPs(e.IPs)
		if err != nil {
			return nil, err
		}
		if err := a.addMACs(families, e.MACs); err != nil {
			return nil, err
		}
		if i == at {
			own = families
		}
	}
	for i, w := range own {
		if own[i], err = a.of(w, req.Pod); err != nil {
			return nil, err
		}
	}
	return own, nil
}

// readIPs reads the forms of the annotation. A plain list is for the first interface of Fenceline.
func (a annotation) readIPs() ([]wishedIPs, error) {
	value := strings.TrimSpace(a.value)
	switch after, isJSON := strings.CutPrefix(value, "["); {
	case isJSON && strings.HasPrefix(strings.TrimSpace(after), "{"):
		var entries []wishedIPs
		if err := a.decode(&entries); err != nil {
			return nil, err
		}
		if len(entries) > demand.MaxEntries {
			return nil, a.wrong("the list has %d entries, expected 1 to %d", len(entries), demand.MaxEntries)
		}
		return entries, nil
	case isJSON:
		var ips []string
		if err := a.decode(&ips); err != nil {
			return nil, err
		}
		return []wishedIPs{{IPs: ips}}, nil
	case json.Valid([]byte(value)) && strings.HasPrefix(value, "{"):
		return nil, a.wrong("it is an object, and no list")
	}
	// kube-ovn separates the pairs of a dual-stack list by semicolons.
	return []wishedIPs{{IPs: strings.Split(strings.ReplaceAll(value, ";", ","), ",")}}, nil
}

// parseIPs returns the addresses of one interface by family. Interfaces of different networks may have the
// same address.
func (a annotation) parseIPs(list []string) ([]Wish, error) {
	if len(list) == 0 || len(list) > demand.MaxEntries {
		return nil, a.wrong("it names %d addresses for an interface, expected 1 to %d", len(list), demand.MaxEntries)
	}
	families, taken := []Wish{{}, {}}, map[netip.Addr]bool{}
	for i, text := range list {
		text = strings.TrimSpace(text)
		bare, length, hasLength := strings.Cut(text, "/")
		addr, err := netip.ParseAddr(bare)
		switch {
		case err != nil || addr.Zone() != "":
			return nil, a.wrong("entry %d, %.64q, is no IP address", i, text)
		case addr.Is4In6():
			return nil, a.wrong("entry %d, %s, mixes the families: write %s", i, text, addr.Unmap())
		case taken[addr]:
			return nil, a.wrong("entry %d, %s, is there twice: give each replica an address of its own", i, text)
		}
		if _, err := netip.ParsePrefix(text); hasLength && err != nil {
			return nil, a.wrong("entry %d, %.64q, has the prefix length %.16q: leave it out, the pool has it", i, text, length)
		}
		taken[addr] = true
		f := &families[0]
		if addr.Is6() {
			f = &families[1]
		}
		f.Addrs, f.entries = append(f.Addrs, addr), append(f.entries, i)
	}
	n4, n6 := len(families[0].Addrs), len(families[1].Addrs)
	if n4 != n6 && n4 > 0 && n6 > 0 {
		return nil, a.wrong("it names %d IPv4 and %d IPv6 addresses for an interface: give each replica one of each family, or all of them one family", n4, n6)
	}
	return slices.DeleteFunc(families, func(w Wish) bool { return len(w.Addrs) == 0 }), nil
}

// of returns the part of a list that is for the pod: the address of a StatefulSet's ordinal, or else the
// whole list.
func (a annotation) of(w Wish, pod Pod) (Wish, error) {
	w.By = describeAnnotation(a)
	if pod.Ordinal == nil {
		w.Shared = pod.Shares || len(w.Addrs) > 1
		return w, nil
	}
	n := *pod.Ordinal
	if n >= int64(len(w.Addrs)) {
		return Wish{}, a.wrong("the list has %d addresses of a family, and none for ordinal %d: add addresses, or scale to %d replicas", len(w.Addrs), n, len(w.Addrs))
	}
	w.Addrs, w.entries = w.Addrs[n:n+1], w.entries[n:n+1]
	if len(w.macs) > 0 {
		w.macs = w.macs[n : n+1]
	}
	return w, nil
}

// addMACs gives the nth MAC to the nth address of each family: an interface has one of each family, and one MAC.
func (a annotation) addMACs(families []Wish, list []string) error {
	if len(list) == 0 {
		return nil
	}
	var macs []net.HardwareAddr
	for i, text := range list {
		mac, err := net.ParseMAC(strings.TrimSpace(text))
		if err != nil || len(mac) != 6 || mac[0]&1 != 0 {
			return a.wrong("macs entry %d, %.64q, is no MAC of an interface, such as 02:00:00:00:00:01", i, text)
		}
		if slices.ContainsFunc(macs, func(m net.HardwareAddr) bool { return bytes.Equal(m, mac) }) {
			return a.wrong("macs entry %d, %s, is there twice: give each replica a MAC of its own", i, text)
		}
		macs = append(macs, mac)
	}
	for i := range families {
		if n := len(families[i].Addrs); n != len(macs) {
			return a.wrong("it names %d MACs for %d addresses of a family: give each address one, or none", len(macs), n)
		}
		families[i].macs = macs
	}
	return nil
}

// chooseMACs sets the MACs of the choice. The interface's first address decides about its MAC.
func (c chooser) chooseMACs(choice *Choice) error {
	with := slices.IndexFunc(c.said.wishes, func(w Wish) bool { return len(w.macs) > 0 })
	if with < 0 {
		return nil
	}
	f := choice.Families[0]
	w := c.said.wishOf(f.IPv6)
	if w == nil {
		return c.wrong(c.said.wishes[with], 0, "its MAC goes with the first address of the interface, which is its IPv4 address: name that as well")
	}
	choice.MACs = map[netip.Addr]net.HardwareAddr{}
	for i, addr := range w.Addrs {
		for _, p := range f.Pools {
			if slices.Contains(p.Only, addr) && !p.Pool.TakesMAC(w.macs[i]) {
				return c.wrong(*w, i, "pool %s takes no MAC %s: set its macPolicy to type Chosen with a prefix that the MAC has, or leave out macs", p.Pool.Name, w.macs[i])
			}
		}
		choice.MACs[addr] = w.macs[i]
	}
	return nil
}
