// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"golang.org/x/net/icmp"
	"golang.org/x/net/ipv4"

	"github.com/fenceline/fenceline/test/cluster"
)

const (
	// pingEvery is the interval of the pings of a client.
	pingEvery = 50 * time.Millisecond
	// pingLimit is the time after which a ping without an answer counts as lost.
	pingLimit = time.Second
)

// ping is one echo request.
type ping struct {
	addr           netip.Addr
	sent, answered time.Time // answered is zero until it is
}

func (p ping) lost(now time.Time) bool { return p.answered.IsZero() && now.Sub(p.sent) > pingLimit }

// pinger sends echo requests to addresses again and again.
type pinger struct {
	conn  net.PacketConn
	addrs []netip.Addr
	group sync.WaitGroup

	mu    sync.Mutex
	pings []ping // by sequence number, which wraps
}

// ping starts a steady client of pings.
func (a *act) ping(host *cluster.Host, addrs ...netip.Addr) *pinger {
	p := &pinger{addrs: addrs}
	did(host.Do(func() (err error) {
		p.conn, err = net.ListenPacket("ip4:icmp", "0.0.0.0")
		return err
	}), "open an ICMP socket on host %s", host.Name)
	ctx, stop := context.WithCancel(context.Background())
	p.group.Go(func() { p.send(ctx) })
	p.group.Go(p.receive)
	a.after("stop the pings", func(context.Context) {
		stop()
		err := p.conn.Close()
		p.group.Wait()
		check(err)
	})
	return p
}

func (p *pinger) send(ctx context.Context) {
	tick := time.NewTicker(pingEvery)
	defer tick.Stop()
	for {
		for _, addr := range p.addrs {
			p.sendOne(addr)
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// sendOne records the ping even if it could not be sent: then it counts as lost.
func (p *pinger) sendOne(addr netip.Addr) {
	p.mu.Lock()
	seq := len(p.pings)
	p.pings = append(p.pings, ping{addr: addr, sent: time.Now()})
	p.mu.Unlock()
	message := icmp.Message{Type: ipv4.ICMPTypeEcho, Body: &icmp.Echo{ID: seq >> 16, Seq: seq & 0xffff}}
	data, err := message.Marshal(nil)
	if err != nil {
		return
	}
	_, _ = p.conn.WriteTo(data, &net.IPAddr{IP: addr.AsSlice()})
}

func (p *pinger) receive() {
	const protocolICMP = 1
	data := make([]byte, 1500)
	for {
		n, _, err := p.conn.ReadFrom(data)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			continue // an ICMP error for an earlier ping
		}
		message, err := icmp.ParseMessage(protocolICMP, data[:n])
		if err != nil || message.Type != ipv4.ICMPTypeEchoReply {
			continue
		}
		if echo, ok := message.Body.(*icmp.Echo); ok {
			p.answer(echo.ID<<16 | echo.Seq)
		}
	}
}

func (p *pinger) answer(seq int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if seq < len(p.pings) && p.pings[seq].answered.IsZero() {
		p.pings[seq].answered = time.Now()
	}
}

// all returns every ping up to now.
func (p *pinger) all() []ping {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.pings)
}

// waitFor waits until so many pings that are sent from now on are answered.
func (p *pinger) waitFor(ctx context.Context, count int) {
	since := time.Now()
	eventually(ctx, clientLimit, fmt.Sprintf("%d answered pings", count), func(context.Context) {
		got := 0
		for _, ping := range p.all() {
			if !ping.sent.Before(since) && !ping.answered.IsZero() {
				got++
			}
		}
		must(got >= count, "there are %d", got)
	})
}

// noneLost fails if a ping that was sent since then was lost.
func (p *pinger) noneLost(since time.Time) {
	lost := lostSince(p.all(), since, time.Now())
	must(lost == 0, "%d pings to %v were lost", lost, p.addrs)
}

// lostSince counts what was sent since then and never answered.
func lostSince(pings []ping, since, now time.Time) int {
	lost := 0
	for _, p := range pings {
		if !p.sent.Before(since) && p.lost(now) {
			lost++
		}
	}
	return lost
}
