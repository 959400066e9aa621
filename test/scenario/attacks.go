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
	"strings"
	"text/tabwriter"
	"time"

	"github.com/mdlayher/arp"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/test/capture"
	"github.com/fenceline/fenceline/test/cluster"
)

// strikes is how often each frame of an attack is sent.
const strikes = 3

// way is a path of frames out of the pod.
type way struct {
	name    string
	session *cluster.Session
	// bypass is set if frames skip the queue of the interface, past if they also pass the guard there. Those are judged
	// by their MAC later. No frame passes the guard at the node's end of a port of a bridge.
	bypass, past bool
}

// playAttacks: no frame of a pod with NET_RAW that pretends to be another host arrives, and each is
// counted under its reason.
func playAttacks(ctx context.Context, a *act) {
	s := a.stageSiege(ctx)
	s.story.Say("Pod attacker has %s and %s, and no capability but NET_RAW. Each frame is sent %d times.", s.own.four, s.own.six, strikes)
	through, past := &way{name: "by a raw socket"}, &way{name: "by a raw socket past the queue", bypass: true, past: !a.Options.Bridged}
	began := time.Now()
	s.open(ctx, through)
	s.attackBy(ctx, through)
	if past.past {
		s.allow(ctx, past)
	} else {
		s.open(ctx, past)
	}
	s.attackBy(ctx, past)
	s.nothingLost(ctx, began)
	if past.past {
		s.remains(ctx, past)
	}
	s.noneArrived()
}

// open starts the program in the pod that sends frames this way.
func (s *siege) open(ctx context.Context, w *way) {
	command := []string{"/app", "frames", cluster.PodInterface}
	if w.bypass {
		command = slices.Insert(command, 2, "-bypass")
	}
	w.session = value(s.Exec(ctx, s.namespace, s.attacker.Name, command...))
	s.after("end the frames "+w.name, func(context.Context) { w.session.Close() })
}

// allow judges that the pod gets no socket that skips its guard, before its pools allow it.
func (s *siege) allow(ctx context.Context, past *way) {
	opens := func() error {
		s.open(ctx, past)
		own := ownFrames(s.own, s.victims[2])[0](s.mark(allowed + "the first frame, " + past.name))
		_, err := past.session.Ask(hex.EncodeToString(own))
		return err
	}
	err := opens()
	must(err != nil && strings.Contains(err.Error(), unix.EPERM.Error()), "a socket that skips the guard: %v", err)
	s.story.Say("A raw socket past the queue is refused: %v.", unix.EPERM)
	for _, pool := range []string{s.namespace, s.namespace + "-v6"} {
		s.editPool(ctx, pool, func(spec *v1alpha1.IPPoolSpec) {
			spec.SourceGuardAllow = &v1alpha1.SourceGuardAllow{Roles: []v1alpha1.SourceGuardRole{v1alpha1.RoleDirectTransmit}}
		})
	}
	eventually(ctx, eventLimit, "a raw socket past the queue", func(context.Context) { check(opens()) })
	s.story.Say("The pools allow it by the role %s.", v1alpha1.RoleDirectTransmit)
}

// attackBy sends all attacks this way, and the pod's own frames before and after them.
func (s *siege) attackBy(ctx context.Context, w *way) {
	s.isItself(ctx, w)
	var table bytes.Buffer
	columns := tabwriter.NewWriter(&table, 0, 0, 2, ' ', 0)
	header := []string{"frame"}
	for _, v := range s.victims {
		header = append(header, v.name)
	}
	fmt.Fprintln(columns, strings.Join(header, "\t"))
	before := counted(ctx, s.attacker)
	for _, k := range attacks() {
		if w.past && k.forged {
			continue // see remains
		}
		row := []string{k.kind}
		for _, v := range s.victims {
			var after counts
			during(func() { after = s.strike(ctx, w, k, v, before) }, "%s of the %s, %s", k.kind, v.name, w.name)
			row, before = append(row, after.since(before).String()), after
		}
		fmt.Fprintln(columns, strings.Join(row, "\t"))
	}
	check(columns.Flush())
	s.isItself(ctx, w)
	s.story.Show("frames "+w.name+": dropped, and counted as", table.String())
}

