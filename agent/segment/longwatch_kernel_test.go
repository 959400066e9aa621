// SPDX-License-Identifier: Apache-2.0

//go:build kernel

package segment

import (
	"bytes"
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/fenceline/fenceline/test/check"
	"github.com/fenceline/fenceline/test/network"
)

// quick are times that a test can wait for.
var quick = Timing{Wait: 20 * time.Millisecond, Num: 3, Min: 20 * time.Millisecond, Max: 40 * time.Millisecond, Listen: 40 * time.Millisecond}

// watchLong proves an address on a node and watches it.
func (n *node) watchLong(addr netip.Addr, want Doubt) *LongWatch {
	t := n.rig.t
	t.Helper()
	w := check.Value(n.seg.WatchLong(addr, ProbeParams{}))(t)
	t.Cleanup(func() { check.OK(t, w.End()) })
	n.proveAgain(w, want)
	return w
}

// proveAgain proves an address and returns who spoke for it.
func (n *node) proveAgain(w *LongWatch, want Doubt) Answer {
	n.rig.t.Helper()
	doubt, answer := n.within(func() (Doubt, Answer, error) { return w.Prove(n.rig.t.Context(), quick) })
	equal(n.rig.t, "doubt after the proof", doubt, want)
	return answer
}

// within asks a watch in the node's network namespace.
func (n *node) within(ask func() (Doubt, Answer, error)) (doubt Doubt, answer Answer) {
	n.rig.t.Helper()
	check.OK(n.rig.t, n.ns.Do(func() (err error) {
		doubt, answer, err = ask()
		return err
	}))
	return doubt, answer
}

// waitFor waits until a doubt arises.
func (n *node) waitFor(w *LongWatch, want Doubt) Answer {
	n.rig.t.Helper()
	doubt, answer := n.within(func() (Doubt, Answer, error) { return w.Wait(n.rig.t.Context()) })
	equal(n.rig.t, "doubt", doubt, want)
	return answer
}

func (n *node) doubt(w *LongWatch) Doubt {
	n.rig.t.Helper()
	doubt, _ := n.within(w.Doubt)
	return doubt
}

func TestAHostThatAppearsLaterVoidsTheProof(t *testing.T) {
	for name, appears := range map[string]func(t *testing.T, h, client *host, addr netip.Addr){
		"by an announcement": func(t *testing.T, h, _ *host, addr netip.Addr) { h.announce(t, addr) },
		"by an answer to somebody else": func(t *testing.T, h, client *host, addr netip.Addr) {
			check.OK(t, h.ns.AddAddr("p0", prefix(addr)))
			if addr.Is6() {
				// The answer to a solicitation goes to who asked; the host's own
				// solicitation is what the segment hears.
				reaches(h.ns, netip.MustParseAddr("fd99::51"))
				return
			}
			check.Becomes(t, patience, "the host answers", func() bool { return reaches(client.ns, addr) })
			reaches(h.ns, netip.MustParseAddr("10.99.0.51"))
			reaches(h.ns, netip.MustParseAddr("10.99.0.77")) // nobody: it asks the whole segment
		},
	} {
		t.Run(name, func(t *testing.T) {
			families(t, func(t *testing.T, addr netip.Addr) {
				r := newRig(t)
				n := r.addNode("node1")
				client := r.addHost("client", netip.MustParseAddr("10.99.0.51"), netip.MustParseAddr("fd99::51"))
				h := r.addHost("host")
				w := n.watchLong(addr, DoubtNone)
				equal(t, "doubt", n.doubt(w), DoubtNone)
				var appearing sync.WaitGroup
				appearing.Go(func() { appears(t, h, client, addr) })
				answer := n.waitFor(w, DoubtSpoken)
				appearing.Wait()
				equal(t, "MAC", answer.MAC.String(), h.mac.String())
				equal(t, "source", answer.Source, SourceObserver)
			})
		})
	}
}

