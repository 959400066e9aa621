// SPDX-License-Identifier: Apache-2.0

package guards_test

import (
	"net"
	"testing"

	"github.com/fenceline/fenceline/agent/attachment"
	"github.com/fenceline/fenceline/bpf"
	"github.com/fenceline/fenceline/test/check"
	"github.com/fenceline/fenceline/test/fakenode"
)

func TestTurnsInTheKernel(t *testing.T) {
	r, web := fakenode.WithPod(t, fakenode.V4("10.0.0.2-10.0.0.9"))
	key, slot := fakenode.Key("10.0.0.200"), r.SlotOf(web)
	ls := r.Guards.Leases
	is := func(when string, slot uint32, token uint64) {
		t.Helper()
		l, _, err := ls.Turn(key)
		check.OK(t, err)
		check.That(t, l.Slot == slot && l.Token == token && l.Flags&bpf.FlagTurns != 0, "%s: %+v", when, l)
	}
	e := r.Attachments.All()[0]
	give := func(token uint64, mac string) {
		t.Helper()
		m := check.Value(net.ParseMAC(mac))(t)
		check.OK(t, ls.GiveTurn(e, attachment.Address{Addr: key.Addr, Token: token}, m))
	}
	check.OK(t, ls.HoldBack(key))
	is("held back", 0, 0)
	give(5, e.MAC)
	is("in its turn", slot, 5)
	check.OK(t, ls.HoldBack(key))
	check.OK(t, ls.EndTurn(key, 4))
	is("after an older turn has ended", slot, 5)
	check.OK(t, ls.EndTurn(key, 6))
	is("after its end", 0, 6)
	give(7, "00:00:5e:00:01:33")
	l, _, err := ls.Turn(key)
	check.OK(t, err)
	check.That(t, l.Flags&bpf.FlagSharedMAC != 0, "the MAC of VRRP is taken for the pod's alone: %+v", l)

	r.MustDel(web)
	r.Kernel.Unplug(web.NetNS, web.Interface)
	check.OK(t, r.Guards.Sweep())
	is("after the end of its pod", 0, 7)
	all, none := func(bpf.Key) bool { return true }, func(bpf.Key) bool { return false }
	give(8, e.MAC)
	check.OK(t, ls.ForgetTurns(all, all))
	is("while the address is exclusive", slot, 8)
	check.OK(t, ls.ForgetTurns(all, none))
	is("once another reservation has the address too", 0, 8)
	check.OK(t, ls.ForgetTurns(none, none))
	_, installed, _ := r.Kernel.Lease(key)
	check.That(t, !installed, "the turn is left")
}
