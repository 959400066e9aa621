// SPDX-License-Identifier: Apache-2.0

//go:build kernel

package main

import (
	"context"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/containernetworking/cni/libcni"
	types100 "github.com/containernetworking/cni/pkg/types/100"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/fenceline/fenceline/cni/agentapi"
	"github.com/fenceline/fenceline/internal/wholelist"
	"github.com/fenceline/fenceline/test/capture"
	"github.com/fenceline/fenceline/test/check"
	"github.com/fenceline/fenceline/test/network"
)

// lan is a switch.
type lan struct {
	network.LAN
	bin string
}

func newLAN(t *testing.T) *lan {
	t.Helper()
	return &lan{network.NewLAN(t), binaries(t)}
}

// plug connects a new host with the interface p0.
func (l *lan) plug(t *testing.T, role string, addrs ...string) *network.Namespace {
	t.Helper()
	host := l.Host(t, role, "p0")
	for _, a := range addrs {
		check.OK(t, host.AddAddr("p0", netip.MustParsePrefix(a)))
	}
	return host
}

// loneHost is a machine with a runtime (libcni) and no agent.
type loneHost struct {
	net        *network.Namespace
	bin, cache string
	// data is the directory of the data files.
	data string
}

func (l *lan) host(t *testing.T, role string) *loneHost {
	t.Helper()
	return &loneHost{l.plug(t, role), l.bin, t.TempDir(), t.TempDir()}
}

const onMACVLAN, onHostDevice = `"type":"macvlan","master":"p0","mode":"bridge"`, `"type":"host-device","device":"p0"`

// macvlanConf is a macvlan on p0. ipam has the further members of its IPAM.
func (h *loneHost) macvlanConf(t *testing.T, ipam string) *libcni.NetworkConfigList {
	t.Helper()
	return h.list(t, onMACVLAN, pluginType, ipam)
}

func (h *loneHost) list(t *testing.T, plugin, ipamType, ipam string) *libcni.NetworkConfigList {
	t.Helper()
	return check.Value(libcni.ConfListFromBytes(fmt.Appendf(nil, `{"cniVersion":"1.1.0","name":"net","plugins":[{%s,
		"ipam":{"type":%q,"dataDir":%q,%s}}]}`, plugin, ipamType, h.data, ipam)))(t)
}

func (h *loneHost) runtime(fn func(*libcni.CNIConfig) error) error {
	return h.net.Do(func() error { return fn(libcni.NewCNIConfigWithCacheDir([]string{h.bin}, h.cache, nil)) })
}

func container(id string, ns *network.Namespace) *libcni.RuntimeConf {
	return &libcni.RuntimeConf{ContainerID: id, NetNS: ns.Path(), IfName: "eth0"}
}

func (h *loneHost) add(ctx context.Context, list *libcni.NetworkConfigList, rt *libcni.RuntimeConf) (addrs []string, err error) {
	err = h.runtime(func(c *libcni.CNIConfig) error {
		r, err := c.AddNetworkList(ctx, list, rt)
		if err != nil {
			return err
		}
		result, err := types100.NewResultFromResult(r)
		if err != nil {
			return err
		}
		for _, ip := range result.IPs {
			addrs = append(addrs, ip.Address.String())
		}
		return nil
	})
	return addrs, err
}

func (h *loneHost) mustAdd(t *testing.T, list *libcni.NetworkConfigList, rt *libcni.RuntimeConf) []string {
	t.Helper()
	return check.Value(h.add(t.Context(), list, rt))(t)
}

func (h *loneHost) mustDel(t *testing.T, list *libcni.NetworkConfigList, rt *libcni.RuntimeConf) {
	t.Helper()
	check.OK(t, h.runtime(func(c *libcni.CNIConfig) error { return c.DelNetworkList(t.Context(), list, rt) }))
}

// held returns the addresses that have data files, sorted.
func (h *loneHost) held(t *testing.T) []string {
	t.Helper()
	return slices.Sorted(maps.Keys(addressFiles(t, h.data)))
}