// strike sends an attack, and judges how it is counted. It returns the counts after it.
func (s *siege) strike(ctx context.Context, w *way, k attack, victim party, before counts) (after counts) {
	frame := k.frame(s.own, victim, s.mark(fmt.Sprintf("%s of the %s, %s", k.kind, victim.name, w.name)))
	dropped := s.shoot(w.session, slices.Repeat([][]byte{frame}, strikes)...)
	if !w.past && !s.Options.Bridged && dropped != strikes { // nobody tells the sender of drops at the node's end
		fail("of %d frames, the kernel says to have dropped %d", strikes, dropped)
	}
	reason, want := k.reason(victim.name == s.sibling.Name), strikes
	if w.past && frame[0]&1 == 1 {
		want = 2 * strikes // a group's frame is dropped on the parent, and on the interface of the sibling
	}
	eventually(ctx, clientLimit, fmt.Sprintf("%d frames that are counted as %s", want, reason), func(ctx context.Context) {
		after = counted(ctx, s.attacker)
		must(after.since(before)[reason] >= want, "counted: %s", after.since(before))
	})
	grown := after.since(before)
	must(len(grown) == 1 && grown[reason] == want, "counted: %s, not %d %s", grown, want, reason)
	return after
}

// isItself sends the pod's own frames. It judges that each arrives on the underlay and at the
// sibling, and that none is counted.
func (s *siege) isItself(ctx context.Context, w *way) {
	before := counted(ctx, s.attacker)
	for n, frame := range ownFrames(s.own, s.victims[2]) {
		what := fmt.Sprintf("%sown frame %d, %s, mark %d", allowed, n, w.name, len(s.sent))
		during(func() {
			must(s.shoot(w.session, frame(s.mark(what))) == 0, "the kernel says to have dropped it")
			s.arrives(ctx, what)
		}, "%s", what)
	}
	after := counted(ctx, s.attacker)
	must(len(after.since(before)) == 0, "own frames of the pod were counted: %s", after.since(before))
}

// allowed begins the description of the frames that may arrive.
const allowed = "allowed: "

// arrives waits until a frame has come to the underlay and to the sibling.
func (s *siege) arrives(ctx context.Context, what string) {
	ctx, cancel := context.WithTimeout(ctx, eventLimit)
	defer cancel()
	_, err := s.capture.Wait(ctx, func(f capture.Frame) bool { return s.marked(f.Payload) == what })
	did(err, "it did not come to the underlay")
	eventually(ctx, eventLimit, "it at the sibling", func(context.Context) {
		frames := s.ear.heard()
		must(slices.ContainsFunc(frames, func(f []byte) bool { return s.marked(f) == what }), "it is none of %d frames", len(frames))
	})
}

// nothingLost judges that hosts reach the pods as if there were no attack.
func (s *siege) nothingLost(ctx context.Context, began time.Time) {
	end, pings := time.Now(), 0
	eventually(ctx, clientLimit, "an answer to each ping", func(context.Context) {
		pings = 0
		for _, p := range s.pings.all() {
			if p.sent.Before(began) || p.sent.After(end) {
				continue
			}
			pings++
			must(!p.answered.IsZero(), "%s did not answer the ping of %s", p.addr, p.sent.Format(time.StampMilli))
		}
	})
	s.story.Say("Meanwhile a host pinged the attacker, its sibling and the remote pod %d times. No ping was lost.", pings)
}

// noneArrived judges that no frame of an attack has come to the underlay or through the guard of the sibling.
func (s *siege) noneArrived() {
	var arrived []string
	comes := func(frame []byte, where string) {
		if what := s.marked(frame); what != "" && !strings.HasPrefix(what, allowed) {
			arrived = append(arrived, where+": "+what)
		}
	}
	for _, f := range value(s.capture.Stop()) {
		comes(f.Payload, "on the underlay")
	}
	for _, f := range s.ear.heard() {
		comes(f, "at the sibling")
	}
	must(len(arrived) == 0, "%d frames of the attacker arrived: %s", len(arrived), strings.Join(slices.Compact(arrived), "; "))
	s.story.Say("Of the frames of the tables, none came to the underlay or to the sibling. All of the attacker's own frames did.")
}

