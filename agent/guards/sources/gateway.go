// SPDX-License-Identifier: Apache-2.0

package sources

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/fenceline/fenceline/agent/attachment"
	"github.com/fenceline/fenceline/agent/pod"
	"github.com/fenceline/fenceline/bpf"
)

const (
	// settled is how long one MAC alone must answer for a gateway until it is the gateway's.
	settled = 2 * time.Second
	// fresh is how long an answer counts. A new question comes after the next look.
	fresh = period
	// askPause is the least time between two questions to a gateway.
	askPause = time.Second
	// questionsAhead bounds the questions that wait. A later look asks those that are lost.
	questionsAhead = 64
)

// known is what is known of the gateway with one address on one parent. A frame alone shows
// nothing, because any host of the segment can forge it. So the gateway is asked: when its first pod
// is looked at, and when an interface of a pod has its MAC.
type known struct {
	// impostorMAC alone has answered from first to last; nil: no host or several answered last.
	mac         net.HardwareAddr
	first, last time.Time
	// answered are the hosts that answered the last question, which was asked at asked.
	answered []net.HardwareAddr
	asked    time.Time
}

// answer has the hosts that answer for a gateway.
type answer struct {
	key  bpf.Key
	macs []net.HardwareAddr
}

// isGateways reports whether an interface has the MAC by which a gateway of the entry's pools answers,
// alone and for some time. Until that is known, it has the gateway asked.
func (w *Impostors) isGateways(e *attachment.Entry, i pod.Interface) (is bool) {
	now := w.Clock.Now()
	for addr, heard := range w.Gateways(e) {
		key := bpf.Key{Segment: uint32(e.ParentIndex), Addr: addr}
		g := w.gateways[key]
		if g == nil {
			g = &known{}
			w.gateways[key] = g
		}
		suspect := bytes.Equal(i.MAC, heard) || bytes.Equal(i.MAC, g.mac)
		recent := suspect && now.Sub(g.last) < fresh
		if (g.asked.IsZero() || suspect && !(recent && g.settled())) && now.Sub(g.asked) >= askPause {
			select {
			case w.questions <- key:
				g.asked = now
			default:
			}
		}
		is = is || recent && g.settled() && bytes.Equal(i.MAC, g.mac)
		if recent && len(g.answered) > 1 && slices.ContainsFunc(g.answered, func(m net.HardwareAddr) bool { return bytes.Equal(m, i.MAC) }) {
			w.tell(e, i, fmt.Sprintf("gateway %s answers by the MAC %s of interface %s of the pod, and by others (%s): the agent removes nothing, because it does not know which is the gateway; look for a host that uses the address of the gateway",
				addr, i.MAC, i.Name, list(g.answered)))
		}
	}
	return is
}

func (g *known) settled() bool { return g.mac != nil && g.last.Sub(g.first) >= settled }

// take takes the answers of a gateway. Several hosts that answer prove nothing.
func (w *Impostors) take(a answer) {
	g, now := w.gateways[a.key], w.Clock.Now()
	if g == nil {
		return // the last pod on the parent has gone
	}
	g.answered, g.last = a.macs, now
	switch {
	case len(a.macs) != 1:
		g.mac = nil
	case !bytes.Equal(g.mac, a.macs[0]):
		g.mac, g.first = a.macs[0], now
	}
}

// ask asks the gateways of the questions, until ctx ends.
func (w *Impostors) ask(ctx context.Context, answers chan<- answer) {
	for {
		select {
		case <-ctx.Done():
			return
		case key := <-w.questions:
			macs, err := w.Ask(ctx, int(key.Segment), key.Addr)
			if err != nil {
				if ctx.Err() == nil {
					w.Log.Error(err, "a gateway was not asked; the agent tries again", "gateway", key.Addr)
				}
				continue
			}
			select {
			case <-ctx.Done():
			case answers <- answer{key, macs}:
			}
		}
	}
}

func list(macs []net.HardwareAddr) string {
	var all []string
	for _, m := range macs {
		all = append(all, m.String())
	}
	return strings.Join(all, ", ")
}
