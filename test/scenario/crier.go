// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fenceline/fenceline/test/cluster"
)

// cryEvery is the interval of the announcements of a crier.
const cryEvery = 10 * time.Millisecond

// crier sends gratuitous ARP from inside a pod until the scenario ends. Because it never pauses, its
// silence on the underlay proves that its frames are dropped.
type crier struct {
	socket int
	stop   context.CancelFunc
	done   chan struct{}
	// sent counts the frames that the kernel accepted, refused the frames that it dropped.
	sent, refused atomic.Int64
}

// cry starts a crier in a pod. It does not depend on the processes of the pod.
func (a *act) cry(pod *cluster.Pod) (*crier, error) {
	ns, err := pod.Enter()
	if err != nil {
		return nil, err
	}
	defer ns.Close()
	mac, err := ns.MAC(cluster.PodInterface)
	if err != nil {
		return nil, err
	}
	index, err := ns.Index(cluster.PodInterface)
	if err != nil {
		return nil, err
	}
	c := &crier{done: make(chan struct{})}
	err = ns.Do(func() (err error) {
		c.socket, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("open a packet socket in pod %s: %w", pod.Name, err)
	}
	ctx, stop := context.WithCancel(context.Background())
	c.stop = stop
	go c.run(ctx, announcement(mac, addressOf(pod)), &unix.SockaddrLinklayer{Ifindex: index})
	a.after("stop the crier", func(context.Context) error { c.stop(); <-c.done; return nil })
	return c, nil
}

func (c *crier) run(ctx context.Context, frame []byte, to *unix.SockaddrLinklayer) {
	defer close(c.done)
	defer unix.Close(c.socket)
	tick := time.NewTicker(cryEvery)
	defer tick.Stop()
	for {
		if err := unix.Sendto(c.socket, frame, 0, to); err != nil {
			c.refused.Add(1) // a fenced pod gets ENOBUFS
		} else {
			c.sent.Add(1)
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// announcement is a gratuitous ARP request (RFC 5227, section 3).
func announcement(mac net.HardwareAddr, addr netip.Addr) []byte {
	return ethernet(broadcast, mac, unix.ETH_P_ARP, arp(arpRequest, mac, addr, noMAC, addr))
}