const (
	small = `"ranges":[[{"subnet":"192.0.2.0/24","rangeStart":"192.0.2.10","rangeEnd":"192.0.2.40"}]]`
	dual  = `"ranges":[[{"subnet":"192.0.2.0/24","rangeStart":"192.0.2.10","rangeEnd":"192.0.2.40"}],[{"subnet":"2001:db8::/64","rangeStart":"2001:db8::10","rangeEnd":"2001:db8::40"}]]`
)

func TestAForeignHostIsPassedOver(t *testing.T) {
	t.Parallel()
	l := newLAN(t)
	foreign := l.plug(t, "foreign", "192.0.2.10/24", "192.0.2.12/24", "2001:db8::10/64")
	mac := check.Value(foreign.MAC("p0"))(t)
	for _, row := range []struct{ name, plugin, parent string }{
		{"macvlan", onMACVLAN, ""},
		{"bridge", `"type":"bridge","bridge":"br0"`, "br0"},
	} {
		t.Run(row.name, func(t *testing.T) {
			h := l.host(t, row.name)
			if row.parent != "" { // the physical interface is a port of the bridge
				check.OK(t, h.net.AddBridge(row.parent))
				check.OK(t, h.net.SetUp(row.parent, true))
				check.OK(t, h.net.Replug("p0", row.parent))
			}
			list := h.list(t, row.plugin, pluginType, dual)
			first := container("one", network.New(t, "one"))
			check.List(t, h.mustAdd(t, list, first), []string{"192.0.2.11/24", "2001:db8::11/64"}, "the first container got")
			second := container("two", network.New(t, "two"))
			check.List(t, h.mustAdd(t, list, second), []string{"192.0.2.13/24", "2001:db8::12/64"}, "the second container got")
			check.List(t, h.held(t), []string{"192.0.2.11", "192.0.2.13", "2001:db8::11", "2001:db8::12"}, "data files of")
			memory := check.Value(os.ReadFile(filepath.Join(h.data, "net", "conflicts.json")))(t)
			check.Says(t, string(memory), "192.0.2.10", "192.0.2.12", "2001:db8::10", mac.String())
			h.mustDel(t, list, first)
			h.mustDel(t, list, first)
			check.List(t, h.held(t), []string{"192.0.2.13", "2001:db8::12"}, "after DEL data files of")
		})
	}
}

// The reference hands out the duplicate: the rig has a conflict.
func TestTheReferenceHandsOutADuplicate(t *testing.T) {
	l := newLAN(t)
	l.plug(t, "foreign", "192.0.2.10/24")
	h := l.host(t, "host")
	list := h.list(t, onMACVLAN, hostLocal, small)
	check.List(t, h.mustAdd(t, list, container("one", network.New(t, "one"))), []string{"192.0.2.10/24"}, "got")
}

func TestAnInterfaceWithoutSegmentIsNotProbed(t *testing.T) {
	for _, plugin := range []string{"ptp", "tap"} { // and dummy, in a guest
		t.Run(plugin, func(t *testing.T) { givesWithoutProbe(t, plugin) })
	}
}

// givesWithoutProbe adds a container by a plugin of that type.
func givesWithoutProbe(t *testing.T, plugin string) {
	t.Helper()
	h, one := newLAN(t).host(t, "host"), network.New(t, "one")
	list := h.list(t, fmt.Sprintf(`"type":%q`, plugin), pluginType, small)
	check.List(t, h.mustAdd(t, list, container("one", one)), []string{"192.0.2.10/24"}, "got")
	check.List(t, addresses(t, one, "eth0"), []string{"192.0.2.10/24"}, "the container has")
}

func TestAForeignHostIsPassedOverOnADeviceOfTheHost(t *testing.T) {
	l := newLAN(t)
	l.plug(t, "foreign", "192.0.2.10/24", "2001:db8::10/64")
	h := l.host(t, "host")
	got := h.mustAdd(t, h.list(t, onHostDevice, pluginType, dual), container("one", network.New(t, "one")))
	check.List(t, got, []string{"192.0.2.11/24", "2001:db8::11/64"}, "got")
}

func TestASiblingOnTheSameParentIsMet(t *testing.T) { siblingIsMet(t, onMACVLAN) }

