// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/test/capture"
	"github.com/fenceline/fenceline/test/cluster"
)

// siege is a pod that attacks others on the underlay with raw frames.
type siege struct {
	*act
	attacker, sibling, remote *cluster.Pod
	host                      *cluster.Host
	// own is the attacker. victims are the columns of the table: remote, sibling, gateway, host, free.
	own     party
	victims []party
	capture *capture.Capture
	ear     *ear
	pings   *pinger
	// sent describes the frames of each mark.
	sent []string
}

// stageSiege runs the pods and the host, and begins to listen.
func (a *act) stageSiege(ctx context.Context) *siege {
	must(len(a.Options.Gateways) == 2, "the cluster needs a router for both families")
	a.makePool(ctx, 4, nil)
	six := v1alpha1.IPPoolSpec{Subnet: underlay6.String(), IPs: a.ips6(4), Default: ptr.To(true)}
	a.addPool(ctx, a.namespace+"-v6", six)
	s := &siege{act: a}
	s.runPods(ctx)
	s.chooseVictims(ctx)
	s.capture = a.record()
	s.ear = a.listen(s.sibling)
	s.pings = a.ping(s.host, addressOf(s.sibling), addressOf(s.remote), addressOf(s.attacker))
	return s
}

// runPods starts the attacker with a pod beside it, and a pod on another node.
func (s *siege) runPods(ctx context.Context) {
	s.startPod(ctx, "attacker", s.Node(1), onlyNetRaw)
	s.startPod(ctx, "sibling", s.Node(1), nil)
	s.startPod(ctx, "remote", s.Node(2), nil)
	s.attacker, s.sibling, s.remote = s.pod(ctx, "attacker"), s.pod(ctx, "sibling"), s.pod(ctx, "remote")
}

// onlyNetRaw takes all other capabilities from a pod.
func onlyNetRaw(p *corev1.Pod) {
	p.Spec.Containers[0].SecurityContext = &corev1.SecurityContext{
		Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}, Add: []corev1.Capability{"NET_RAW"}},
	}
}

// chooseVictims collects the parties on the underlay.
func (s *siege) chooseVictims(ctx context.Context) {
	const hostNumber, freeNumber = 250, 99
	s.host = s.foreignHost("printer", netip.PrefixFrom(s.address(hostNumber), underlay.Bits()))
	gateway := party{name: "gateway", four: s.Options.Gateways[0].Addr(), six: s.Options.Gateways[1].Addr()}
	gateway.mac = s.neighbour(ctx, gateway.four)
	s.own = partyOf(s.attacker)
	s.victims = []party{
		partyOf(s.remote), partyOf(s.sibling), gateway,
		{"host", s.host.MAC, s.host.Addr, s.address6(hostNumber)},
		{"free address", strangeMAC(), s.address(freeNumber), s.address6(freeNumber)},
	}
}

// strangeMAC is a MAC that no host has.
func strangeMAC() net.HardwareAddr { return net.HardwareAddr{2, 0, 0, 0xf, 0xe, 0xe} }

func partyOf(pod *cluster.Pod) party {
	must(len(pod.IPs) == 2, "pod %s has the addresses %v, not one of each family", pod.Name, pod.IPs)
	return party{pod.Name, macOf(pod), pod.IPs[0], pod.IPs[1]}
}

// neighbour returns the MAC that the host has learnt for an address.
func (s *siege) neighbour(ctx context.Context, addr netip.Addr) net.HardwareAddr {
	did((place{"host", s.host.Namespace}).ping(ctx, addr), "ping %s from the host", addr)
	known, err := s.host.Links().NeighList(0, netlink.FAMILY_V4)
	did(err, "list the neighbours of the host")
	i := slices.IndexFunc(known, func(n netlink.Neigh) bool { return n.IP.Equal(addr.AsSlice()) && len(n.HardwareAddr) == 6 })
	must(i >= 0, "the host does not know the MAC of %s: %v", addr, known)
	return known[i].HardwareAddr
}

// mark returns the next mark, for frames with this description.
func (s *siege) mark(what string) []byte {
	s.sent = append(s.sent, what)
	return binary.BigEndian.AppendUint16([]byte("mark"), uint16(len(s.sent)-1))
}

// marked returns the description of a frame of the attacker, or "" for any other frame.
func (s *siege) marked(frame []byte) string {
	_, behind, found := bytes.Cut(frame, []byte("mark"))
	if !found || len(behind) < 2 || int(binary.BigEndian.Uint16(behind)) >= len(s.sent) {
		return ""
	}
	return s.sent[binary.BigEndian.Uint16(behind)]
}

// shoot sends frames and returns the number of those that the kernel reports as dropped.
func (s *siege) shoot(session *cluster.Session, frames ...[]byte) (dropped int) {
	var lines []string
	for _, f := range frames {
		lines = append(lines, hex.EncodeToString(f))
	}
	for _, answer := range value(session.Ask(lines...)) {
		if answer == "dropped" {
			dropped++
		}
	}
	return dropped
}

// counts are dropped frames by their reason.
type counts map[string]int

// counted returns the frames of a pod that were dropped up to now, with the claims of all pods of its
// node.
func counted(ctx context.Context, pod *cluster.Pod) counts {
	m := scrape(ctx, pod.Node, agentMetrics)
	all := counts{}
	for _, reason := range []string{
		whyEther, whySender, whyUnleased, whySlot, whyRouter, whyDHCP, whyTagged, whyBridge, whyMalformed,
		"fenced", "link-local", "unspecified",
	} {
		n, _ := m.sum("fenceline_source_guard_frames_total",
			map[string]string{"namespace": pod.Namespace, "pod": pod.Name, "result": "dropped", "reason": reason})
		all[reason] = int(n)
	}
	n, _ := m.sum("fenceline_claims_received_total", map[string]string{"result": whyFromPod})
	all[whyFromPod] = int(n)
	return all
}

// since returns the counts that have grown, with their growth.
func (c counts) since(before counts) counts {
	grown := maps.Clone(c)
	for reason, n := range before {
		grown[reason] -= n
	}
	maps.DeleteFunc(grown, func(_ string, n int) bool { return n == 0 })
	return grown
}

func (c counts) String() string {
	var text []byte
	for _, reason := range slices.Sorted(maps.Keys(c)) {
		text = fmt.Appendf(text, "%d %s ", c[reason], reason)
	}
	if len(text) == 0 {
		return "nothing"
	}
	return string(text[:len(text)-1])
}
