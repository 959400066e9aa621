// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/net/icmp"
	"golang.org/x/net/ipv4"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/fenceline/fenceline/test/capture"
	"github.com/fenceline/fenceline/test/cluster"
	steps "github.com/fenceline/fenceline/test/must"
	"github.com/fenceline/fenceline/test/network"
)

// clientLimit is the time in which clients must get their answers.
const clientLimit = 60 * time.Second

// witness is a host on the underlay that uses an address all the time, with a capture of every frame.
type witness struct {
	host    *cluster.Host
	capture *capture.Capture
	calls   *caller
	pings   *pinger
}

// watch begins to use addresses from a foreign host and to capture. TCP connections go to the first address.
func (a *act) watch(addrs ...netip.Addr) *witness {
	return a.watchBy("client", 250, a.record(), addrs...)
}

// record captures the underlay until the end of the scenario.
func (a *act) record() *capture.Capture { return a.recorded(a.Capture()) }

// recorded ends a capture with the scenario.
func (a *act) recorded(c *capture.Capture, err error) *capture.Capture {
	check(err)
	a.after("end the capture", func(context.Context) { value(c.Stop()) })
	return c
}

// watchBy is watch from a host with that name and number, with a capture that already runs.
func (a *act) watchBy(name string, number int, running *capture.Capture, addrs ...netip.Addr) *witness {
	host := a.foreignHost(name, netip.PrefixFrom(a.address(number), underlay.Bits()))
	return &witness{host: host, capture: running, calls: a.call(host, addrs[0]), pings: a.ping(host, addrs...)}
}

// foreignHost plugs a host into the underlay that is not part of the cluster.
func (a *act) foreignHost(name string, addr netip.Prefix) *cluster.Host {
	host := value(a.ForeignHost(name, addr, nil))
	a.after("unplug host "+name, func(context.Context) { check(host.Remove()) })
	return host
}

// hears waits until the pod answers TCP. A pod may be Running before it listens.
func (w *witness) hears(ctx context.Context, pod *cluster.Pod) {
	eventually(ctx, clientLimit, "an answer of pod "+pod.Name, func(ctx context.Context) {
		name := value(greeting(ctx, w.host, addressOf(pod)))
		must(name == pod.Name, "pod %s answered", name)
	})
}

// answersARP fails unless a host answers an ARP request for the address.
func (w *witness) answersARP(ctx context.Context, addr netip.Addr) {
	value(w.host.Exec(ctx, "arping", "-q", "-f", "-c", "3", "-w", "3", "-I", "eth0", addr.String()))
}

// sendsTo waits until the host sends to the MAC of the pod. The switch records an announcement before a
// busy machine hears it. The host asks by itself when it has had no answer of the old MAC for 8 s or more.
func (w *witness) sendsTo(ctx context.Context, pod *cluster.Pod) {
	mac := macOf(pod)
	eventually(ctx, 5*callLimit, fmt.Sprintf("MAC %s of pod %s at the client", mac, pod.Name), func(ctx context.Context) {
		known := value(w.host.Exec(ctx, "ip", "neigh", "show", addressOf(pod).String()))
		must(strings.Contains(known, mac.String()), "the client knows %q", known)
	})
}

// hearsOnly waits until the pod has answered for a while, and judges that no other pod has answered since end.
func (w *witness) hearsOnly(ctx context.Context, pod *cluster.Pod, end time.Time) {
	const enough = 20
	now := time.Now()
	w.pings.waitFor(ctx, enough)
	w.calls.waitFor(ctx, pod.Name, enough, now)
	check(onlyAnswersOf(pod.Name, w.calls.heard(), end))
	w.pings.noneLost(now)
}

const (
	// callEvery is the interval of the TCP connections of a client.
	callEvery = 25 * time.Millisecond
	// callLimit is longer than a connection takes on a busy machine, and equals the time after which
	// TCP repeats a SYN.
	callLimit = time.Second
)

// answer is the result of one TCP connection.
type answer struct {
	// begun is the time of the connect, at the time of its result.
	begun, at time.Time
	// pod is the name in the answer. It is empty if there was none.
	pod string
	err error
}

// caller connects to an address again and again, each time by a new connection, and records who answers.
type caller struct {
	host *cluster.Host
	addr netip.Addr
	done chan struct{}

	mu      sync.Mutex
	answers []answer
}

// call starts a steady client of TCP connections.
func (a *act) call(host *cluster.Host, addr netip.Addr) *caller {
	ctx, stop := context.WithCancel(context.Background())
	c := &caller{host: host, addr: addr, done: make(chan struct{})}
	go c.run(ctx)
	a.after("stop the client", func(context.Context) { stop(); <-c.done })
	return c
}

func (c *caller) run(ctx context.Context) {
	defer close(c.done)
	wait.NonSlidingUntilWithContext(ctx, func(ctx context.Context) {
		begun := time.Now()
		pod, err := greeting(ctx, c.host, c.addr)
		if ctx.Err() == nil {
			c.add(answer{begun: begun, at: time.Now(), pod: pod, err: err})
		}
	}, callEvery)
}

func (c *caller) add(a answer) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.answers = append(c.answers, a)
}

// heard returns all answers up to now.
func (c *caller) heard() []answer {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.answers)
}

// waitFor waits until the pod has answered count times since then.
func (c *caller) waitFor(ctx context.Context, pod string, count int, since time.Time) {
	eventually(ctx, clientLimit, fmt.Sprintf("%d answers of pod %s for %s", count, pod, c.addr), func(context.Context) {
		got := 0
		answers := c.heard()
		for _, a := range answers {
			if a.pod == pod && !a.begun.Before(since) {
				got++
			}
		}
		if got >= count {
			return
		}
		last := "nobody has been asked"
		if len(answers) > 0 {
			a := answers[len(answers)-1]
			last = fmt.Sprintf("the last answer was by %q (%v)", a.pod, a.err)
		}
		fail("it gave %d; %s", got, last)
	})
}

