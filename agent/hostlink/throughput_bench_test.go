// SPDX-License-Identifier: Apache-2.0

//go:build bench

package hostlink

import (
	"io"
	"net"
	"net/netip"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/fenceline/fenceline/test/check"
	"github.com/fenceline/fenceline/test/figure"
	"github.com/fenceline/fenceline/test/network"
)

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
				check.OK(r, s.send())
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

func (s *sender) send() error {
	data := make([]byte, 128<<10)
	began, used, sent := time.Now(), cpuTime(), 0
	for time.Since(began) < slice {
		n, err := s.conn.Write(data)
		if err != nil {
			return err
		}
		sent += n
	}
	s.rates = append(s.rates, float64(sent)/time.Since(began).Seconds())
	s.costs = append(s.costs, float64((cpuTime()-used).Nanoseconds())/float64(sent))
	return nil
}

// cpuTime returns the CPU time of the process, which has both ends.
func cpuTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// bridged makes a pod on a bridge of the node.
func (r *rig) bridged() *network.Namespace {
	r.Helper()
	pod := r.namespace("bridged")
	check.OK(r, r.node.AddBridge("cni0"))
	check.OK(r, r.node.AddAddr("cni0", netip.MustParsePrefix("10.244.0.1/24")))
	check.OK(r, pod.Plug("eth0", nil, r.node, "veth-pod", "cni0"))
	check.OK(r, pod.AddAddr("eth0", netip.MustParsePrefix("10.244.0.7/24")))
	link := check.Value(pod.Links().LinkByName("eth0"))(r)
	check.OK(r, pod.Links().RouteAdd(&netlink.Route{LinkIndex: link.Attrs().Index, Gw: netip.MustParseAddr("10.244.0.1").AsSlice()}))
	return pod
}
