// SPDX-License-Identifier: Apache-2.0

package masquerade

import (
	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"github.com/google/nftables/userdata"
	"golang.org/x/sys/unix"

	"github.com/fenceline/fenceline/agent/hostlink"
)

const (
	tableName = "fenceline"
	chainName = "postrouting"
	// priority is one less than that of kube-proxy, whose rules would leave these connections alone or
	// masquerade them as well. The first rule that translates a connection decides.
	priority = nftables.ChainPriority(99)
	// statusDNAT is IPS_DST_NAT: the destination of the connection was translated
	// (include/uapi/linux/netfilter/nf_conntrack_common.h).
	statusDNAT = 1 << 5
)

// Family is IPv4 or IPv6.
type Family struct {
	// Name is "ipv4" or "ipv6".
	Name string
	// word is the name in nftables.
	word string
	nft  nftables.TableFamily
	icmp byte
	// forwarding is the setting below /proc/sys without which the node forwards nothing.
	forwarding string
}

// families returns IPv4 and IPv6.
func families() []Family {
	return []Family{
		{"ipv4", "ip", nftables.TableFamilyIPv4, unix.IPPROTO_ICMP, "net/ipv4/ip_forward"},
		{"ipv6", "ip6", nftables.TableFamilyIPv6, unix.IPPROTO_ICMPV6, "net/ipv6/conf/all/forwarding"},
	}
}

// rule is a rule of the chain, with the comment that names it.
type rule struct {
	comment string
	exprs   []expr.Any
}

// register is the one that every rule uses.
const register = unix.NFT_REG_1

func rules(f Family) []rule {
	masquerade := &expr.Masq{FullyRandom: true}
	return []rule{
		// iifname "flh*" ct status dnat masquerade fully-random
		{"Services", []expr.Any{
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
		// oifname "flh*" meta l4proto != { tcp, icmp } fib saddr type != local masquerade fully-random
		{"replies", []expr.Any{
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

// table returns the table of a family, and its chain.
func table(f Family) (*nftables.Table, *nftables.Chain) {
	t := &nftables.Table{Name: tableName, Family: f.nft}
	return t, &nftables.Chain{
		Name: chainName, Table: t, Type: nftables.ChainTypeNAT,
		Hooknum: nftables.ChainHookPostrouting, Priority: nftables.ChainPriorityRef(priority),
	}
}

// userData returns the comment as nft prints it.
func (r rule) userData() []byte { return userdata.AppendString(nil, userdata.TypeComment, r.comment) }
