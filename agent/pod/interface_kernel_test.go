// SPDX-License-Identifier: Apache-2.0

//go:build kernel

package pod

import (
	"errors"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/fenceline/fenceline/test/check"
	"github.com/fenceline/fenceline/test/network"
)

// addLink adds a link to a namespace.
func addLink(t *testing.T, ns *network.Namespace, l netlink.Link) int {
	t.Helper()
	err := ns.Links().LinkAdd(l)
	check.Must(t, err == nil, "add %s %s in %s: %v", l.Type(), l.Attrs().Name, ns.Name, err)
	return check.Value(ns.Index(l.Attrs().Name))(t)
}

func attrs(name string, parent int) netlink.LinkAttrs {
	a := netlink.NewLinkAttrs()
	a.Name = name
	a.ParentIndex = parent
	return a
}

// bridge is the parent of these tests: a link of the node that every kernel has.
func bridge(name string) *netlink.Bridge { return &netlink.Bridge{LinkAttrs: attrs(name, 0)} }

// withFinder calls do with a Finder in a namespace, as the agent on that node has it.
func withFinder(node *network.Namespace, do func(*Finder) error) error {
	return node.Do(func() error {
		finder, err := NewFinder()
		if err != nil {
			return err
		}
		return errors.Join(do(finder), finder.Close())
	})
}

func findFrom(node *network.Namespace, path, name string) (i Interface, err error) {
	err = withFinder(node, func(f *Finder) (err error) { i, err = f.Find(path, name); return err })
	return i, err
}

func TestTheInterfaceOfAPodIsFoundWithItsParent(t *testing.T) {
	mac := net.HardwareAddr{2, 0, 0, 0, 0, 7}
	for kind, link := range map[Kind]func(netlink.Macvlan) netlink.Link{
		MACVLAN: func(m netlink.Macvlan) netlink.Link { return &m },
		MACVTAP: func(m netlink.Macvlan) netlink.Link { return &netlink.Macvtap{Macvlan: m} },
	} {
		t.Run(string(kind), func(t *testing.T) {
			node, pod := network.New(t, "node"), network.New(t, "pod")
			parent := addLink(t, node, bridge("parent0"))
			own := netlink.LinkAttrs{HardwareAddr: mac}
			check.OK(t, node.AddChild("parent0", link(netlink.Macvlan{LinkAttrs: own, Mode: netlink.MACVLAN_MODE_BRIDGE}), pod, "eth0"))
			got := check.Value(findFrom(node, pod.Path(), "eth0"))(t)
			index := check.Value(pod.Index("eth0"))(t)
			check.That(t, got.Name == "eth0" && got.Index == index && got.Kind == kind && got.MAC.String() == mac.String(), "got %+v", got)
			check.That(t, !got.Up, "it is up, though nobody has raised it")
			check.That(t, got.Parent == (Parent{Index: parent, Name: "parent0"}), "parent %+v, want parent0 with ifindex %d", got.Parent, parent)

			check.OK(t, pod.SetUp("eth0", true))
			check.That(t, check.Value(findFrom(node, pod.Path(), "eth0"))(t).Up, "it is down after it was raised")
		})
	}
}

// TestEqualNumbersInTwoNamespacesAreToldApart: a pod's first interface often
// has the very ifindex in the pod that its parent has on the node.
func TestEqualNumbersInTwoNamespacesAreToldApart(t *testing.T) {
	node, pod := network.New(t, "node"), network.New(t, "pod")
	parent := bridge("parent0")
	parent.Index = 42
	addLink(t, node, parent)
	own := &netlink.Macvlan{LinkAttrs: netlink.LinkAttrs{Index: 42}, Mode: netlink.MACVLAN_MODE_BRIDGE}
	check.OK(t, node.AddChild("parent0", own, pod, "eth0"))
	got, err := findFrom(node, pod.Path(), "eth0")
	check.That(t, err == nil && got.Index == 42 && got.Parent == (Parent{Index: 42, Name: "parent0"}), "got %+v, %v", got, err)
}

