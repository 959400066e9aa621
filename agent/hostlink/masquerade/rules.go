// SPDX-License-Identifier: Apache-2.0

package masquerade

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/containernetworking/plugins/pkg/utils/sysctl"
	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/fenceline/fenceline/agent/hostlink"
)

const (
	tableName = "fenceline"
	chainName = "postrouting"
	// priority is one less than that of kube-proxy: its rules would skip or masquerade these
	// connections. The first rule that translates a connection decides.
	priority = nftables.ChainPriority(99)
	// statusDNAT is IPS_DST_NAT: the destination of the connection was translated
	// (include/uapi/linux/netfilter/nf_conntrack_common.h).
	statusDNAT = 1 << 5
)

// tcpFlags is the offset of the flags in the header of TCP (RFC 9293, 3.1).
const tcpFlags, tcpSYN, tcpACK = 13, 0x02, 0x10

// Family is IPv4 or IPv6.
type Family struct {
	// Name is "ipv4" or "ipv6".
	Name string
	nft  nftables.TableFamily
	icmp byte
	// forwarding is the setting below /proc/sys without which the node forwards nothing.
	forwarding string
}

// families returns IPv4 and IPv6.
func families() []Family {
	return []Family{
		{"ipv4", nftables.TableFamilyIPv4, unix.IPPROTO_ICMP, "net/ipv4/ip_forward"},
		{"ipv6", nftables.TableFamilyIPv6, unix.IPPROTO_ICMPV6, "net/ipv6/conf/all/forwarding"},
	}
}

// register is the register of every rule.
const register = unix.NFT_REG_1

func rules(f Family) []hostlink.NFTRule {
	masquerade := &expr.Masq{FullyRandom: true}
	return []hostlink.NFTRule{
		// iifname "flh*" ct status dnat masquerade fully-random
		{Comment: "Services", Exprs: []expr.Any{
			&expr.Meta{Key: expr.MetaKeyIIFNAME, Register: register},
			&expr.Cmp{Op: expr.CmpOpEq, Register: register, Data: []byte(hostlink.NodePrefix)},
			&expr.Ct{Key: expr.CtKeySTATUS, Register: register},
			&expr.Bitwise{
				SourceRegister: register, DestRegister: register, Len: 4,
				Mask: binaryutil.NativeEndian.PutUint32(statusDNAT), Xor: make([]byte, 4),
			},
			&expr.Cmp{Op: expr.CmpOpNeq, Register: register, Data: make([]byte, 4)},
			masquerade,
		}},
		// iifname "flh*" meta l4proto tcp tcp flags & (syn | ack) == syn masquerade fully-random
		//
		// The host may answer the pod directly, and firewalls of the node drop half a connection (state INVALID).
		// Later packets stay: those of a connection that came by the segment have another source already.
		{Comment: "connections", Exprs: []expr.Any{
			&expr.Meta{Key: expr.MetaKeyIIFNAME, Register: register},
			&expr.Cmp{Op: expr.CmpOpEq, Register: register, Data: []byte(hostlink.NodePrefix)},
			&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: register},
			&expr.Cmp{Op: expr.CmpOpEq, Register: register, Data: []byte{unix.IPPROTO_TCP}},
			&expr.Payload{DestRegister: register, Base: expr.PayloadBaseTransportHeader, Offset: tcpFlags, Len: 1},
			&expr.Bitwise{SourceRegister: register, DestRegister: register, Len: 1, Mask: []byte{tcpSYN | tcpACK}, Xor: []byte{0}},
			&expr.Cmp{Op: expr.CmpOpEq, Register: register, Data: []byte{tcpSYN}},
			masquerade,
		}},
		// oifname "flh*" meta l4proto != { tcp, icmp } fib saddr type != local masquerade fully-random
		{Comment: "replies", Exprs: []expr.Any{
			&expr.Meta{Key: expr.MetaKeyOIFNAME, Register: register},
			&expr.Cmp{Op: expr.CmpOpEq, Register: register, Data: []byte(hostlink.NodePrefix)},
			&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: register},
			&expr.Cmp{Op: expr.CmpOpNeq, Register: register, Data: []byte{unix.IPPROTO_TCP}},
			&expr.Cmp{Op: expr.CmpOpNeq, Register: register, Data: []byte{f.icmp}},
			&expr.Fib{Register: register, FlagSADDR: true, ResultADDRTYPE: true},
			&expr.Cmp{Op: expr.CmpOpNeq, Register: register, Data: binaryutil.NativeEndian.PutUint32(unix.RTN_LOCAL)},
			masquerade,
		}},
	}
}