func TestALostCarrierVoidsTheProofHoweverShort(t *testing.T) {
	r := newRig(t)
	n := r.addNode("node1")
	w := n.watchLong(rig4, DoubtNone)
	check.OK(t, r.network.SetUp(n.port, false))
	check.OK(t, r.network.SetUp(n.port, true))
	check.Becomes(t, patience, "the carrier is back", func() bool { return isUp(t, n.ns, "p0") && isUp(t, r.network, n.port) })
	equal(t, "doubt", n.doubt(w), DoubtCarrier)
	equal(t, "doubt until it is proven again", n.doubt(w), DoubtUnproven)
	n.proveAgain(w, DoubtNone)

	check.OK(t, r.network.SetUp(n.port, false))
	equal(t, "doubt without carrier", n.doubt(w), DoubtCarrier)
	n.proveAgain(w, DoubtCarrier)
}

// detachObserver takes the observer off the parent, as a stranger would: its pinned links, or, where tcx is missing, the
// qdisc with its filters.
func (n *node) detachObserver() {
	t := n.rig.t
	t.Helper()
	pins := check.Value(filepath.Glob(filepath.Join(n.pins, "observers", strconv.Itoa(n.parent), "*")))(t)
	for _, pin := range pins {
		l := check.Value(link.LoadPinnedLink(pin, nil))(t)
		check.OK(t, errors.Join(l.Detach(), l.Unpin(), l.Close()))
	}
	if len(pins) == 0 {
		check.OK(t, n.ns.Links().QdiscDel(&netlink.Clsact{QdiscAttrs: netlink.QdiscAttrs{
			LinkIndex: n.parent, Handle: netlink.MakeHandle(0xffff, 0), Parent: netlink.HANDLE_CLSACT,
		}}))
	}
}

// open opens the segment again, as every ADD does.
func (n *node) open() {
	n.rig.t.Helper()
	check.OK(n.rig.t, n.ns.Do(func() error { return check.Err(n.set.Open(n.parent)) }))
}

func TestAnObserverThatWasAwayVoidsTheProof(t *testing.T) {
	r := newRig(t)
	n := r.addNode("node1")
	w := n.watchLong(rig4, DoubtNone)
	n.open()
	equal(t, "doubt after an ADD", n.doubt(w), DoubtNone)

	n.detachObserver()
	equal(t, "doubt without the observer", n.doubt(w), DoubtObserver)
	n.open()
	n.proveAgain(w, DoubtNone)
	n.detachObserver()
	n.open()
	equal(t, "doubt with the observer back", n.doubt(w), DoubtObserver)
}

// A switch that snoops passes the solicitations of a detection to the members of their group only. The host
// speaks once, so the proof is void until the address was probed again.
func TestADetectionBehindASnoopingSwitchVoidsTheProof(t *testing.T) {
	r := newRig(t)
	check.OK(t, r.network.Snoop(network.Bridge))
	n := r.addNode("node1")
	h := r.addHost("host")
	check.OK(t, h.ns.Do(func() error { return os.WriteFile("/proc/sys/net/ipv6/conf/p0/accept_dad", []byte("1"), 0) }))
	w := n.watchLong(rig6, DoubtNone)
	check.Becomes(t, patience, "the switch knows the member", func() bool { return r.hasGroup(netip.MustParseAddr("ff02::1:ff00:50")) })
	p0 := check.Value(h.ns.Links().LinkByName("p0"))(t)
	check.OK(t, h.ns.Links().AddrAdd(p0, check.Value(netlink.ParseAddr(prefix(rig6).String()))(t)))
	n.waitFor(w, DoubtAsked)
	check.Becomes(t, patience, "the host has the address", func() bool { return reaches(h.ns, rig6) })
	equal(t, "MAC", n.proveAgain(w, DoubtSpoken).MAC.String(), h.mac.String())
}

// hasGroup reports whether a port of the switch is a member of a group.
func (r *rig) hasGroup(group netip.Addr) (found bool) {
	r.t.Helper()
	check.OK(r.t, r.network.Do(func() error {
		request := nl.NewNetlinkRequest(unix.RTM_GETMDB, unix.NLM_F_DUMP)
		request.AddData(nl.NewIfInfomsg(unix.AF_BRIDGE))
		entries, err := request.Execute(unix.NETLINK_ROUTE, unix.RTM_GETMDB)
		found = slices.ContainsFunc(entries, func(e []byte) bool { return bytes.Contains(e, group.AsSlice()) })
		return err
	}))
	return found
}
