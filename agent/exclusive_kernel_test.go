// SPDX-License-Identifier: Apache-2.0

//go:build kernel

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/mdlayher/packet"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/cni/agentapi"
	"github.com/fenceline/fenceline/internal/frames"
	"github.com/fenceline/fenceline/test/check"
	"github.com/fenceline/fenceline/test/network"
)

// outside is a host on the other end of the parent.
type outside struct {
	*machine
	conn *packet.Conn
	// serial numbers the frames, so that none is taken for an earlier one.
	serial byte
}

// Nothing leaves by an exclusive parent but frames of the node and of its pods, also if it passes the
// guard of the interface with a MAC that no device has.
func TestExclusiveParentLetsNoForgedMACOut(t *testing.T) {
	const ownProcess = "FENCELINE_TEST_OWN_PROCESS" // a process has one registry of metrics, and so one agent
	if os.Getenv(ownProcess) == "" {
		program := check.Value(os.Executable())(t)
		again := exec.CommandContext(t.Context(), program, "-test.run=^"+t.Name()+"$")
		again.Env = append(os.Environ(), ownProcess+"=1")
		if out, err := again.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		return
	}
	m := startAs(t, func(ctx context.Context, s settings) error {
		s.exclusiveParents = []string{fmt.Sprintf("flt%d", os.Getpid())}
		return run(ctx, s)
	})
	m.pool(t, "unguarded", 95, func(p *v1alpha1.IPPool) { p.Spec.SourceGuard = v1alpha1.SourceGuardOff })
	host := check.Value(net.InterfaceByName(m.parent + "p"))(t)
	conn := check.Value(packet.Listen(host, packet.Raw, unix.ETH_P_ARP, nil))(t)
	t.Cleanup(func() { check.OK(t, conn.Close()) })
	check.OK(t, conn.SetPromiscuous(true))
	o := &outside{machine: m, conn: conn}

	pod, mac, addr := o.speaker()
	forged := net.HardwareAddr{2, 0xbd, 0, 0, 0, 1}
	o.eventually("the parent drops a forged MAC", seen, func() bool { return !o.escapes(pod, forged, mac, addr) })
	unguarded, its, its4 := o.speaker(from("unguarded"))
	o.hears("a pod without a source guard", unguarded, its, its4)

	// A new device of the node is soon known, and forgotten with its end. Its MAC is of no use to a pod.
	device := m.parent + "m"
	check.OK(t, m.here.AddMacvlan(m.parent, forged, m.here, device))
	check.OK(t, m.here.SetUp(device, true))
	node := check.Value(packet.Listen(check.Value(net.InterfaceByName(m.parent))(t), packet.Raw, unix.ETH_P_LOOP, nil))(t)
	t.Cleanup(func() { check.OK(t, node.Close()) })
	o.eventually("the MAC of a new device passes", seen, func() bool { return o.escapes(node, forged, mac, addr) })
	check.That(t, !o.escapes(pod, forged, mac, addr), "a pod uses the MAC of the node's device")
	check.OK(t, m.here.DeleteLink(device))
	o.eventually("the MAC of a device that is gone is dropped", seen, func() bool { return !o.escapes(node, forged, mac, addr) })
}

// speaker makes a pod, and returns a socket that the guard of its interface does not see.
func (o *outside) speaker(change ...func(*corev1.Pod)) (*packet.Conn, net.HardwareAddr, netip.Addr) {
	o.t.Helper()
	r, ns := o.unplugged(change...)
	check.OK(o.t, o.here.AddMacvlan(o.parent, nil, ns, r.Interface))
	answer := o.gets(o.t, r)
	conn, mac := bypass(o.t, ns, r)
	return conn, mac, answer.IPs[0].Address.Addr()
}

func bypass(t *testing.T, ns *network.Namespace, r agentapi.AddRequest) (conn *packet.Conn, mac net.HardwareAddr) {
	t.Helper()
	check.OK(t, ns.Do(func() error {
		eth0, err := netlink.LinkByName(r.Interface)
		if err != nil {
			return err
		}
		if err := netlink.LinkSetUp(eth0); err != nil {
			return err
		}
		link, err := net.InterfaceByName(r.Interface)
		if err != nil {
			return err
		}
		mac = link.HardwareAddr
		conn, err = packet.Listen(link, packet.Raw, unix.ETH_P_LOOP, nil)
		return err
	}))
	t.Cleanup(func() { check.OK(t, conn.Close()) })
	raw := check.Value(conn.SyscallConn())(t)
	var set error
	check.OK(t, raw.Control(func(fd uintptr) { set = unix.SetsockoptInt(int(fd), unix.SOL_PACKET, unix.PACKET_QDISC_BYPASS, 1) }))
	check.OK(t, set)
	return conn, mac
}

// escapes reports whether a frame with a MAC comes out, before one of the pod itself that follows it.
func (o *outside) escapes(from *packet.Conn, mac, own net.HardwareAddr, addr netip.Addr) bool {
	o.t.Helper()
	o.serial++
	suspect := announcement(o.t, mac, netip.AddrFrom4([4]byte{10, 66, 0, 200}), o.serial)
	marker := announcement(o.t, own, addr, o.serial)
	if err := broadcast(from, suspect); err != nil && !errors.Is(err, unix.ENOBUFS) { // dropped on the parent
		o.t.Fatal(err)
	}
	check.OK(o.t, broadcast(from, marker))
	escaped := false
	check.OK(o.t, o.conn.SetReadDeadline(time.Now().Add(seen)))
	for frame := make([]byte, 2048); ; {
		n, _, err := o.conn.ReadFrom(frame)
		check.OK(o.t, err)
		switch {
		case bytes.Equal(frame[:n], suspect):
			escaped = true
		case bytes.Equal(frame[:n], marker):
			return escaped
		}
	}
}

// hears waits for a frame of a pod.
func (o *outside) hears(what string, from *packet.Conn, mac net.HardwareAddr, addr netip.Addr) {
	o.t.Helper()
	check.That(o.t, o.escapes(from, mac, mac, addr), "%s: its frame does not come out", what)
}

func broadcast(from *packet.Conn, frame []byte) error {
	_, err := from.WriteTo(frame, &packet.Addr{HardwareAddr: net.HardwareAddr{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}})
	return err
}

// announcement is an ARP frame with a number in its padding.
func announcement(t *testing.T, mac net.HardwareAddr, addr netip.Addr, serial byte) []byte {
	t.Helper()
	all := check.Value(frames.Announce(mac, addr))(t)
	frame := append(bytes.Clone(all[0]), make([]byte, max(0, 60-len(all[0])))...)
	frame[59] = serial
	return frame
}

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
