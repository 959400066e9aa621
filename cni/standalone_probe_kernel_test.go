// SPDX-License-Identifier: Apache-2.0

//go:build kernel

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"

	types100 "github.com/containernetworking/cni/pkg/types/100"
	"golang.org/x/sys/unix"

	"github.com/fenceline/fenceline/cni/agentapi"
	"github.com/fenceline/fenceline/internal/foreignhost"
	"github.com/fenceline/fenceline/test/capture"
	"github.com/fenceline/fenceline/test/check"
	"github.com/fenceline/fenceline/test/network"
)

// probeRig is a container on a segment with a host of many addresses.
type probeRig struct {
	l       *lan
	pod     *network.Namespace
	dir     string
	foreign string // MAC
}

// newProbeRig gives the foreign host the addresses from first to last of 192.0.2.0/24.
func newProbeRig(t *testing.T, first, last int) *probeRig {
	t.Helper()
	l := newLAN(t)
	var addrs []string
	for i := first; i <= last; i++ {
		addrs = append(addrs, fmt.Sprintf("192.0.2.%d/24", i))
	}
	mac := check.Value(l.plug(t, "foreign", addrs...).MAC("p0"))(t)
	r := &probeRig{l, network.New(t, "pod"), t.TempDir(), mac.String()}
	l.Plug(t, r.pod, "eth0", nil, "pod")
	return r
}

func (r *probeRig) add(t *testing.T, container, ipam string) (addr string, out []byte, err error) {
	t.Helper()
	out, err = callPlugin(t, r.l.bin, pluginType, referenceCall{verb: "ADD", container: container, netns: r.pod.Path()}, loneConf(r.dir, ipam))
	if err != nil {
		return "", out, err
	}
	var result types100.Result
	check.OK(t, json.Unmarshal(out, &result))
	return result.IPs[0].Address.IP.String(), out, nil
}

func (r *probeRig) wantAddr(t *testing.T, container, ipam, want string) {
	t.Helper()
	got, out, err := r.add(t, container, ipam)
	check.That(t, err == nil && got == want, "%s got %s, %v; want %s\n%s", container, got, err, want, out)
}

func detecting(block string) string { return small + `,"conflictDetection":{` + block + `}` }

func TestTheModesOfConflictDetection(t *testing.T) {
	t.Parallel()
	r := newProbeRig(t, 10, 10)
	r.wantAddr(t, "observed", detecting(`"mode":"Observe"`), "192.0.2.10")
	r.dir = t.TempDir()
	r.wantAddr(t, "off", detecting(`"mode":"Off"`), "192.0.2.10")
	r.dir = t.TempDir()
	r.wantAddr(t, "ignoring", detecting(fmt.Sprintf(`"ignoreMACs":[%q]`, r.foreign)), "192.0.2.10")
	r.dir = t.TempDir()
	r.wantAddr(t, "enforced", detecting(`"mode":"Enforce"`), "192.0.2.11")
}

func TestAHostOfManyAddressesStopsTheSearch(t *testing.T) {
	t.Parallel()
	r := newProbeRig(t, 10, 40)
	_, out, err := r.add(t, "a", small)
	wantPrinted(t, out, err, agentapi.CodeTryAgainLater, "host "+r.foreign+" has answered for 10 addresses")
	check.None(t, addressFiles(t, r.dir), "left")
	memory := filesOf(t, r.dir+"/net")["conflicts.json"]
	if n := strings.Count(memory, r.foreign); n != foreignhost.MaxConflicts || strings.Count(memory, "passedOver") != n-foreignhost.ManyAddresses {
		t.Errorf("%d answers are remembered: %s", n, memory)
	}
}

func TestARequestedAddressThatAHostUsesIsRefused(t *testing.T) {
	t.Parallel()
	r := newProbeRig(t, 20, 20)
	out, err := callPlugin(t, r.l.bin, pluginType, referenceCall{verb: "ADD", args: "IP=192.0.2.20", netns: r.pod.Path()}, loneConf(r.dir, small))
	wantPrinted(t, out, err, agentapi.CodeAddressRefused, "host "+r.foreign+" uses it")
	check.None(t, addressFiles(t, r.dir), "left")
}

// The kernel takes apart the network namespace of a container after its end. Until then its interface answers.
func TestAnAddressWithoutReplacementWaitsForTheEndOfItsLastInterface(t *testing.T) {
	for _, row := range []struct{ name, args, ipam string }{
		{"requested", "IP=192.0.2.20", small},
		{"the only one of its range", "", `"ranges":[[{"subnet":"192.0.2.0/24","rangeStart":"192.0.2.20","rangeEnd":"192.0.2.20"}]]`},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			r := newProbeRig(t, 20, 20)
			running := check.Value(capture.Start(r.l.Switch, network.Bridge))(t)
			ended := make(chan error, 1)
			go func() {
				_, err := running.Wait(t.Context(), func(f capture.Frame) bool { return slices.Contains(f.Speaks, netip.MustParseAddr("192.0.2.20")) })
				ended <- errors.Join(err, r.l.Switch.SetUp(network.Port("foreign"), false))
			}()
			out, err := callPlugin(t, r.l.bin, pluginType, referenceCall{verb: "ADD", args: row.args, netns: r.pod.Path()}, loneConf(r.dir, row.ipam))
			check.That(t, err == nil, "%v: %s", err, out)
			check.OK(t, <-ended)
			check.OK(t, check.Err(running.Stop()))
			check.List(t, slices.Sorted(maps.Keys(addressFiles(t, r.dir))), []string{"192.0.2.20"}, "data files of")
		})
	}
}

