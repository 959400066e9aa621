// SPDX-License-Identifier: Apache-2.0

//go:build kernel

package main

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/fenceline/fenceline/cni/agentapi"
	"github.com/fenceline/fenceline/test/check"
	"github.com/fenceline/fenceline/test/network"
)

// changedMACs shows that the guard follows the MAC that a plugin sets, with the reference plugins.
func (m *machine) changedMACs(t *testing.T) {
	m.pool(t, "macs", 85)
	macvlan := m.macvlan(m.parent, "")
	for n, c := range []struct {
		name, plugins string
		args          bool
	}{
		{"by tuning, and fenceline is last", macvlan + `,{"type":"tuning","mac":%q},{"type":"fenceline","ipam":{` + m.paths() + `}}`, false},
		{"by tuning, and fenceline is only the IPAM", macvlan + `,{"type":"tuning","mac":%q}`, false},
		{"by the configuration of macvlan", m.macvlan(m.parent, `"mac":%q,`), false},
		{"by the MAC of CNI_ARGS", macvlan, true},
		{"by the MAC of CNI_ARGS, for both", macvlan + `,{"type":"tuning","mac":%q}`, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			mac := net.HardwareAddr{0x02, 0xaa, 0, 0, 0, byte(n + 1)}
			var args [][2]string
			if c.args {
				args = [][2]string{{"MAC", mac.String()}}
			}
			pod, ns := m.unplugged(from("macs"))
			sibling, siblingNS := m.unplugged(from("macs"))
			result := check.Value(m.chain(t, pod, "eth0", strings.ReplaceAll(c.plugins, "%q", strconv.Quote(mac.String())), args...))(t)
			addr, _ := netip.AddrFromSlice(result.IPs[0].Address.IP.To4())
			m.plug(t, sibling, "eth0", m.parent)
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
	check.OK(t, m.here.AddMacvlan(m.parent, nil, ns, r.Interface))
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
	m.told(r, "ImpostorRemoved")
	again := m.lease(netip.MustParseAddr(l.Name))
	check.That(t, again != nil && again.Spec.Holder.PodUID == r.Pod.UID, "the lease of the pod is %+v", again)
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
