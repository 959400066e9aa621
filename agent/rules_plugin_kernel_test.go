// SPDX-License-Identifier: Apache-2.0

//go:build kernel

package main

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/containernetworking/cni/libcni"
	types100 "github.com/containernetworking/cni/pkg/types/100"
	"github.com/mdlayher/arp"
	"github.com/mdlayher/packet"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/cni/agentapi"
	"github.com/fenceline/fenceline/internal/frames"
	"github.com/fenceline/fenceline/test/check"
	"github.com/fenceline/fenceline/test/network"
	"github.com/fenceline/fenceline/test/programs"
	"github.com/fenceline/fenceline/test/thirdparty"
)

// plugins are the reference plugins, with macvlan and tuning, and the plugin, which calls the agent.
func plugins(t *testing.T) *libcni.CNIConfig {
	t.Helper()
	builder := check.Value(thirdparty.NewBuilder(t.Output()))(t)
	dirs := []string{t.TempDir()}
	check.OK(t, programs.Build(t.Context(), "cni", filepath.Join(dirs[0], "fenceline")))
	for _, c := range []string{thirdparty.CNIPlugins, thirdparty.CNITuning} {
		dirs = append(dirs, check.Value(builder.Dir(t.Context(), c))(t))
	}
	return libcni.NewCNIConfigWithCacheDir(dirs, t.TempDir(), nil)
}

// paths are the fields of "ipam" that say where the agent is.
func (m *machine) paths() string {
	return fmt.Sprintf(`"socket":%q,"spool":%q`, m.socket, filepath.Join(filepath.Dir(m.socket), "spool"))
}

// macvlan is a configuration of macvlan on a parent, with more fields, and with more fields of "ipam".
func (m *machine) macvlan(parent, fields string, ipam ...string) string {
	return fmt.Sprintf(`{"type":"macvlan","master":%q,"mode":"bridge",%s"ipam":{"type":"fenceline",%s}}`, parent, fields,
		strings.Join(append(ipam, m.paths()), ","))
}

// chain makes an interface of a pod by a list of plugins, and takes it away at the end. args are more
// CNI_ARGS.
func (m *machine) chain(t *testing.T, pod agentapi.AddRequest, iface, configs string, args ...[2]string) (*types100.Result, error) {
	t.Helper()
	list := check.Value(libcni.ConfListFromBytes(fmt.Appendf(nil, `{"cniVersion":"1.1.0","name":"underlay","plugins":[%s]}`, configs)))(t)
	attachment := &libcni.RuntimeConf{ContainerID: pod.ContainerID, NetNS: pod.NetNS, IfName: iface, Args: append([][2]string{
		{"IgnoreUnknown", "1"}, {"K8S_POD_NAMESPACE", pod.Pod.Namespace}, {"K8S_POD_NAME", pod.Pod.Name}, {"K8S_POD_UID", pod.Pod.UID},
	}, args...)}
	answer, err := m.cni.AddNetworkList(t.Context(), list, attachment)
	t.Cleanup(func() { check.OK(t, m.cni.DelNetworkList(context.Background(), list, attachment)) })
	if err != nil {
		return nil, err
	}
	return types100.NewResultFromResult(answer)
}

// plug makes an interface of a pod on a parent by macvlan alone.
func (m *machine) plug(t *testing.T, pod agentapi.AddRequest, iface, parent string, ipam ...string) netip.Addr {
	t.Helper()
	result := check.Value(m.chain(t, pod, iface, m.macvlan(parent, "", ipam...)))(t)
	addr, _ := netip.AddrFromSlice(result.IPs[0].Address.IP)
	return addr.Unmap()
}

// routes looks at the pod's own table, after the plugins that write it.
func (m *machine) routes(t *testing.T) {
	gateway := func(addr string) func(*v1alpha1.IPPool) {
		return func(p *v1alpha1.IPPool) { p.Spec.Gateway = &addr }
	}
	m.pool(t, "routed", 80, gateway("10.70.80.1"), func(p *v1alpha1.IPPool) {
		p.Spec.Routes = []v1alpha1.Route{{Dst: "10.8.0.0/16", Gw: "10.70.80.254"}, {Dst: "10.9.0.0/16"}}
	})
	m.pool(t, "routed-too", 81, gateway("10.70.81.1"), func(p *v1alpha1.IPPool) {
		p.Spec.Routes = []v1alpha1.Route{{Dst: "172.20.0.0/16"}}
	})
	m.pool(t, "routed-6", 0, v6("fd70:80::/64"), gateway("fd70:80::1"))
	m.part(t, "of the pools, of the pod in place of the pool's, and one default route of a family", func(t *testing.T) {
		pod, ns := m.unplugged(saying("k8s.v1.cni.cncf.io/networks", "lan"),
			saying("ipam.fenceline.io/ippools", `[{"interface":"eth0","ipv4":["routed"],"ipv6":["routed-6"]},{"interface":"net1","ipv4":["routed-too"]}]`),
			saying("ipam.fenceline.io/routes", `[{"dst":"10.8.0.0/16","gw":"10.70.80.7"},{"dst":"10.10.0.0/16","gw":"10.70.81.7"}]`))
		m.plug(t, pod, "eth0", m.parent)
		m.plug(t, pod, "net1", m.parent)
		check.Equal(t, gateways(t, ns), "0.0.0.0/0 10.70.80.1 eth0, 10.10.0.0/16 10.70.81.7 net1, 10.8.0.0/16 10.70.80.7 eth0, "+
			"10.9.0.0/16 10.70.80.1 eth0, 172.20.0.0/16 10.70.81.1 net1, ::/0 fd70:80::1 eth0", "got")
	})

	m.part(t, "of a configuration of another IPAM, and an event names its fields without effect", func(t *testing.T) {
		pod, ns := m.unplugged(saying("ipam.fenceline.io/ippools", `[{"interface":"eth0","ipv4":["routed"]}]`))
		m.plug(t, pod, "eth0", m.parent, `"clean_gateway":true`, `"rangeStart":"10.70.80.9"`,
			`"routes":[{"dst":"0.0.0.0/0"},{"dst":"10.11.0.0/16","gw":"10.70.80.9"}]`)
		const want = "10.11.0.0/16 10.70.80.9 eth0, 10.8.0.0/16 10.70.80.254 eth0, 10.9.0.0/16 10.70.80.1 eth0"
		check.Equal(t, gateways(t, ns), want, "got")
		m.told(pod, "ConfigurationIgnored", "ipam.rangeStart (use ips of a pool)")
	})
}

