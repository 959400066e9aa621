// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/hex"
	"errors"
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
	// cells are those of the tables.
	cells int
}

// stageSiege runs the pods and the host, and begins to listen.
func (a *act) stageSiege(ctx context.Context) (*siege, error) {
	if len(a.Options.Gateways) != 2 {
		return nil, errors.New("the cluster needs a router for both families")
	}
	check(a.makePool(ctx, 4, nil))
	six := v1alpha1.IPPoolSpec{Subnet: underlay6.String(), IPs: a.ips6(4), Default: ptr.To(true)}
	check(a.addPool(ctx, a.namespace+"-v6", six))
	s := &siege{act: a}
	s.runPods(ctx)
	s.chooseVictims(ctx)
	var err error
	s.capture = value(a.Capture())
	a.after("end the capture", func(context.Context) error { _, err := s.capture.Stop(); return err })
	s.ear = value(a.listen(s.sibling))
	s.pings, err = a.ping(s.host, addressOf(s.sibling), addressOf(s.remote), addressOf(s.attacker))
	return s, err
}

// runPods starts the attacker with a pod beside it, and a pod on another node.
func (s *siege) runPods(ctx context.Context) {
	pods := []struct {
		pod    **cluster.Pod
		name   string
		node   int
		change func(*corev1.Pod)
	}{
		{&s.attacker, "attacker", 1, onlyNetRaw}, {&s.sibling, "sibling", 1, nil}, {&s.remote, "remote", 2, nil},
	}
	for _, p := range pods {
		check(s.startPod(ctx, p.name, s.Node(p.node), p.change))
	}
	for _, p := range pods {
		running := value(s.running(ctx, 1, func(o *corev1.Pod) bool { return o.Name == p.name }))
		*p.pod = running[0]
	}
}

// onlyNetRaw takes all other capabilities from a pod.
func onlyNetRaw(p *corev1.Pod) {
	p.Spec.Containers[0].SecurityContext = &corev1.SecurityContext{
		Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}, Add: []corev1.Capability{"NET_RAW"}},
	}
}

// chooseVictims finds out who is on the underlay.
func (s *siege) chooseVictims(ctx context.Context) {
	const hostNumber, freeNumber = 250, 99
	s.host = value(s.foreignHost("printer", netip.PrefixFrom(s.address(hostNumber), underlay.Bits())))
	gateway := party{name: "gateway", four: s.Options.Gateways[0].Addr(), six: s.Options.Gateways[1].Addr()}
	gateway.mac = value(s.neighbour(ctx, gateway.four))
	s.own = value(partyOf(s.attacker))
	for _, pod := range []*cluster.Pod{s.remote, s.sibling} {
		victim := value(partyOf(pod))
		s.victims = append(s.victims, victim)
	}
	s.victims = append(s.victims, gateway,
		party{"host", s.host.MAC, s.host.Addr, s.address6(hostNumber)},
		party{"free address", strangeMAC(), s.address(freeNumber), s.address6(freeNumber)})
}

// strangeMAC is a MAC that nobody has.
func strangeMAC() net.HardwareAddr { return net.HardwareAddr{2, 0, 0, 0xf, 0xe, 0xe} }

func partyOf(pod *cluster.Pod) (party, error) {
	if len(pod.IPs) != 2 {
		return party{}, fmt.Errorf("pod %s has the addresses %v, not one of each family", pod.Name, pod.IPs)
	}
	mac, err := pod.MAC()
	return party{pod.Name, mac, pod.IPs[0], pod.IPs[1]}, err
}

// neighbour returns the MAC that the host has learnt for an address.
func (s *siege) neighbour(ctx context.Context, addr netip.Addr) (net.HardwareAddr, error) {
	if err := (place{"host", s.host.Namespace}).ping(ctx, addr); err != nil {
		return nil, fmt.Errorf("ping %s from the host: %w", addr, err)
	}
	known, err := s.host.Links().NeighList(0, netlink.FAMILY_V4)
	if err != nil {
		return nil, fmt.Errorf("list the neighbours of the host: %w", err)
	}
	for _, n := range known {
		if n.IP.Equal(addr.AsSlice()) && len(n.HardwareAddr) == 6 {
			return n.HardwareAddr, nil
		}
	}
	return nil, fmt.Errorf("the host does not know the MAC of %s: %v", addr, known)
}

// mark returns the next mark, for frames that are described so.
func (s *siege) mark(what string) []byte {
	s.sent = append(s.sent, what)
	return binary.BigEndian.AppendUint16([]byte("mark"), uint16(len(s.sent)-1))
}

// marked returns what a frame was sent as, or "" if it is none of the attacker's.
func (s *siege) marked(frame []byte) string {
	_, behind, found := bytes.Cut(frame, []byte("mark"))
	if !found || len(behind) < 2 || int(binary.BigEndian.Uint16(behind)) >= len(s.sent) {
		return ""
	}
	return s.sent[binary.BigEndian.Uint16(behind)]
}

// shoot sends frames and returns which of them the kernel said to have dropped.
func (s *siege) shoot(session *cluster.Session, frames ...[]byte) (dropped int, err error) {
	var lines []string
	for _, f := range frames {
		lines = append(lines, hex.EncodeToString(f))
	}
	answers, err := session.Ask(lines...)
	for _, answer := range answers {
		if answer == "dropped" {
			dropped++
		}
	}
	return dropped, err
}

// counts are dropped frames by their reason.
type counts map[string]int

// counted returns the frames of a pod that were dropped up to now, with the claims of all pods of its
// node.
func counted(ctx context.Context, pod *cluster.Pod) (counts, error) {
	m, err := scrape(ctx, pod.Node, agentMetrics)
	if err != nil {
		return nil, err
	}
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
	return all, nil
}

// since returns what has grown.
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
