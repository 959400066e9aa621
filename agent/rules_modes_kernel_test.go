// SPDX-License-Identifier: Apache-2.0

//go:build kernel

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/cni/pkg/types"
	"github.com/vishvananda/netlink"
	corev1 "k8s.io/api/core/v1"

	"github.com/fenceline/fenceline/agent/hostlink"
	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/cni/agentapi"
	"github.com/fenceline/fenceline/test/check"
	"github.com/fenceline/fenceline/test/network"
)

// linked makes an interface with macvlan and Fenceline chained, and takes it away at the end. fields are
// those of the chained plugin.
func (p plugins) linked(t *testing.T, pod agentapi.AddRequest, iface, fields string) error {
	t.Helper()
	return p.linkedAfter(t, pod, iface, fmt.Sprintf(`"master":%q,`, p.parent), fields)
}

// linkedAfter is linked with the fields of macvlan. Without any, there is no macvlan.
func (p plugins) linkedAfter(t *testing.T, pod agentapi.AddRequest, iface, ofMacvlan, fields string) error {
	t.Helper()
	first := ""
	if ofMacvlan != "" {
		first = `{"type":"macvlan",` + ofMacvlan + `"mode":"bridge","ipam":{"type":"fenceline","socket":%[1]q,"spool":%[2]q}},`
	}
	spool := filepath.Join(filepath.Dir(p.socket), "spool")
	list, err := libcni.ConfListFromBytes(fmt.Appendf(nil, `{"cniVersion":"1.1.0","name":"underlay","plugins":[`+first+
		`{"type":"fenceline",%[3]s"ipam":{"socket":%[1]q,"spool":%[2]q}}]}`, p.socket, spool, fields))
	check.OK(t, err)
	attachment := &libcni.RuntimeConf{ContainerID: pod.ContainerID, NetNS: pod.NetNS, IfName: iface, Args: [][2]string{
		{"IgnoreUnknown", "1"}, {"K8S_POD_NAMESPACE", pod.Pod.Namespace}, {"K8S_POD_NAME", pod.Pod.Name}, {"K8S_POD_UID", pod.Pod.UID},
	}}
	_, err = p.cni.AddNetworkList(t.Context(), list, attachment)
	t.Cleanup(func() { check.OK(t, p.cni.DelNetworkList(context.Background(), list, attachment)) })
	return err
}

// modes shows what the configuration and the pod decide about host links and tables.
func (m *machine) modes(t *testing.T) {
	macvlan := m.plugins(t)
	m.pool(t, "linked", 90)
	m.pool(t, "linked-too", 91)
	pools := saying("ipam.fenceline.io/ippools", `[{"interface":"eth0","ipv4":["linked"]},{"interface":"net1","ipv4":["linked-too"]}]`)
	two := saying("k8s.v1.cni.cncf.io/networks", "lan")
	nothing := func(*corev1.Pod) {}
	for _, c := range []struct {
		rule   string
		fields string
		asks   func(*corev1.Pod)
		want   string
	}{
		{"by default", ``, nothing, "host-eth0, table of net1"},
		{"no host link of the network", `"hostLink":false,`, nothing, "table of net1"},
		{"a host link of the pod all the same", `"hostLink":false,`, saying("ipam.fenceline.io/host-link", `[{"interface":"eth0","hostLink":true}]`), "host-eth0, table of net1"},
		{"overlay", `"mode":"overlay",`, nothing, "table of eth0, table of net1"},
		{"overlay of the pod", ``, saying("ipam.fenceline.io/mode", "overlay"), "table of eth0, table of net1"},
		{"off", `"mode":"off",`, nothing, ""},
		{"off for one interface of the pod", ``, saying("ipam.fenceline.io/mode", `[{"interface":"net1","mode":"off"}]`), "host-eth0"},
		{"a host link for each interface", ``, saying("ipam.fenceline.io/host-link", "true"), "host-eth0, host-net1, table of net1"},
	} {
		m.part(t, c.rule, func(t *testing.T) {
			pod, ns := m.unplugged(pools, two, c.asks)
			for _, iface := range []string{"eth0", "net1"} {
				check.OK(t, macvlan.linked(t, pod, iface, c.fields))
			}
			check.Equal(t, routingOf(t, ns), c.want, "the pod has")
		})
	}
	m.pool(t, "served", 92, func(p *v1alpha1.IPPool) {
		p.Spec.Subnet, p.Spec.IPs = "10.96.7.0/24", []string{"10.96.7.2-10.96.7.9"}
	})
	const wrong = agentapi.CodeInvalidNetworkConfig
	own := fmt.Sprintf(`"master":%q,`, m.parent)
	for _, c := range []struct {
		rule    string
		macvlan string
		fields  string
		asks    func(*corev1.Pod)
		code    uint // 0: macvlan itself refuses, with a code of its own
		words   []string
	}{
		{"an unknown mode", own, `"mode":"bridge",`, nothing, wrong, []string{`"mode" is "bridge"`, `"underlay"`}},
		{"a CIDR over the subnet of the pod", own, `"hostLinkCIDRs":["10.70.90.0/25"],`, nothing, wrong, []string{"10.70.90.0/25", "10.70.90.0/24"}},
		{"a service CIDR over the subnet of the pod", own, ``, saying("ipam.fenceline.io/ippools", `[{"interface":"eth0","ipv4":["served"]}]`), wrong, []string{"service CIDR 10.96.0.0/16", "subnet 10.96.7.0/24"}},
		{"an unknown mode of the pod", own, ``, saying("ipam.fenceline.io/mode", "bridge"), wrong, []string{"annotation ipam.fenceline.io/mode", `"bridge"`}},
		{"a missing parent", `"master":"missing0",`, ``, nothing, 0, []string{`type="macvlan"`, "Link not found"}},
		{"an MTU over that of the parent", own + `"mtu":9001,`, ``, nothing, 0, []string{`type="macvlan"`, "invalid MTU 9001"}},
	} {
		m.part(t, c.rule+" is refused, and leaves nothing", func(t *testing.T) {
			pod, ns := m.unplugged(pools, c.asks)
			before := hostLinks(t)
			t.Run("ADD", func(t *testing.T) {
				err := macvlan.linkedAfter(t, pod, "eth0", c.macvlan, c.fields)
				check.That(t, err != nil && contains(err.Error(), c.words), "got %v, want %q", err, c.words)
				e, ok := errors.AsType[*types.Error](err)
				check.That(t, c.code == 0 || ok && e.Code == c.code, "got %v, want code %d", err, c.code)
				check.Equal(t, routingOf(t, ns), "", "the pod has")
			})
			// The runtime has answered the refusal with a DEL.
			after := hostLinks(t)
			check.That(t, slices.Equal(before, after), "the node has %q, and had %q", after, before)
			leases := &v1alpha1.IPLeaseList{}
			check.OK(t, m.List(t.Context(), leases))
			for _, l := range leases.Items {
				h := l.Spec.Holder
				check.That(t, h == nil || h.ContainerID != pod.ContainerID, "lease %s is %s", l.Name, l.Spec.State)
			}
		})
	}
}

