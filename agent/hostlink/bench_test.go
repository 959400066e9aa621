// SPDX-License-Identifier: Apache-2.0

//go:build bench

package hostlink

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/fenceline/fenceline/test/check"
	"github.com/fenceline/fenceline/test/figure"
	"github.com/fenceline/fenceline/test/network"
)

// BenchmarkHostLink makes and removes host links of dual-stack pods. It prints the median of each step, and
// of a bare veth pair, made and set up in the same pods. The guard is not in it: package bpf measures it.
func BenchmarkHostLink(b *testing.B) {
	r := newRig(b)
	times := map[string][]time.Duration{}
	took := func(step string, do func() error) {
		began := time.Now()
		check.OK(r, do())
		times[step] = append(times[step], time.Since(began))
	}
	for i := 0; b.Loop(); i++ {
		name := fmt.Sprintf("p%d", i)
		pod, entries := r.pod(name, []string{fmt.Sprintf("10.0.0.%d/24", i%250+2), fmt.Sprintf("fd00::%x/64", i+256)})
		e := entries[0]
		p := check.Value(openPod(e))(r)
		took("make", func() error {
			node := check.Value(nodeAddresses(r.links.node))(r)
			plan, known, err := r.links.plan(e, p, node)
			check.OK(r, err)
			took("make: pair and settings of the node", func() error { _, err := r.links.putNodeEnd(e, p, plan, mend); return err })
			took("make: side of the pod", func() error { return p.putLink(e, plan, known, mend) })
			took("make: side of the node", func() error { return r.links.putNodeSide(e, plan, mend) })
			took("make: rules", func() error { return syncRules(p.links, plan.Rules, p.own.Attrs().Index, mend) })
			return nil
		})
		took("check", func() error { r.guards.linked[NodeEnd(e.Attachment())] = true; return r.links.Check(e) })
		took("remove", func() error { return r.links.Remove(e) })
		took("bare pair", func() error {
			attrs := netlink.NewLinkAttrs()
			attrs.Name = "bare-" + name
			bare := netlink.NewVeth(attrs)
			bare.PeerName, bare.PeerNamespace = "bare0", netlink.NsFd(int(p.ns.Fd()))
			if err := r.node.Links().LinkAdd(bare); err != nil {
				return err
			}
			return errors.Join(r.node.SetUp(attrs.Name, true), pod.SetUp("bare0", true))
		})
		check.OK(r, r.node.DeleteLink("bare-"+name))
		p.Close()
		check.OK(r, pod.DeleteLink("eth0"))
	}
	for step, all := range times {
		b.Logf("%-36s p50 %8s of %d", step, figure.Median(all).Round(10*time.Microsecond), len(all))
	}
	figure.Report(b, "host link of a pod, made", float64(figure.Median(times["make"]))/float64(figure.Median(times["bare pair"])), "× bare veth pair")
	b.ReportMetric(float64(figure.Median(times["make"]).Microseconds())/1000, "make-ms")
	b.ReportMetric(float64(figure.Median(times["remove"]).Microseconds())/1000, "remove-ms")
}

// BenchmarkRepairOfAFullNode repairs the host links of a full node that lacks nothing. It has the 250
// pods that operators allow on a large node.
func BenchmarkRepairOfAFullNode(b *testing.B) {
	r := newRig(b)
	for i := range figure.Size(250, 5) {
		_, entries := r.pod(fmt.Sprintf("p%d", i), []string{fmt.Sprintf("10.0.0.%d/24", i+2), fmt.Sprintf("fd00::%x/64", i+256)})
		check.OK(r, r.links.Make(entries[0]))
	}
	check.OK(r, r.links.Repair())
	before := cpuTime(b)
	for b.Loop() {
		check.OK(r, r.links.Repair())
	}
	figure.Report(b, "repair of the host links of 250 pods that lack nothing", figure.Milliseconds(cpuTime(b)-before)/float64(b.N), "ms of CPU")
}

