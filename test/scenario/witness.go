// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"context"
	"fmt"
	"net/netip"
	"time"

	"github.com/fenceline/fenceline/test/capture"
	"github.com/fenceline/fenceline/test/cluster"
)

// clientLimit is how long clients may wait for their answers.
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
func (a *act) watch(addrs ...netip.Addr) (*witness, error) {
	running, err := a.Capture()
	if err != nil {
		return nil, err
	}
	a.after("end the capture", func(context.Context) error { _, err := running.Stop(); return err })
	return a.watchBy("client", 250, running, addrs...)
}

// watchBy does so from a host with that name and number, with a capture that runs.
func (a *act) watchBy(name string, number int, running *capture.Capture, addrs ...netip.Addr) (*witness, error) {
	host, err := a.foreignHost(name, netip.PrefixFrom(a.address(number), underlay.Bits()))
	if err != nil {
		return nil, err
	}
	w := &witness{host: host, capture: running, calls: a.call(host, addrs[0])}
	w.pings, err = a.ping(host, addrs...)
	return w, err
}

// foreignHost plugs a host into the underlay that is not part of the cluster.
func (a *act) foreignHost(name string, addr netip.Prefix) (*cluster.Host, error) {
	host, err := a.ForeignHost(name, addr, nil)
	if err != nil {
		return nil, err
	}
	a.after("unplug host "+name, func(context.Context) error { return host.Remove() })
	return host, nil
}

// alive returns an error unless the pod answers ARP, and TCP with its own name.
func (w *witness) alive(ctx context.Context, pod *cluster.Pod) error {
	if err := w.answersARP(ctx, addressOf(pod)); err != nil {
		return err
	}
	name, err := greeting(ctx, w.host, addressOf(pod))
	if err != nil {
		return fmt.Errorf("connect to pod %s: %w", pod.Name, err)
	}
	if name != pod.Name {
		return fmt.Errorf("connect to pod %s: pod %s answered", pod.Name, name)
	}
	return nil
}

// hears waits until the pod answers TCP. A pod may be Running before it listens.
func (w *witness) hears(ctx context.Context, pod *cluster.Pod) error {
	return eventually(ctx, clientLimit, "an answer of pod "+pod.Name, func(ctx context.Context) error {
		name, err := greeting(ctx, w.host, addressOf(pod))
		if err == nil && name != pod.Name {
			err = fmt.Errorf("pod %s answered", name)
		}
		return err
	})
}

// answersARP returns an error unless a host answers an ARP request for the address.
func (w *witness) answersARP(ctx context.Context, addr netip.Addr) error {
	_, err := w.host.Exec(ctx, "arping", "-q", "-f", "-c", "3", "-w", "3", "-I", "eth0", addr.String())
	return err
}

// hearsOnly waits until the pod has answered for a while, and judges that no other pod has answered
// since end.
func (w *witness) hearsOnly(ctx context.Context, pod *cluster.Pod, end time.Time) error {
	const enough = 20
	now := time.Now()
	if err := w.calls.waitFor(ctx, pod.Name, enough, now); err != nil {
		return err
	}
	if err := w.pings.waitFor(ctx, enough, now); err != nil {
		return err
	}
	if err := onlyAnswersOf(pod.Name, w.calls.heard(), end); err != nil {
		return err
	}
	if lost := lostSince(w.pings.all(), now, time.Now()); lost > 0 {
		return fmt.Errorf("%d pings to %s were lost", lost, pod.Name)
	}
	return nil
}