// gateways lists the routes with a gateway as "destination gateway interface".
func gateways(t *testing.T, ns *network.Namespace) string {
	t.Helper()
	var found []string
	for _, family := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
		routes := check.Value(ns.Links().RouteList(nil, family))(t)
		for _, r := range routes {
			if r.Gw == nil {
				continue
			}
			link := check.Value(ns.Links().LinkByIndex(r.LinkIndex))(t)
			found = append(found, r.Dst.String()+" "+r.Gw.String()+" "+link.Attrs().Name)
		}
	}
	slices.Sort(found)
	return strings.Join(found, ", ")
}

// vlans shows that probes leave through the interface that the pod's link hangs on, untagged by us,
// whatever spec.vlan says. The second parent stands for a VLAN's interface, which tags by itself.
func (m *machine) vlans(t *testing.T) {
	other := m.parent + "v"
	m.cable(t, other)
	five := int64(5)
	m.pool(t, "vlan", 82, func(p *v1alpha1.IPPool) { p.Spec.Vlan = &five })
	for _, parents := range [][2]string{{m.parent, other}, {other, m.parent}} {
		here, elsewhere := listen(t, parents[0]+"p"), listen(t, parents[1]+"p")
		pod, _ := m.unplugged(from("vlan"))
		addr := m.plug(t, pod, "eth0", parents[0])
		check.That(t, probed(t, here, addr, seen), "%s was not probed, untagged, on the parent", addr)
		check.That(t, !probedBefore(t, elsewhere, parents[1], addr), "%s was probed on another parent", addr)
	}
}

// listen receives untagged ARP frames.
func listen(t *testing.T, iface string) *packet.Conn {
	t.Helper()
	link := check.Value(net.InterfaceByName(iface))(t)
	conn := check.Value(packet.Listen(link, packet.Datagram, unix.ETH_P_ARP, nil))(t)
	t.Cleanup(func() { conn.Close() })
	return conn
}

// probed reports whether an ARP probe for an address has come, or comes within d.
func probed(t *testing.T, conn *packet.Conn, addr netip.Addr, d time.Duration) bool {
	t.Helper()
	return nextProbe(t, conn, d, addr) == addr
}

// probedBefore reports whether an ARP probe for an address has left a parent up to now: before a probe
// for another address, which it sends.
func probedBefore(t *testing.T, conn *packet.Conn, parent string, addr netip.Addr) bool {
	t.Helper()
	link := check.Value(net.InterfaceByName(parent))(t)
	last := netip.MustParseAddr("192.0.2.9")
	probe := check.Value(frames.Probe(link.HardwareAddr, nil, last))(t)
	out, err := packet.Listen(link, packet.Raw, 0, nil)
	check.OK(t, err)
	defer out.Close()
	_, err = out.WriteTo(probe, &packet.Addr{HardwareAddr: probe[:6]})
	check.OK(t, err)
	next := nextProbe(t, conn, seen, addr, last)
	check.Must(t, next.IsValid(), "the last probe of %s has not come", parent)
	return next == addr
}

// nextProbe waits for an ARP probe for one of some addresses. It returns the zero Addr if none comes
// within d.
func nextProbe(t *testing.T, conn *packet.Conn, d time.Duration, of ...netip.Addr) netip.Addr {
	t.Helper()
	check.OK(t, conn.SetReadDeadline(time.Now().Add(d)))
	payload := make([]byte, 128)
	for {
		n, _, err := conn.ReadFrom(payload)
		if os.IsTimeout(err) {
			return netip.Addr{}
		}
		check.OK(t, err)
		frame := arp.Packet{}
		check.OK(t, frame.UnmarshalBinary(payload[:n]))
		if frame.SenderIP.IsUnspecified() && slices.Contains(of, frame.TargetIP) {
			return frame.TargetIP
		}
	}
}