// rulesetOf returns the table of a family, with its chain and rules.
func rulesetOf(f Family) hostlink.Ruleset {
	t := &nftables.Table{Name: tableName, Family: f.nft}
	return hostlink.Ruleset{Table: t, Rules: rules(f), Chain: &nftables.Chain{
		Name: chainName, Table: t, Type: nftables.ChainTypeNAT,
		Hooknum: nftables.ChainHookPostrouting, Priority: nftables.ChainPriorityRef(priority),
	}}
}

// forwards returns an error if the node does not forward packets of the family. It reads the
// network namespace of the calling thread.
func (f Family) forwards() error {
	settings, err := f.gates()
	if err != nil {
		return err
	}
	for _, s := range settings {
		value, err := sysctl.Sysctl(s)
		if err != nil {
			return fmt.Errorf("read %s: %w", s, err)
		}
		if value == "0" {
			name := strings.NewReplacer("/", ".", ".", "/").Replace(s) // as sysctl(8) writes eth0.5
			return fmt.Errorf("%s is 0, so pods do not reach Services and other nodes do not reach these pods through their node; set it to 1 on the node, as kube-proxy requires", name)
		}
	}
	return nil
}

// gates returns the settings without which answers from beyond the node are not forwarded. For IPv4, the
// kernel asks the interface by which a packet comes in (ip_route_input_slow): here those of the default
// routes. ip_forward only writes the settings of all interfaces, and each may be changed later.
func (f Family) gates() (settings []string, err error) {
	if f.nft != nftables.TableFamilyIPv4 {
		return []string{f.forwarding}, nil
	}
	filter := &netlink.Route{Table: unix.RT_TABLE_MAIN, Type: unix.RTN_UNICAST} // Dst nil selects the default routes
	routes, err := netlink.RouteListFiltered(netlink.FAMILY_V4, filter, netlink.RT_FILTER_TABLE|netlink.RT_FILTER_TYPE|netlink.RT_FILTER_DST)
	if err != nil && !errors.Is(err, netlink.ErrDumpInterrupted) { // then the routes that were read
		return nil, fmt.Errorf("list the default routes of the node: %w", err)
	}
	for _, r := range routes {
		if link, err := netlink.LinkByIndex(r.LinkIndex); err == nil { // none: it has several next hops
			settings = append(settings, "net/ipv4/conf/"+link.Attrs().Name+"/forwarding")
		}
	}
	if settings == nil {
		settings = []string{f.forwarding}
	}
	return settings, nil
}

// ForwardingOff returns the errors of the families that the node does not forward, by name: ipv4, ipv6.
func ForwardingOff() map[string]error {
	off := map[string]error{}
	for _, f := range families() {
		if err := f.forwards(); err != nil {
			off[f.Name] = err
		}
	}
	return off
}

// ErrUnsupported is returned if the kernel lacks a part of nftables.
var ErrUnsupported = errors.New("load the kernel modules nf_tables, nft_chain_nat, nft_masq, nft_ct and nft_fib_ipv4, nft_fib_ipv6 on the node, or use a kernel that has them")

// Ensure makes the rules in the network namespace of the calling thread, unless they are complete.
func Ensure() error { return each(hostlink.Ruleset.Ensure) }

// Check returns an error that names the first missing or changed rule.
func Check() error { return each(hostlink.Ruleset.Check) }

// Remove removes the rules. Existing connections go on. It may be called again.
func Remove() error {
	err := each(hostlink.Ruleset.Remove)
	if errors.Is(err, ErrUnsupported) {
		return nil // so there are none
	}
	return err
}

// each carries out a step for the families that the kernel has.
func each(step func(hostlink.Ruleset, *nftables.Conn) error) error {
	var all error
	for _, f := range families() {
		all = errors.Join(all, f.do(step))
	}
	return all
}

// do carries out a step, if the kernel has the family.
func (f Family) do(step func(hostlink.Ruleset, *nftables.Conn) error) error {
	if !f.exists() {
		return nil
	}
	err := rulesetOf(f).Do(step)
	if hostlink.IsUnsupported(err) {
		return fmt.Errorf("%w: %w", err, ErrUnsupported)
	}
	return err
}

// exists reports whether the kernel has the family. It has no settings of an IPv6 that is off.
func (f Family) exists() bool {
	_, err := os.Stat("/proc/sys/" + f.forwarding)
	return err == nil
}