// greeting connects to a pod and returns the name it says.
func greeting(ctx context.Context, host *cluster.Host, addr netip.Addr) (_ string, err error) {
	defer steps.Catch(&err)
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	conn := value(host.Dial(ctx, "tcp", netip.AddrPortFrom(addr, appPort).String()))
	defer conn.Close()
	deadline, _ := ctx.Deadline()
	check(conn.SetDeadline(deadline))
	name, err := bufio.NewReader(conn).ReadString('\n')
	return strings.TrimSpace(name), err
}

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
		check(p.conn.Close())
		p.group.Wait()
	})
	return p
}

func (p *pinger) send(ctx context.Context) {
	wait.NonSlidingUntilWithContext(ctx, func(context.Context) {
		for _, addr := range p.addrs {
			p.sendOne(addr)
		}
	}, pingEvery)
}

// sendOne records the ping even if it could not be sent: then it counts as lost.
func (p *pinger) sendOne(addr netip.Addr) {
	p.mu.Lock()
	seq := len(p.pings)
	p.pings = append(p.pings, ping{addr: addr, sent: time.Now()})
	p.mu.Unlock()
	message := icmp.Message{Type: ipv4.ICMPTypeEcho, Body: &icmp.Echo{ID: seq >> 16, Seq: seq & 0xffff}}
	if data, err := message.Marshal(nil); err == nil {
		_, _ = p.conn.WriteTo(data, &net.IPAddr{IP: addr.AsSlice()})
	}
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

// cryEvery is the interval of the announcements of a crier.
const cryEvery = network.CryEvery

// crier sends gratuitous ARP from inside a pod until the scenario ends.
type crier struct {
	// sent counts the frames that the kernel accepted, refused the frames that it dropped.
	sent, refused atomic.Int64
}

// cry starts a crier in a pod. It does not depend on the processes of the pod.
func (a *act) cry(pod *cluster.Pod) *crier {
	ns := value(pod.Enter())
	defer ns.Close()
	c := &crier{}
	stop := value(ns.Cry(cluster.PodInterface, addressOf(pod), &c.sent, &c.refused))
	a.after("stop the crier", func(context.Context) { stop() })
	return c
}

const (
	// steadyEvery is the interval at which a steady connection sends.
	steadyEvery = 100 * time.Millisecond
	// An echo may take 50 waits, 5 s. Meanwhile TCP sends again. A machine that stands uses up one wait alone.
	steadyWait  = 100 * time.Millisecond
	steadyWaits = 50
)

// steady is a set of TCP connections to pods' echo servers, which stay open and in use.
type steady struct {
	ctx   context.Context // ends with the scenario
	group sync.WaitGroup
	count int
	// echoes counts the lines that came back.
	echoes atomic.Int64

	mu     sync.Mutex
	broken []error
}

// hold starts an empty set.
func (a *act) hold() *steady {
	ctx, stop := context.WithCancel(context.Background())
	s := &steady{ctx: ctx}
	a.after("close the steady connections", func(context.Context) { stop(); s.group.Wait() })
	return s
}

// open adds connections, once kube-proxy knows the pods behind a Service.
func (s *steady) open(ctx context.Context, count int, from place, to netip.AddrPort) {
	for range count {
		var conn net.Conn
		eventually(ctx, pathLimit, fmt.Sprintf("a connection from %s to %s", from.name, to), func(ctx context.Context) {
			conn = value(from.dial(ctx, "tcp", to))
		})
		s.count++
		s.group.Go(func() {
			defer conn.Close()
			if err := s.use(conn); err != nil && s.ctx.Err() == nil {
				s.breaks(fmt.Errorf("the connection from %s to %s: %w", from.name, to, err))
			}
		})
	}
}

// use sends lines and waits for the echo of each.
func (s *steady) use(conn net.Conn) (err error) {
	defer steps.Catch(&err)
	lines := bufio.NewReader(conn)
	tick := time.NewTicker(steadyEvery)
	defer tick.Stop()
	value(lines.ReadString('\n'))        // the greeting
	check(conn.SetDeadline(time.Time{})) // that of the dial
	for n := 0; ; n++ {
		sent := fmt.Sprintln("line", n)
		value(conn.Write([]byte(sent)))
		got, err := "", os.ErrDeadlineExceeded
		for waits := 0; errors.Is(err, os.ErrDeadlineExceeded) && waits < steadyWaits; waits++ {
			check(conn.SetReadDeadline(time.Now().Add(steadyWait)))
			part, failed := lines.ReadString('\n')
			got, err = got+part, failed
		}
		did(err, "wait for %q", sent)
		must(got == sent, "%q came back for %q", got, sent)
		s.echoes.Add(1)
		select {
		case <-s.ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

func (s *steady) breaks(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.broken = append(s.broken, err)
}

// unbroken waits until so many more echoes have come back, and fails if a connection is broken.
func (s *steady) unbroken(ctx context.Context) {
	const rounds = 10
	goal := s.echoes.Load() + int64(rounds*s.count)
	eventually(ctx, clientLimit, fmt.Sprintf("%d more echoes", rounds*s.count), func(context.Context) {
		check(s.err())
		must(s.echoes.Load() >= goal, "%d are missing", goal-s.echoes.Load())
	})
	check(s.err())
}

func (s *steady) err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.broken) == 0 {
		return nil
	}
	return fmt.Errorf("%d of %d connections are broken, the first one: %w", len(s.broken), s.count, s.broken[0])
}
