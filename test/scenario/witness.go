// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"context"
	"net/netip"
	"time"

	"github.com/fenceline/fenceline/test/capture"
	"github.com/fenceline/fenceline/test/cluster"
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

// watch begins to use addresses from a foreign host and to capture. TCP
// connections go to the first address.
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

// alive fails unless the pod answers ARP, and TCP with its own name.
func (w *witness) alive(ctx context.Context, pod *cluster.Pod) {
	w.answersARP(ctx, addressOf(pod))
	name, err := greeting(ctx, w.host, addressOf(pod))
	did(err, "connect to pod %s", pod.Name)
	must(name == pod.Name, "connect to pod %s: pod %s answered", pod.Name, name)
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

// hearsOnly waits until the pod has answered for a while, and judges that no other pod has answered
// since end.
func (w *witness) hearsOnly(ctx context.Context, pod *cluster.Pod, end time.Time) {
	const enough = 20
	now := time.Now()
	w.pings.waitFor(ctx, enough)
	w.calls.waitFor(ctx, pod.Name, enough, now)
	check(onlyAnswersOf(pod.Name, w.calls.heard(), end))
	w.pings.noneLost(now)
}
