// SPDX-License-Identifier: Apache-2.0

//go:build kernel

package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/containernetworking/cni/libcni"
	types100 "github.com/containernetworking/cni/pkg/types/100"
	"github.com/vishvananda/netlink"
	eventsv1 "k8s.io/api/events/v1"

	"github.com/fenceline/fenceline/cni/agentapi"
	"github.com/fenceline/fenceline/test/check"
	"github.com/fenceline/fenceline/test/network"
	"github.com/fenceline/fenceline/test/thirdparty"
)

// changedMACs shows that the guard follows the MAC that a plugin sets, with the reference plugins.
func (m *machine) changedMACs(t *testing.T) {
	reference := m.plugins(t)
	builder := check.Value(thirdparty.NewBuilder(t.Output()))(t)
	tuning := check.Value(builder.Dir(t.Context(), thirdparty.CNITuning))(t)
	reference.cni.Path = append(reference.cni.Path, tuning)
	m.pool(t, "macs", 85)
	paths := fmt.Sprintf(`"socket":%q,"spool":%q`, m.socket, filepath.Join(filepath.Dir(m.socket), "spool"))
	macvlan := func(more string) string {
		return fmt.Sprintf(`{"type":"macvlan","master":%q,"mode":"bridge",%s"ipam":{"type":"fenceline",%s}}`, m.parent, more, paths)
	}
	for n, c := range []struct{ name, plugins, args string }{
		{"by tuning, and fenceline is last", macvlan("") + `,{"type":"tuning","mac":%q},{"type":"fenceline","ipam":{` + paths + `}}`, ""},
		{"by tuning, and fenceline is only the IPAM", macvlan("") + `,{"type":"tuning","mac":%q}`, ""},
		{"by the configuration of macvlan", macvlan(`"mac":%q,`), ""},
		{"by the MAC of CNI_ARGS", macvlan(""), "MAC"},
		{"by the MAC of CNI_ARGS, for both", macvlan("") + `,{"type":"tuning","mac":%q}`, "MAC"},
	} {
		t.Run(c.name, func(t *testing.T) {
			mac := net.HardwareAddr{0x02, 0xaa, 0, 0, 0, byte(n + 1)}
			config := c.plugins
			if c.args == "" || n == 4 {
				config = fmt.Sprintf(c.plugins, mac)
			}
			pod, ns := m.unplugged(saying("ipam.fenceline.io/ippool", `{"ipv4":["macs"]}`))
			sibling, siblingNS := m.unplugged(saying("ipam.fenceline.io/ippool", `{"ipv4":["macs"]}`))
			addr := reference.chain(t, pod, config, c.args, mac.String())
			reference.chain(t, sibling, macvlan(""), "", "")
			got, err := ns.MAC("eth0")
			check.Must(t, err == nil && got.String() == mac.String(), "the plugins set %v, %v", got, err)
			m.eventually("the lease names the MAC", seen, func() bool { return m.lease(addr).Spec.Holder.MAC == mac.String() })
			m.eventually("a sibling reaches the pod", seen, func() bool { return reaches(t, siblingNS, addr, mac) })
			check.OK(t, m.agent.Check(t.Context(), agentapi.CheckRequest{Attachment: pod.Attachment}))
		})
	}
}

// impostors shows that a pod which takes another MAC loses its interface, and that its event says so.
func (m *machine) impostors(t *testing.T) {
	r, ns := m.unplugged()
	m.link(t, r.NetNS, r.Interface)
	l := m.add(r)
	before := check.Value(ns.MAC("eth0"))(t)
	check.OK(t, m.agent.Check(t.Context(), agentapi.CheckRequest{Attachment: r.Attachment}))
	// Without a chained ADD, a plugin may set the MAC for some seconds. The pod sets it again and again.
	m.eventually("the pod has no interface", seen, func() bool {
		link, err := ns.Links().LinkByName("eth0")
		if _, gone := errors.AsType[netlink.LinkNotFoundError](err); gone {
			return true
		}
		check.OK(t, err)
		_ = ns.Links().LinkSetHardwareAddr(link, net.HardwareAddr{0x02, 0xbb, 0, 0, 0, before[5] ^ byte(time.Now().UnixNano()>>20)})
		return false
	})
	m.eventually("an event of the pod", seen, func() bool {
		all := &eventsv1.EventList{}
		check.OK(t, m.List(t.Context(), all))
		return slices.ContainsFunc(all.Items, func(e eventsv1.Event) bool {
			return e.Reason == "ImpostorRemoved" && e.Regarding.Name == r.Pod.Name
		})
	})
	again := m.lease(netip.MustParseAddr(l.Name))
	check.That(t, again != nil && again.Spec.Holder.PodUID == r.Pod.UID, "the lease of the pod is %+v", again)
}

// chain adds the interface eth0 of a pod by a list of plugins.
func (p plugins) chain(t *testing.T, pod agentapi.AddRequest, config, arg, value string) netip.Addr {
	t.Helper()
	list := check.Value(libcni.ConfListFromBytes(fmt.Appendf(nil, `{"cniVersion":"1.0.0","name":"underlay","plugins":[%s]}`, config)))(t)
	attachment := &libcni.RuntimeConf{ContainerID: pod.ContainerID, NetNS: pod.NetNS, IfName: "eth0", Args: [][2]string{
		{"IgnoreUnknown", "1"}, {"K8S_POD_NAMESPACE", pod.Pod.Namespace}, {"K8S_POD_NAME", pod.Pod.Name}, {"K8S_POD_UID", pod.Pod.UID},
	}}
	if arg != "" {
		attachment.Args = append(attachment.Args, [2]string{arg, value})
	}
	answer := check.Value(p.cni.AddNetworkList(t.Context(), list, attachment))(t)
	t.Cleanup(func() { check.OK(t, p.cni.DelNetworkList(context.Background(), list, attachment)) })
	result := check.Value(types100.NewResultFromResult(answer))(t)
	addr, _ := netip.AddrFromSlice(result.IPs[0].Address.IP)
	return addr.Unmap()
}

// reaches reports whether a namespace gets an ARP answer of an address, from a MAC.
func reaches(t *testing.T, from *network.Namespace, addr netip.Addr, mac net.HardwareAddr) bool {
	t.Helper()
	check.OK(t, from.Command(t.Context(), "ip", "neigh", "flush", "dev", "eth0").Run())
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	if err := from.Command(ctx, "ping", "-c", "1", "-W", "1", addr.String()).Run(); err != nil {
		_, failed := errors.AsType[*exec.ExitError](err)
		check.Must(t, failed, "%v", err)
		return false
	}
	entries := check.Value(from.Links().NeighList(0, netlink.FAMILY_V4))(t)
	for _, e := range entries {
		if e.IP.String() == addr.String() {
			return e.HardwareAddr.String() == mac.String()
		}
	}
	return false
}
