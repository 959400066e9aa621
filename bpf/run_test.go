// SPDX-License-Identifier: Apache-2.0

//go:build kernel

package bpf

import (
	"fmt"

	"github.com/cilium/ebpf"
)

// skb is struct __sk_buff, as far as a test run sets or reads it; the kernel wants room for all of it.
type skb struct {
	Len, PacketType, Mark uint32
	Rest                  [45]uint32
}

func (b *bench) program(where Where) *ebpf.Program {
	switch where {
	case WhereGuardIngress:
		return b.guard["ingress"]
	case WhereGuardEgress:
		return b.guard["egress"]
	case WhereObserverIngress:
		return b.observer["ingress"]
	case WhereObserverEgress:
		return b.observer["egress"]
	}
	panic(fmt.Sprintf("no program %s", where))
}

// runMarked puts one frame with a mark through one program and returns the mark it leaves with.
func (b *bench) runMarked(where Where, frame []byte, mark uint32) (verdict uint32, out []byte, left uint32) {
	b.t.Helper()
	in, after := skb{Mark: mark}, skb{}
	opts := &ebpf.RunOptions{Data: frame, DataOut: make([]byte, len(frame)+256), Context: in, ContextOut: &after}
	verdict, err := b.program(where).Run(opts)
	if err != nil {
		b.t.Fatalf("run %s over %d bytes: %v", where, len(frame), err)
	}
	return verdict, opts.DataOut, after.Mark
}
