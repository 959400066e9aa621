// SPDX-License-Identifier: Apache-2.0

package attachment

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/fenceline/fenceline/test/check"
)

// wantHolder checks which container holds an address on parent 3; "": none.
func wantHolder(t *testing.T, j *Table, addr, container string) {
	t.Helper()
	e, address, held := j.Holder(3, netip.MustParseAddr(addr))
	check.That(t, held == (container != "") && e.ContainerID == container, "%s is held by %q, want %q", addr, e.ContainerID, container)
	check.That(t, !held || address.Addr == netip.MustParseAddr(addr), "%s: the address is %v", addr, address.Addr)
}

func TestTheHolderOfAnAddress(t *testing.T) {
	dir := t.TempDir()
	j := open(t, dir)
	j.Begin("node/boot")
	put(t, j, entry("aaa"))
	wantHolder(t, j, "10.0.0.5", "aaa")
	wantHolder(t, j, "fd00::5", "aaa")
	wantHolder(t, j, "10.0.0.6", "")
	_, _, held := j.Holder(4, netip.MustParseAddr("10.0.0.5"))
	check.That(t, !held, "it is held on another parent as well")

	moved := entry("aaa")
	moved.Addresses = []Address{{Addr: netip.MustParseAddr("10.0.0.6"), LeaseName: "10.0.0.6"}}
	put(t, j, moved)
	wantHolder(t, j, "10.0.0.5", "")
	wantHolder(t, j, "fd00::5", "")
	wantHolder(t, j, "10.0.0.6", "aaa")

	j = reopen(t, j, dir)
	wantHolder(t, j, "10.0.0.6", "")
	j.Begin("node/boot")
	wantHolder(t, j, "10.0.0.6", "aaa")
	mac, held := j.MAC(3, netip.MustParseAddr("10.0.0.6"))
	check.That(t, held && mac.String() == moved.MAC, "MAC %v, %v", mac, held)
	check.OK(t, j.Remove("aaa", "eth0"))
	wantHolder(t, j, "10.0.0.6", "")
}

func TestTheHolderIsTheOldestBoundEntryOfTheSession(t *testing.T) {
	j := open(t, t.TempDir())
	j.Begin("node/boot")
	add := func(id string, age time.Duration, phase Phase, session string) {
		e := entry(id)
		e.Created, e.Phase, e.Session = e.Created.Add(-age), phase, session
		put(t, j, e)
	}
	add("younger", 0, Bound, "node/boot")
	add("older", time.Minute, Bound, "node/boot")
	add("releasing", 2*time.Minute, Releasing, "node/boot")
	add("before", 3*time.Minute, Bound, "node/boot-before")
	wantHolder(t, j, "10.0.0.5", "older")
	var bound []string
	for e := range j.Bound() {
		bound = append(bound, e.ContainerID)
	}
	check.That(t, slices.Equal(bound, []string{"older", "younger"}), "bound: %v", bound)
	add("older", time.Minute, Releasing, "node/boot")
	wantHolder(t, j, "10.0.0.5", "younger")
	for _, id := range []string{"younger", "older", "releasing", "before"} {
		check.OK(t, j.Remove(id, "eth0"))
	}
	check.That(t, len(j.at) == 0, "the index keeps %v", j.at)
}

// The 110 pods that the kubelet allows by default.
func BenchmarkHolder(b *testing.B) {
	j := check.Value(Open(b.TempDir()))(b)
	defer j.Close()
	j.Begin("node/boot")
	addr := netip.MustParseAddr("10.0.0.0")
	for i := range 110 {
		addr = addr.Next()
		e := entry(fmt.Sprintf("c%d", i))
		e.Addresses = []Address{{Addr: addr}}
		check.OK(b, j.Put(e))
	}
	for b.Loop() {
		j.Holder(3, addr)
	}
}
