// SPDX-License-Identifier: Apache-2.0

package network

import (
	"context"
	"net/netip"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/fenceline/fenceline/test/must"
)

// CryEvery is the interval of the announcements of a crier.
const CryEvery = 10 * time.Millisecond

// Cry sends gratuitous ARP (RFC 5227, section 3) for an IPv4 address from an interface, until stop is called. It
// needs no process in the namespace. Because it never pauses, its silence on the switch proves that its frames are
// dropped. sent counts the frames that the kernel accepted, refused those that it dropped.
func (n *Namespace) Cry(iface string, addr netip.Addr, sent, refused *atomic.Int64) (stop func(), err error) {
	return n.repeat(iface, addr, addr, sent, refused)
}

// Ask asks all hosts for an IPv4 address as often, with the address of the namespace.
func (n *Namespace) Ask(iface string, from, addr netip.Addr) (stop func(), err error) {
	return n.repeat(iface, from, addr, new(atomic.Int64), new(atomic.Int64))
}

// repeat sends ARP requests to all.
func (n *Namespace) repeat(iface string, from, addr netip.Addr, sent, refused *atomic.Int64) (stop func(), err error) {
	defer must.Catch(&err)
	mac, index := must.Value(n.MAC(iface)), must.Value(n.Index(iface))
	socket := must.Value(n.PacketSocket(0, 0))
	toAll, nobody := slices.Repeat([]byte{0xff}, 6), make([]byte, 6)
	request := []byte{8, 6, 0, 1, 8, 0, 6, 4, 0, 1}
	frame := slices.Concat(toAll, mac, request, mac, from.AsSlice(), nobody, addr.AsSlice())
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer unix.Close(socket)
		wait.NonSlidingUntilWithContext(ctx, func(context.Context) {
			if err := unix.Sendto(socket, frame, 0, &unix.SockaddrLinklayer{Ifindex: index}); err != nil {
				refused.Add(1) // a fenced pod gets ENOBUFS
			} else {
				sent.Add(1)
			}
		}, CryEvery)
	}()
	return func() { cancel(); <-done }, nil
}