// siblingIsMet adds containers of two networks with one range to a host.
func siblingIsMet(t *testing.T, plugin string) {
	t.Helper()
	h := newLAN(t).host(t, "host")
	h.mustAdd(t, h.list(t, plugin, pluginType, small), container("one", network.New(t, "one")))
	other := *h
	other.data = t.TempDir() // another network with the same range
	got := other.mustAdd(t, other.list(t, plugin, pluginType, small), container("two", network.New(t, "two")))
	check.List(t, got, []string{"192.0.2.11/24"}, "got")
}

// Two machines share a range and know nothing of each other.
func TestTwoMachinesWithTheSameRangeHaveNoDuplicate(t *testing.T) {
	t.Parallel()
	addManyToTwoHosts(t, newLAN(t), onMACVLAN)
}

// addManyToTwoHosts adds containers to two hosts at the same time. They have one range and a plugin for
// the interface.
func addManyToTwoHosts(t *testing.T, l *lan, plugin string) {
	t.Helper()
	const each = 8
	var mu sync.Mutex
	var wait sync.WaitGroup
	var begin []func()
	holders := map[string][]string{}
	for _, role := range []string{"host0", "host1"} {
		h := l.host(t, role)
		list := h.list(t, plugin, pluginType, small)
		for i := range each {
			id := fmt.Sprintf("c%d-%s", i, role)
			rt := container(id, network.New(t, id))
			begin = append(begin, func() {
				addrs, err := h.add(t.Context(), list, rt)
				mu.Lock()
				defer mu.Unlock()
				check.Is(t, err, nil, "%s:", id)
				for _, addr := range addrs {
					holders[addr] = append(holders[addr], id)
				}
			})
		}
	}
	for _, add := range begin {
		wait.Go(add)
	}
	wait.Wait()
	for addr, who := range holders {
		check.That(t, len(who) <= 1, "%s was given to %v", addr, who)
	}
	check.That(t, len(holders) == 2*each, "%d addresses for %d containers", len(holders), 2*each)
}

// child makes a link on p0 of the host, which is down, the eth0 of a namespace, as plugins do before they call IPAM.
func (h *loneHost) child(t *testing.T, ns *network.Namespace, link netlink.Link) netlink.Link {
	t.Helper()
	check.OK(t, h.net.AddChild("p0", link, ns, "eth0"))
	return check.Value(ns.Links().LinkByName("eth0"))(t)
}

// localRoutes returns the addresses for which the kernel of a namespace answers on a link.
func localRoutes(t *testing.T, ns *network.Namespace, link netlink.Link) (addrs []string) {
	t.Helper()
	filter := &netlink.Route{LinkIndex: link.Attrs().Index, Table: unix.RT_TABLE_LOCAL, Type: unix.RTN_LOCAL}
	by := netlink.RT_FILTER_OIF | netlink.RT_FILTER_TABLE | netlink.RT_FILTER_TYPE
	for _, r := range check.Value(ns.Links().RouteListFiltered(netlink.FAMILY_V4, filter, by))(t) {
		addrs = append(addrs, r.Dst.IP.String())
	}
	return addrs
}

// Nothing else answers for an address between its probe and its configuration. On a busy machine this
// takes longer than the probe of another machine.
func TestTheAddressIsAnsweredForBeforeItIsConfigured(t *testing.T) {
	answeredBeforeConfigured(t, onMACVLAN, &netlink.Macvlan{Mode: netlink.MACVLAN_MODE_BRIDGE})
}

