// SPDX-License-Identifier: Apache-2.0

//go:build kernel

package pod

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/containernetworking/plugins/pkg/ns"
	"github.com/containernetworking/plugins/pkg/utils/sysctl"
	"github.com/vishvananda/netlink"

	"github.com/fenceline/fenceline/test/check"
	"github.com/fenceline/fenceline/test/network"
)

// addLink adds a link to a namespace.
func addLink(t *testing.T, ns *network.Namespace, l netlink.Link) int {
	t.Helper()
	if err := ns.Links().LinkAdd(l); err != nil {
		t.Fatalf("add %s %s in %s: %v", l.Type(), l.Attrs().Name, ns.Name, err)
	}
	return check.Value(ns.Index(l.Attrs().Name))(t)
}

// child adds a link to the node whose own end is in the pod, as a CNI plugin does.
func child(t *testing.T, node, pod *network.Namespace, l netlink.Link) {
	t.Helper()
	err := pod.Do(func() error {
		inside, err := os.Open("/proc/thread-self/ns/net")
		if err != nil {
			return err
		}
		defer inside.Close()
		l.Attrs().Namespace = netlink.NsFd(int(inside.Fd()))
		return node.Links().LinkAdd(l)
	})
	check.Must(t, err == nil, "add %s %s in %s: %v", l.Type(), l.Attrs().Name, pod.Name, err)
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
	err = withFinder(node, func(f *Finder) error {
		i, err = f.Find(path, name)
		return err
	})
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
			own := attrs("eth0", parent)
			own.HardwareAddr = mac
			child(t, node, pod, link(netlink.Macvlan{LinkAttrs: own, Mode: netlink.MACVLAN_MODE_BRIDGE}))

			got := check.Value(findFrom(node, pod.Path(), "eth0"))(t)
			index := check.Value(pod.Index("eth0"))(t)
			check.That(t, got.Name == "eth0" && got.Index == index && got.Kind == kind && got.MAC.String() == mac.String(), "got %+v", got)
			check.That(t, !got.Up, "it is up, though nobody has raised it")
			check.That(t, got.Parent == (Parent{Index: parent, Name: "parent0"}), "parent %+v, want parent0 with ifindex %d", got.Parent, parent)

			check.OK(t, pod.SetUp("eth0", true))
			if got, err := findFrom(node, pod.Path(), "eth0"); err != nil || !got.Up {
				t.Errorf("after it was raised: %+v, %v", got, err)
			}
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
	own := attrs("eth0", 42)
	own.Index = 42
	child(t, node, pod, &netlink.Macvlan{LinkAttrs: own, Mode: netlink.MACVLAN_MODE_BRIDGE})
	got, err := findFrom(node, pod.Path(), "eth0")
	check.That(t, err == nil && got.Index == 42 && got.Parent == (Parent{Index: 42, Name: "parent0"}), "got %+v, %v", got, err)
}

func TestWhatCannotBeFoundHasItsOwnError(t *testing.T) {
	node, pod, third := network.New(t, "node"), network.New(t, "pod"), network.New(t, "third")
	addLink(t, pod, bridge("bridge0"))
	trunk := addLink(t, pod, bridge("own0"))
	addLink(t, pod, &netlink.Macvlan{LinkAttrs: attrs("nested0", trunk), Mode: netlink.MACVLAN_MODE_BRIDGE})
	elsewhere := addLink(t, third, bridge("parent0"))
	child(t, third, pod, &netlink.Macvlan{LinkAttrs: attrs("far0", elsewhere), Mode: netlink.MACVLAN_MODE_BRIDGE})
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
	child(t, node, web, &netlink.Macvlan{LinkAttrs: attrs("eth0", parent), Mode: netlink.MACVLAN_MODE_BRIDGE})
	child(t, node, other, &netlink.Macvlan{LinkAttrs: attrs("net1", parent), Mode: netlink.MACVLAN_MODE_BRIDGE})
	want := netip.MustParsePrefix("10.0.0.2/24")
	check.OK(t, web.AddAddr("eth0", want))
	var places []Place
	check.OK(t, node.Do(func() error {
		finder, err := NewFinder()
		if err != nil {
			return err
		}
		defer finder.Close()
		places, err = finder.Search(filepath.Dir(web.Path()))
		return err
	}))
	found := map[string]Place{}
	for _, p := range places {
		_, twice := found[p.NetNS+p.Interface]
		check.That(t, !twice, "%s in %s was found twice", p.Interface, p.NetNS)
		found[p.NetNS+p.Interface] = p
	}
	mac := check.Value(web.MAC("eth0"))(t)
	if p := found[web.Path()+"eth0"]; p.Parent != (Parent{parent, "br0"}) || p.MAC.String() != mac.String() || !slices.Equal(p.Addresses, []netip.Addr{want.Addr()}) {
		t.Errorf("found %+v", p)
	}
	if p := found[other.Path()+"net1"]; p.Parent.Index != parent || len(p.Addresses) != 0 {
		t.Errorf("found %+v", p)
	}
	if p, ok := found[node.Path()+"br0"]; ok {
		t.Errorf("the node's own namespace: %+v", p)
	}
}

// Only the kernel can flag an address as its own: one that a process adds is not taken for it.
func TestOnlyTheKernelsOwnLinkLocalAddressesAreRead(t *testing.T) {
	pod, err := network.Create(fmt.Sprintf("fls%d", os.Getpid()))
	check.OK(t, err)
	t.Cleanup(func() { check.OK(t, pod.Delete()) })
	err = ns.WithNetNSPath(pod.Path(), func(ns.NetNS) error {
		link := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "eth0"}, PeerName: "peer"}
		if err := netlink.LinkAdd(link); err != nil {
			return err
		}
		if _, err := sysctl.Sysctl("net/ipv6/conf/eth0/addr_gen_mode", "3"); err != nil {
			return err
		}
		forged, err := netlink.ParseAddr("fe80::1/64")
		if err != nil {
			return err
		}
		forged.Flags = 0x800 // IFA_F_STABLE_PRIVACY: the kernel does not take it from a process
		peer, err := netlink.LinkByName("peer")
		if err != nil {
			return err
		}
		return errors.Join(netlink.LinkSetUp(peer), netlink.LinkSetUp(link), netlink.AddrAdd(link, forged))
	})
	check.OK(t, err)
	finder := check.Value(NewFinder())(t)
	defer finder.Close()
	var found []netip.Addr
	check.Becomes(t, time.Minute, "a link-local address", func() bool {
		found = check.Value(finder.LinkLocal(pod.Path(), "eth0"))(t)
		return len(found) > 0
	})
	check.That(t, len(found) == 1 && found[0] != netip.MustParseAddr("fe80::1"), "got %v, want the one address that the kernel made", found)
	check.OK(t, finder.Autoconfigure(pod.Path(), "eth0", false))
	err = ns.WithNetNSPath(pod.Path(), func(ns.NetNS) error {
		value, err := sysctl.Sysctl("net/ipv6/conf/eth0/autoconf")
		check.Equal(t, value, "0", "autoconf is")
		return err
	})
	check.OK(t, err)
	check.That(t, IsGone(check.Err(finder.LinkLocal(pod.Path(), "eth1"))), "a missing interface is not gone")
	check.That(t, IsGone(check.Err(finder.LinkLocal(pod.Path()+"-none", "eth0"))), "a missing namespace is not gone")
}
