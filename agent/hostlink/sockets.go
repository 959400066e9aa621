// SPDX-License-Identifier: Apache-2.0

package hostlink

import (
	"errors"

	"github.com/containernetworking/plugins/pkg/ns"
	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"github.com/fenceline/fenceline/cni/agentapi"
)

// lastPriority runs after all rules that use marks.
const lastPriority = nftables.ChainPriority(1000)

// sockets returns the table of a pod that sets the marks that connections inherit
// (tcp_fwmark_accept). Sidecars with TPROXY mark the packets of clients, to route them to
// themselves. A reply with this mark would come back to the pod. A reply without the mark of the
// host link would leave by the underlay.
func sockets(a agentapi.Attachment, mark uint32) Ruleset {
	table := &nftables.Table{Name: "fenceline-" + a.Interface, Family: nftables.TableFamilyINet}
	name := make([]byte, unix.IFNAMSIZ)
	copy(name, PodEnd(a))
	return Ruleset{
		Table: table,
		Chain: &nftables.Chain{
			Name: "input", Table: table, Type: nftables.ChainTypeFilter,
			Hooknum: nftables.ChainHookInput, Priority: nftables.ChainPriorityRef(lastPriority),
		},
		Rules: []NFTRule{
			// iifname "host-eth0" meta l4proto tcp meta mark set 0x464c0002
			{Comment: "by the host link", Exprs: marked(expr.CmpOpEq, name, mark)},
			// iifname != "host-*" meta l4proto tcp meta mark set 0
			{Comment: "by other links", Exprs: marked(expr.CmpOpNeq, []byte(podPrefix), 0)},
		},
	}
}

func marked(op expr.CmpOp, name []byte, mark uint32) []expr.Any {
	const register = unix.NFT_REG_1
	return []expr.Any{
		&expr.Meta{Key: expr.MetaKeyIIFNAME, Register: register},
		&expr.Cmp{Op: op, Register: register, Data: name},
		&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: register},
		&expr.Cmp{Op: expr.CmpOpEq, Register: register, Data: []byte{unix.IPPROTO_TCP}},
		&expr.Immediate{Register: register, Data: binaryutil.NativeEndian.PutUint32(mark)},
		&expr.Meta{Key: expr.MetaKeyMARK, SourceRegister: true, Register: register},
	}
}

// putSockets makes the table. A kernel without nf_tables can have neither this table nor TPROXY
// rules of nftables, so the host link works without it.
func (p *pod) putSockets(a agentapi.Attachment, mark uint32, m mode) error {
	step := Ruleset.Ensure
	if m == look {
		step = Ruleset.Check
	}
	err := p.ns.Do(func(ns.NetNS) error { return sockets(a, mark).Do(step) })
	switch {
	case IsUnsupported(err):
		return nil
	case errors.Is(err, ErrIncomplete):
		return broken("%w", err)
	}
	return err
}
