// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"

	"github.com/fenceline/fenceline/test/capture"
	"github.com/fenceline/fenceline/test/must"
	"github.com/fenceline/fenceline/test/network"
)

// hostInterface is a foreign host's interface on the underlay.
const hostInterface = "eth0"

// Host is a machine on the underlay that is not part of the cluster. It answers ARP and ICMP for its
// address, as any Linux host does.
type Host struct {
	*network.Namespace
	Addr netip.Addr
	MAC  net.HardwareAddr
}

// ForeignHost plugs a host into the underlay. The name has at most eight
// characters; with a nil mac, the kernel chooses one.
func (c *Cluster) ForeignHost(name string, addr netip.Prefix, mac net.HardwareAddr) (_ *Host, err error) {
	defer must.Catch(&err)
	must.That(len(name) <= 8, "plug in foreign host %s: the name has more than eight characters", name)
	ns, err := network.Create(c.Options.hostName(name))
	must.Done(err, "plug in foreign host %s", name)
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("plug in foreign host %s: %w", name, err), ns.Delete())
		}
	}()
	defer must.Catch(&err)
	must.OK(ns.Plug(hostInterface, mac, c.wires.sw, underlayPort("h-"+name), underlayBridge))
	must.OK(ns.AddAddr(hostInterface, addr))
	mac = must.Value(ns.MAC(hostInterface))
	return &Host{Namespace: ns, Addr: addr.Addr(), MAC: mac}, nil
}

// Remove unplugs the host for good.
func (h *Host) Remove() error { return errors.Join(h.DeleteLink(hostInterface), h.Delete()) }

// Exec runs a command of this machine on the host's network and returns what it printed.
func (h *Host) Exec(ctx context.Context, name string, args ...string) (string, error) {
	return output(h.Command(ctx, name, args...))
}

// Dial connects from the host, like net.Dialer.
func (h *Host) Dial(ctx context.Context, protocol, address string) (conn net.Conn, err error) {
	err = h.Do(func() error {
		conn, err = (&net.Dialer{}).DialContext(ctx, protocol, address)
		return err
	})
	return conn, err
}

// Capture records what every node and host sends into the underlay switch from now on. The port of a frame is "ul-"
// and the node's name, or "ul-h-" and the host's.
func (c *Cluster) Capture() (*capture.Capture, error) {
	return capture.Start(c.wires.sw, underlayBridge)
}

// CaptureManagement records what enters the management switch. The port of a frame is "mgmt-" and the node's name.
func (c *Cluster) CaptureManagement() (*capture.Capture, error) {
	return capture.Start(c.wires.sw, managementBridge)
}