// cpuTime returns the CPU time of the process, which has both ends of a connection.
func cpuTime(tb testing.TB) time.Duration {
	var u unix.Rusage
	check.OK(tb, unix.Getrusage(unix.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// slice is how long one pod sends. The pods take turns, so that the load of the machine meets all.
const slice = 200 * time.Millisecond

// BenchmarkThroughput sends by TCP from pods in turns, and prints the medians of rate and CPU time for
// each way, with the ratio to the other way of the pair:
//   - to a host on the underlay, from a pod with a host link and from a pod without any routing;
//   - to the node, by the host link and by a veth pair with a bridge, as the reference bridge plugin
//     makes it.
func BenchmarkThroughput(b *testing.B) {
	r := newRig(b)
	plain, _ := r.pod("plain", []string{"10.0.0.8/24"})
	linked, entries := r.pod("linked", []string{"10.0.0.7/24"})
	check.OK(r, r.links.Make(entries[0]))
	bridged := r.bridged()
	ways := []way{
		{"to a host, no host link", plain, r.router, routerAddr4 + ":5001"},
		{"to a host, host link", linked, r.router, routerAddr4 + ":5002"},
		{"to the node, bridge", bridged, r.node, "10.244.0.1:5003"},
		{"to the node, host link", linked, r.node, nodeAddr4 + ":5004"},
	}
	senders := make([]*sender, len(ways))
	for i, w := range ways {
		senders[i] = r.sender(w)
	}
	for b.Loop() {
		for range figure.Size(10, 1) {
			for _, s := range senders {
				s.send(b)
			}
		}
	}
	for i, s := range senders {
		b.Logf("%-26s p50 %6.2f Gbit/s, %5.3f ns of CPU per byte, %d slices", ways[i].name, figure.Median(s.rates)*8/1e9, figure.Median(s.costs), len(s.rates))
	}
	compare := func(name string, with, without *sender, than string) {
		figure.Report(b, name+", rate", figure.Median(with.rates)/figure.Median(without.rates), "× "+than)
		figure.Report(b, name+", CPU a byte", figure.Median(with.costs)/figure.Median(without.costs), "× "+than)
	}
	compare("TCP to a host from a pod with a host link", senders[1], senders[0], "a pod without one")
	compare("TCP to the node by a host link", senders[3], senders[2], "a veth pair and a bridge")
}

// way is a pod with the server that it sends to.
type way struct {
	name     string
	from, to *network.Namespace
	address  string
}

// sender is an open connection, and what was measured on it: bytes per second, and nanoseconds of CPU
// per byte of sender and receiver together.
type sender struct {
	conn         net.Conn
	rates, costs []float64
}

func (r *rig) sender(w way) *sender {
	r.Helper()
	r.listen(w.to, "tcp", w.address, nil, func(c *net.TCPConn) error { return check.Err(io.Copy(io.Discard, c)) })
	s := &sender{}
	check.OK(r, w.from.Do(func() (err error) { s.conn, err = net.DialTimeout("tcp", w.address, 5*time.Second); return err }))
	r.Cleanup(func() { s.conn.Close() })
	return s
}

func (s *sender) send(b *testing.B) {
	data := make([]byte, 128<<10)
	began, used, sent := time.Now(), cpuTime(b), 0
	for time.Since(began) < slice {
		sent += check.Value(s.conn.Write(data))(b)
	}
	s.rates = append(s.rates, float64(sent)/time.Since(began).Seconds())
	s.costs = append(s.costs, float64((cpuTime(b)-used).Nanoseconds())/float64(sent))
}

// bridged makes a pod on a bridge of the node.
func (r *rig) bridged() *network.Namespace {
	r.Helper()
	pod := network.New(r, "bridged")
	check.OK(r, r.node.AddBridge("cni0"))
	check.OK(r, r.node.AddAddr("cni0", netip.MustParsePrefix("10.244.0.1/24")))
	check.OK(r, pod.Plug("eth0", nil, r.node, "veth-pod", "cni0"))
	check.OK(r, pod.AddAddr("eth0", netip.MustParsePrefix("10.244.0.7/24")))
	check.OK(r, pod.AddRoute(netip.Prefix{}, netip.MustParseAddr("10.244.0.1")))
	return pod
}