// noRoute: another plugin of the chain has taken the address that the routes of the host link have as
// their source.
func (m *machine) noRoute(t *testing.T) {
	macvlan := m.plugins(t)
	m.pool(t, "no-route", 86)
	pod, ns := m.unplugged(from("no-route"))
	before := hostLinks(t)
	result := check.Value(json.Marshal(macvlan.add(t, pod, "eth0", m.parent)))(t)
	eth0 := check.Value(ns.Links().LinkByName("eth0"))(t)
	addrs, err := ns.Links().AddrList(eth0, netlink.FAMILY_V4)
	check.OK(t, err)
	check.OK(t, ns.Links().AddrDel(eth0, &addrs[0]))
	err = macvlan.linkedAfter(t, pod, "eth0", "", fmt.Sprintf(`"prevResult":%s,`, result))
	words := []string{"interface eth0 of pod", "add route 10.96.0.0/16", "host-eth0"}
	check.That(t, err != nil && contains(err.Error(), words), "got %v, want %q", err, words)
	check.Equal(t, routingOf(t, ns), "", "the pod has")
	after := hostLinks(t)
	check.That(t, slices.Equal(before, after), "the node has %q, and had %q", after, before)
}

// routingOf lists the host links of a pod, and its interfaces with a table of their own.
func routingOf(t *testing.T, ns *network.Namespace) string {
	t.Helper()
	links := check.Value(ns.Links().LinkList())(t)
	rules := check.Value(ns.Links().RuleList(netlink.FAMILY_V4))(t)
	var found []string
	for _, link := range links {
		name := link.Attrs().Name
		if strings.HasPrefix(name, "host-") {
			found = append(found, name)
		}
		addrs := check.Value(ns.Links().AddrList(link, netlink.FAMILY_V4))(t)
		for _, r := range rules {
			if slices.ContainsFunc(addrs, func(a netlink.Addr) bool { return r.Src != nil && a.IP.Equal(r.Src.IP) }) {
				found = append(found, "table of "+name)
			}
		}
	}
	slices.Sort(found)
	return strings.Join(found, ", ")
}

// hostLinks lists the host links of the node.
func hostLinks(t *testing.T) []string {
	t.Helper()
	all := check.Value(net.Interfaces())(t)
	var found []string
	for _, i := range all {
		if strings.HasPrefix(i.Name, hostlink.NodePrefix) {
			found = append(found, i.Name)
		}
	}
	slices.Sort(found)
	return found
}