// answeredBeforeConfigured asks for an address with a child of one host, and then from another host
// with a plugin for the interface.
func answeredBeforeConfigured(t *testing.T, plugin string, child netlink.Link) {
	t.Helper()
	l := newLAN(t)
	h, other, one := l.host(t, "host"), l.host(t, "other"), network.New(t, "one")
	link := h.child(t, one, child)
	running := check.Value(capture.Start(l.Switch, network.Bridge))(t)
	check.OK(t, h.net.Do(func() error {
		out, err := callPlugin(t, h.bin, pluginType, referenceCall{verb: "ADD", netns: one.Path()}, loneConf(h.data, small))
		check.That(t, err == nil, "%v: %s", err, out)
		return err
	}))
	check.List(t, localRoutes(t, one, link), []string{"192.0.2.10"}, "after IPAM the kernel answers for")
	got := other.mustAdd(t, other.list(t, plugin, pluginType, small), container("two", network.New(t, "two")))
	check.List(t, got, []string{"192.0.2.11/24"}, "another machine gave")
	speakers := capture.Speakers(check.Value(running.Stop())(t), netip.MustParseAddr("192.0.2.10"))
	check.List(t, speakers, []string{link.Attrs().HardwareAddr.String()}, "the address is announced by")

	address := check.Value(netlink.ParseAddr("192.0.2.10/24"))(t)
	check.OK(t, one.Links().AddrAdd(link, address))
	check.List(t, localRoutes(t, one, link), []string{"192.0.2.10"}, "with the address the kernel answers for")
	check.OK(t, one.Links().AddrDel(link, address))
	check.None(t, localRoutes(t, one, link), "without the address the kernel answers for")
}

// Otherwise a neighbour sends to the MAC of the last container until it looks for the address anew.
func TestNeighboursLearnTheMACOfTheNextContainer(t *testing.T) {
	for _, plugin := range []string{onMACVLAN, onBridge, onHostDevice} {
		t.Run(plugin, func(t *testing.T) {
			t.Parallel()
			l := newLAN(t)
			neighbour := l.plug(t, "neighbour")
			index := check.Value(neighbour.Index("p0"))(t)
			last := net.HardwareAddr{2, 0, 0, 0, 0, 9}
			for _, addr := range []string{"192.0.2.10", "2001:db8::10"} {
				check.OK(t, neighbour.Links().NeighAdd(&netlink.Neigh{LinkIndex: index, State: netlink.NUD_REACHABLE, IP: net.ParseIP(addr), HardwareAddr: last}))
			}
			h := l.host(t, "host")
			if plugin == onBridge {
				h = l.hostOnBridge(t, "bridged")
			}
			one := network.New(t, "one")
			h.mustAdd(t, h.list(t, plugin, pluginType, dual), container("one", one))
			mac := check.Value(one.MAC("eth0"))(t).String()
			check.Eventually(t, time.Minute, "the neighbour knows the MAC of both addresses", func() error {
				known, err := wholelist.Of(func() ([]netlink.Neigh, error) { return neighbour.Links().NeighList(index, netlink.FAMILY_ALL) })
				for _, n := range known {
					if n.HardwareAddr.String() == last.String() {
						return fmt.Errorf("%s is at %s, not at %s", n.IP, n.HardwareAddr, mac)
					}
				}
				return err
			})
		})
	}
}

func TestAFailedADDLeavesTheInterfaceAsItWas(t *testing.T) {
	t.Parallel()
	l := newLAN(t)
	l.plug(t, "foreign", "192.0.2.40/24")
	h, one := l.host(t, "host"), network.New(t, "one")
	link := h.child(t, one, &netlink.Macvlan{Mode: netlink.MACVLAN_MODE_BRIDGE})
	for _, state := range []struct {
		name string
		up   bool
	}{{"down", false}, {"up", true}} {
		t.Run(state.name, func(t *testing.T) {
			check.OK(t, one.SetUp("eth0", state.up))
			// The address of the first set is free, and that of the second one is not.
			conf := loneConf(h.data, `"ranges":[[{"subnet":"192.0.2.0/24","rangeStart":"192.0.2.10","rangeEnd":"192.0.2.10"}],[{"subnet":"192.0.2.0/24","rangeStart":"192.0.2.40","rangeEnd":"192.0.2.40"}]]`)
			out, err := callPlugin(t, h.bin, pluginType, referenceCall{verb: "ADD", netns: one.Path()}, conf)
			wantPrinted(t, out, err, agentapi.CodeExhausted, "other hosts use 192.0.2.40")
			after := check.Value(one.Links().LinkByName("eth0"))(t)
			check.Equal(t, after.Attrs().RawFlags&unix.IFF_UP != 0, state.up, "the interface is up:")
			check.None(t, localRoutes(t, one, link), "the kernel answers for")
		})
	}
}