// siege is a pod that attacks others on the underlay with raw frames.
type siege struct {
	*act
	attacker, sibling, remote *cluster.Pod
	host                      *cluster.Host
	// own is the attacker. victims are the columns of the table: remote, sibling, gateway.
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
	s.chooseVictims()
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
	capabilities := &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}, Add: []corev1.Capability{"NET_RAW"}}
	p.Spec.Containers[0].SecurityContext = &corev1.SecurityContext{Capabilities: capabilities}
}

// chooseVictims collects the parties on the underlay.
func (s *siege) chooseVictims() {
	s.host = s.foreignHost("printer", netip.PrefixFrom(s.address(250), underlay.Bits()))
	gateway := party{name: "gateway", four: s.Options.Gateways[0].Addr(), six: s.Options.Gateways[1].Addr()}
	gateway.mac = s.neighbour(gateway.four)
	s.own = partyOf(s.attacker)
	s.victims = []party{partyOf(s.remote), partyOf(s.sibling), gateway}
}

func partyOf(pod *cluster.Pod) party {
	must(len(pod.IPs) == 2, "pod %s has the addresses %v, not one of each family", pod.Name, pod.IPs)
	return party{pod.Name, macOf(pod), pod.IPs[0], pod.IPs[1]}
}

// neighbour returns the MAC that the host has learnt for an address.
func (s *siege) neighbour(addr netip.Addr) net.HardwareAddr {
	did((place{"host", s.host.Namespace}).ping(addr), "ping %s from the host", addr)
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

// counted returns the frames of a pod that were dropped up to now, with the claims of all pods of its node.
func counted(ctx context.Context, pod *cluster.Pod) counts {
	m := scraped(ctx, pod.Node, agentMetrics)
	all := counts{}
	also := []string{"fenced", "link-local", "unspecified"}
	for _, reason := range append(also, whyEther, whySender, whyUnleased, whySlot, whyRouter, whyDHCP, whyTagged, whyBridge, whyMalformed) {
		n, _ := m.Sum("fenceline_source_guard_frames_total",
			map[string]string{"namespace": pod.Namespace, "pod": pod.Name, "result": "dropped", "reason": reason})
		all[reason] = int(n)
	}
	n, _ := m.Sum("fenceline_claims_received_total", map[string]string{"result": whyFromPod})
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

// remains sends frames with a forged MAC past the guard, where only the MAC shows their sender.
// SECURITY.md lists the promises.
func (s *siege) remains(ctx context.Context, w *way) {
	chronicle, sibling := s.keepChronicle(ctx, s.namespace), s.victims[1]
	s.isNoticed(ctx, w, chronicle, s.victims[0])
	s.isNoticed(ctx, w, chronicle, sibling)
	s.isTakenForSibling(ctx, w, sibling)
}

// isNoticed announces a pod's address with a MAC of nobody. If the frame comes to the underlay, the
// lease of the address must name the MAC.
func (s *siege) isNoticed(ctx context.Context, w *way, c *chronicle, v party) {
	strange, sent := net.HardwareAddr{2, 0, 0, 0xf, 0xe, 0xe}, time.Now()
	passed := s.passes(ctx, w, allowed+"gratuitous ARP with a MAC of nobody for the "+v.name, func(mark []byte) []byte {
		return shout(party{mac: strange}, unix.ETH_P_ARP, arpOf(arp.OperationReply, strange, v.four, v.four), mark)
	})
	noticed := "It is stopped."
	if passed {
		c.wait(ctx, clientLimit, v.four, sent, "Bound with a conflict", func(e entry) bool {
			return e.Spec.State == v1alpha1.StateBound && e.Spec.Conflict != nil && e.Spec.Conflict.MAC == strange.String()
		})
		noticed = "It comes to the underlay, and the lease names the MAC."
	}
	s.story.Say("Past the queue, with a MAC of nobody: gratuitous ARP for %s of pod %s. %s", v.four, v.name, noticed)
}

// isTakenForSibling sends with the MAC of the sibling. The frame is judged as the sibling's, so it
// must not carry the attacker's address.
func (s *siege) isTakenForSibling(ctx context.Context, w *way, sibling party) {
	before := counted(ctx, s.sibling)
	udp := func(source netip.Addr) func([]byte) []byte {
		return func(mark []byte) []byte {
			return shout(sibling, unix.ETH_P_IP, packet4(source, allHosts, datagram(9, 9, mark)))
		}
	}
	passed := s.passes(ctx, w, "UDP of the attacker with the MAC of the sibling", udp(s.own.four))
	grown := counted(ctx, s.sibling).since(before)
	must(!passed && grown[whySlot] > 0 && len(grown) == 1,
		"own address with the MAC of the sibling: on the underlay %t, counted: %s", passed, grown)
	s.story.Say("Past the queue, with the MAC of the sibling: UDP from the attacker's address is dropped, and counted for the sibling: %s.", grown)
	passed = s.passes(ctx, w, allowed+"UDP of the sibling with its MAC", udp(sibling.four))
	s.story.Say("The same from the sibling's address cannot be told from the sibling's frames. On the underlay: %t.", passed)
}

// passes reports whether a frame has come to the underlay before an own frame that follows it.
func (s *siege) passes(ctx context.Context, w *way, what string, frame func(mark []byte) []byte) bool {
	s.shoot(w.session, frame(s.mark(what)))
	s.isItself(ctx, w)
	return slices.ContainsFunc(s.capture.Frames(), func(f capture.Frame) bool { return s.marked(f.Payload) == what })
}

// ear receives the frames that pass the guard of a pod's interface. It has a socket for each
// protocol, since a socket of all protocols receives a frame before the guard has judged it.
type ear struct {
	pod     *cluster.Pod
	sockets []int
	frames  [][]byte
}

// listen opens an ear in a pod until the end of the scenario.
func (a *act) listen(pod *cluster.Pod) *ear {
	ns := value(pod.Enter())
	defer ns.Close()
	e := &ear{pod: pod}
	for _, protocol := range []uint16{unix.ETH_P_ARP, unix.ETH_P_IP, unix.ETH_P_IPV6, capture.TypeClaim, unix.ETH_P_LLDP} {
		socket := value(ns.PacketSocket(protocol, unix.SOCK_NONBLOCK))
		a.after("close a socket in pod "+pod.Name, func(context.Context) { check(unix.Close(socket)) })
		e.sockets = append(e.sockets, socket)
		const size = 4 << 20
		did(unix.SetsockoptInt(socket, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, size), "listen in pod %s", pod.Name)
	}
	return e
}

// heard returns all frames that have arrived from other hosts. It fails if the kernel lost one.
func (e *ear) heard() [][]byte {
	for _, socket := range e.sockets {
		did(e.drain(socket), "listen in pod %s", e.pod.Name)
	}
	return e.frames
}

func (e *ear) drain(socket int) error {
	data := make([]byte, 2048)
	for {
		n, from, err := unix.Recvfrom(socket, data, 0)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if errors.Is(err, unix.EAGAIN) {
			break
		}
		if err != nil {
			return err
		}
		if link, ok := from.(*unix.SockaddrLinklayer); ok && link.Pkttype != unix.PACKET_OUTGOING {
			e.frames = append(e.frames, append([]byte(nil), data[:n]...))
		}
	}
	lost, err := unix.GetsockoptTpacketStats(socket, unix.SOL_PACKET, unix.PACKET_STATISTICS)
	if err == nil && lost.Drops > 0 {
		err = fmt.Errorf("%d frames were lost", lost.Drops)
	}
	return err
}