func TestWhatCannotBeFoundHasItsOwnError(t *testing.T) {
	node, pod, third := network.New(t, "node"), network.New(t, "pod"), network.New(t, "third")
	addLink(t, pod, bridge("bridge0"))
	trunk := addLink(t, pod, bridge("own0"))
	addLink(t, pod, &netlink.Macvlan{LinkAttrs: attrs("nested0", trunk), Mode: netlink.MACVLAN_MODE_BRIDGE})
	addLink(t, third, bridge("parent0"))
	check.OK(t, third.AddMacvlan("parent0", nil, pod, "far0"))
	file := filepath.Join(t.TempDir(), "file")
	check.OK(t, os.WriteFile(file, nil, 0o600))
	for name, c := range map[string]struct {
		path, iface string
		want        error
	}{
		"the sandbox is gone":                    {pod.Path() + "-gone", "eth0", ErrNoNetNS},
		"a file":                                 {file, "eth0", ErrNotNetNS},
		"a namespace, but not of the network":    {"/proc/self/ns/uts", "eth0", ErrNotNetNS},
		"the node itself":                        {node.Path(), "lo", ErrHostNetNS},
		"no such interface":                      {pod.Path(), "eth0", ErrNoInterface},
		"a bridge":                               {pod.Path(), "bridge0", ErrNoParent},
		"loopback":                               {pod.Path(), "lo", ErrNoParent},
		"a macvlan on a link of the pod":         {pod.Path(), "nested0", ErrForeignParent},
		"a macvlan on a link of a third machine": {pod.Path(), "far0", ErrForeignParent},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := findFrom(node, c.path, c.iface)
			check.Is(t, err, c.want, "got %+v,", got)
			if !IsGone(c.want) && !errors.Is(c.want, ErrHostNetNS) {
				c.want = nil
			}
			err = withFinder(node, func(f *Finder) error { return f.Has(c.path, c.iface) })
			check.Is(t, err, c.want, "Has:")
		})
	}
}

// The interfaces of all pods are found with their addresses and parents, each namespace once.
func TestASearchFindsTheInterfacesOfAllPods(t *testing.T) {
	node, web, other := network.New(t, "node"), network.New(t, "web"), network.New(t, "other")
	parent := addLink(t, node, bridge("br0"))
	check.OK(t, node.AddMacvlan("br0", nil, web, "eth0"))
	check.OK(t, node.AddMacvlan("br0", nil, other, "net1"))
	want := netip.MustParsePrefix("10.0.0.2/24")
	check.OK(t, web.AddAddr("eth0", want))
	var places []Place
	check.OK(t, withFinder(node, func(f *Finder) (err error) { places, err = f.Search(filepath.Dir(web.Path())); return err }))
	found := map[string]Place{}
	for _, p := range places {
		_, twice := found[p.NetNS+p.Interface]
		check.That(t, !twice, "%s in %s was found twice", p.Interface, p.NetNS)
		found[p.NetNS+p.Interface] = p
	}
	p := found[web.Path()+"eth0"]
	check.Equal(t, p.Parent, Parent{parent, "br0"}, "parent")
	check.Equal(t, p.MAC.String(), check.Value(web.MAC("eth0"))(t).String(), "MAC")
	check.List(t, p.Addresses, []netip.Addr{want.Addr()}, "addresses")
	p = found[other.Path()+"net1"]
	check.That(t, p.Parent.Index == parent && len(p.Addresses) == 0, "found %+v", p)
	_, ok := found[node.Path()+"br0"]
	check.That(t, !ok, "the node's own namespace was searched")
}

// Only the kernel can flag an address as its own: one that a process adds is not taken for it.
func TestOnlyTheKernelsOwnLinkLocalAddressesAreRead(t *testing.T) {
	pod := network.New(t, "pod")
	link := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "eth0"}, PeerName: "peer"}
	addLink(t, pod, link)
	const settings = "/proc/sys/net/ipv6/conf/eth0/"
	check.OK(t, pod.Do(func() error { return os.WriteFile(settings+"addr_gen_mode", []byte("3"), 0) }))
	forged := check.Value(netlink.ParseAddr("fe80::1/64"))(t)
	forged.Flags = 0x800 // IFA_F_STABLE_PRIVACY: the kernel does not take it from a process
	check.OK(t, errors.Join(pod.SetUp("peer", true), pod.SetUp("eth0", true), pod.Links().AddrAdd(link, forged)))
	finder := check.Value(NewFinder())(t)
	defer finder.Close()
	var found []netip.Addr
	check.Becomes(t, time.Minute, "a link-local address", func() bool {
		found = check.Value(finder.LinkLocal(pod.Path(), "eth0"))(t)
		return len(found) > 0
	})
	check.That(t, len(found) == 1 && found[0] != netip.MustParseAddr("fe80::1"), "got %v, want the one address that the kernel made", found)
	check.OK(t, finder.Autoconfigure(pod.Path(), "eth0", false))
	check.OK(t, pod.Do(func() error {
		value, err := os.ReadFile(settings + "autoconf")
		check.Equal(t, string(value), "0\n", "autoconf is")
		return err
	}))
	check.That(t, IsGone(check.Err(finder.LinkLocal(pod.Path(), "eth1"))), "a missing interface is not gone")
	check.That(t, IsGone(check.Err(finder.LinkLocal(pod.Path()+"-none", "eth0"))), "a missing namespace is not gone")
}
