// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/test/capture"
	"github.com/fenceline/fenceline/test/cluster"
)

// door is the host link of a pod, its second way out. Its other end is the pod's node.
type door struct {
	*act
	pod        *cluster.Pod
	inside, at place // the pod and its node
	management *capture.Capture
	// ear receives the datagrams that arrive at the node. An answer would prove less: the node would
	// send it to the new holder of the address.
	ear net.PacketConn
}

const (
	// early and late are texts of the pod to its node before and after its address was taken.
	early, late = "early", "late"
	// hearing is how long the node listens for a datagram of its own pod.
	hearing = 100 * time.Millisecond
)

// behindRouter gives a pool the cluster's router as its gateway, if there is one.
func (a *act) behindRouter(s *v1alpha1.IPPoolSpec) {
	if len(a.Options.Gateways) > 0 {
		gateway := a.Options.Gateways[0].Addr().String()
		s.Gateway = &gateway
	}
}

// openDoor checks that node and pod reach each other, so that silence later is evidence.
func (a *act) openDoor(ctx context.Context, pod *cluster.Pod) *door {
	d := &door{act: a, pod: pod, at: placeOfNode(pod.Node)}
	d.inside = a.placeOf(pod)
	d.management = a.recorded(a.CaptureManagement())
	eventually(ctx, eventLimit, "the way from pod "+pod.Name+" to its node", func(ctx context.Context) {
		check(d.inside.ping(nodeAddr(pod.Node, 0)))
	})
	check(d.at.ns.Do(func() (err error) {
		d.ear, err = net.ListenPacket("udp", netip.AddrPortFrom(nodeAddr(pod.Node, 0), 0).String())
		return err
	}))
	a.after("end the listener on "+pod.Node.Name(), func(context.Context) { check(d.ear.Close()) })
	eventually(ctx, eventLimit, "a datagram of pod "+pod.Name+" at its node", func(ctx context.Context) {
		d.say(ctx, early)
		must(d.hears(early), "none has arrived")
	})
	d.leadsTo(ctx, pod)
	return d
}

// say sends a datagram from the pod to its node.
func (d *door) say(ctx context.Context, text string) {
	conn := value(d.inside.dial(ctx, "udp", d.ear.LocalAddr().(*net.UDPAddr).AddrPort()))
	defer conn.Close()
	value(io.WriteString(conn, text))
}

// hears reports whether a datagram with that text has arrived at the node.
func (d *door) hears(text string) bool {
	check(d.ear.SetReadDeadline(time.Now().Add(hearing)))
	heard := make([]byte, len(early)+1)
	for {
		if n, _, err := d.ear.ReadFrom(heard); err != nil || string(heard[:n]) == text {
			return err == nil
		}
	}
}

// leadsTo waits until the node reaches the pod, the old one or the new holder, by the address.
func (d *door) leadsTo(ctx context.Context, pod *cluster.Pod) {
	to := netip.AddrPortFrom(addressOf(d.pod), httpPort)
	eventually(ctx, eventLimit, fmt.Sprintf("the way from %s to pod %s", d.at.name, pod.Name), func(ctx context.Context) {
		got := value(d.at.get(ctx, to))
		must(got.pod == pod.Name, "pod %s answered", got.pod)
	})
	d.story.Say("The node of pod %s reaches pod %s by %s.", d.pod.Name, pod.Name, to.Addr())
}

// isShut judges that the old pod reaches nothing by its host link, and that none of its frames has left
// the node by the management network since then.
func (d *door) isShut(ctx context.Context, since time.Time) {
	d.say(ctx, late)
	must(!d.hears(late), "a datagram of pod %s reached its node by the host link, though its address was taken", d.pod.Name)
	var trying sync.WaitGroup
	var pinged, dialled error
	trying.Go(func() { pinged = d.inside.ping(nodeAddr(d.pod.Node, 0)) })
	trying.Go(func() { _, dialled = d.inside.dial(ctx, "tcp", netip.AddrPortFrom(d.APIServerService(), 443)) })
	trying.Wait()
	must(pinged != nil, "pod %s reaches its node by the host link, though its address was taken", d.pod.Name)
	must(dialled != nil, "pod %s reaches the API server by the host link, though its address was taken", d.pod.Name)
	for _, f := range capture.SpokenFor(capture.After(d.management.Frames(), since), addressOf(d.pod)) {
		must(f.Port != "mgmt-"+d.pod.Node.Name(), "a frame of pod %s left by the management network: %s", d.pod.Name, f)
	}
	d.story.Say("By its host link, pod %s reaches neither its node nor the API server.", d.pod.Name)
}
