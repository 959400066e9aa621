// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/fenceline/fenceline/test/cluster"
)

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
	a.after("close the sockets in pod "+pod.Name, func(context.Context) { check(e.close()) })
	protocols := []uint16{unix.ETH_P_ARP, unix.ETH_P_IP, unix.ETH_P_IPV6, protocolClaim, protocolLLDP, unix.ETH_P_802_2}
	for _, protocol := range protocols {
		err := ns.Do(func() error {
			// The kernel wants the protocol in network byte order.
			socket, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, int(protocol>>8|protocol<<8))
			if err != nil {
				return err
			}
			e.sockets = append(e.sockets, socket)
			const size = 4 << 20
			return unix.SetsockoptInt(socket, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, size)
		})
		did(err, "listen in pod %s", pod.Name)
	}
	return e
}

func (e *ear) close() error {
	var errs []error
	for _, socket := range e.sockets {
		errs = append(errs, unix.Close(socket))
	}
	return errors.Join(errs...)
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