// A runtime that crashed starts its containers again without DEL. The last container may live on.
func TestAContainerThatStartsAgainWithoutDELKeepsItsAddresses(t *testing.T) {
	t.Parallel()
	h := newLAN(t).host(t, "host")
	list, addrs := h.macvlanConf(t, dual), []string{"192.0.2.10/24", "2001:db8::10/64"}
	last, one := network.New(t, "last"), container("one", network.New(t, "one"))
	one.Args = [][2]string{{"IgnoreUnknown", "1"}, {"IP", "192.0.2.10"}}
	check.List(t, h.mustAdd(t, list, container("one", last)), addrs, "got")
	_, err := h.add(t.Context(), list, container("one", network.New(t, "early")))
	check.Says(t, err, "container one has [", "] for eth0 already; other hosts use ") // one of the two families
	check.OK(t, last.DeleteLink("eth0"))
	_, err = h.add(t.Context(), h.macvlanConf(t, dual+`,"conflictDetection":{"mode":"Observe"}`), container("one", network.New(t, "unproven")))
	check.Says(t, err, "container one has [192.0.2.10] for eth0 already; end its earlier use by DEL first")
	check.List(t, h.mustAdd(t, list, one), addrs, "again got")
	check.List(t, h.held(t), []string{"192.0.2.10", "2001:db8::10"}, "data files of")
}

// An address that came free is given although it is remembered, when no other one is free.
func TestARememberedAddressIsTheLastResort(t *testing.T) {
	t.Parallel()
	r := newProbeRig(t, 10, 10)
	const two = `"ranges":[[{"subnet":"192.0.2.0/24","rangeStart":"192.0.2.10","rangeEnd":"192.0.2.11"}]]`
	r.wantAddr(t, "a", two, "192.0.2.11")
	_, out, err := r.add(t, "b", two)
	wantPrinted(t, out, err, agentapi.CodeExhausted, "other hosts use 192.0.2.10 ("+r.foreign+")")
	check.OK(t, r.l.Switch.SetUp(network.Port("foreign"), false)) // the foreign host leaves
	r.wantAddr(t, "b", two, "192.0.2.10")
	memory := filesOf(t, r.dir+"/net")["conflicts.json"]
	check.That(t, !strings.Contains(memory, "192.0.2.10"), "the conflict is still remembered: %s", memory)
}

// The kernel lets no two macvlans of a parent with one MAC be up.
func TestAMACThatExistsTwiceOnAParentIsNamed(t *testing.T) {
	for _, mode := range []string{"Enforce", "Observe"} {
		r := newProbeRig(t, 10, 10)
		node, mac := network.New(t, "node"), net.HardwareAddr{2, 0, 0, 0, 0, 0x42}
		r.l.Plug(t, node, "p0", nil, "node")
		r.pod = network.New(t, "twin")
		check.OK(t, node.AddMacvlan("p0", mac, r.pod, "eth0"))
		check.OK(t, r.pod.SetUp("eth0", true))
		r.pod = network.New(t, "other")
		check.OK(t, node.AddMacvlan("p0", mac, r.pod, "eth0"))
		_, out, err := r.add(t, "a", detecting(fmt.Sprintf(`"mode":%q`, mode)))
		wantPrinted(t, out, err, agentapi.CodeTryAgainLater, "set it up: address already in use; another interface of its parent has the MAC of eth0")
		check.None(t, addressFiles(t, r.dir), "left")
	}
}

// A hardened service of a runtime (CapabilityBoundingSet, RestrictAddressFamilies) has no packet sockets.
func TestAServiceThatMayNotProbeIsNamed(t *testing.T) {
	r := newProbeRig(t, 10, 10)
	runtime.LockOSThread() // it ends with the test
	check.OK(t, unix.Prctl(unix.PR_CAPBSET_DROP, unix.CAP_NET_RAW, 0, 0, 0))
	_, out, err := r.add(t, "a", small)
	wantPrinted(t, out, err, agentapi.CodeTryAgainLater, "use AF_PACKET and CAP_NET_RAW")
	check.None(t, addressFiles(t, r.dir), "left")
}

// The port of the switch may not forward yet.
func TestALinkThatHasJustComeUpAndHearsNobodyIsSaid(t *testing.T) {
	for _, row := range []struct {
		name      string
		up, heard bool
		want      bool
	}{{"it came up for the probe", false, false, true}, {"and another host is heard", false, true, false}, {"it was up", true, false, false}} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			r := newProbeRig(t, 10, 10)
			check.OK(t, r.pod.SetUp("eth0", row.up))
			check.OK(t, r.l.Switch.SetUp(network.Port("foreign"), row.heard))
			// The switch itself solicits its own address.
			check.OK(t, r.l.Switch.Do(func() error { return os.WriteFile("/proc/sys/net/ipv6/conf/all/disable_ipv6", []byte("1"), 0) }))
			call := pluginCall(t, r.l.bin, pluginType, referenceCall{verb: "ADD", netns: r.pod.Path()}, loneConf(r.dir, small))
			var said strings.Builder
			call.Stderr = &said
			check.OK(t, call.Run())
			check.Equal(t, strings.Contains(said.String(), "no other host was heard on eth0, whose link has just come up"), row.want, "%s:", said.String())
		})
	}
}

func TestWithoutCarrierNothingIsProven(t *testing.T) {
	t.Parallel()
	r := newProbeRig(t, 50, 50)
	check.OK(t, r.l.Switch.SetUp(network.Port("pod"), false))
	_, out, err := r.add(t, "a", small)
	wantPrinted(t, out, err, agentapi.CodeTryAgainLater, "no carrier")
	check.None(t, addressFiles(t, r.dir), "left")
}
