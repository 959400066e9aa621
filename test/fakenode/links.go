// SPDX-License-Identifier: Apache-2.0

// Package fakenode is a node for tests. Its agent's holders, guards and recovery are real. Its API
// server, kernel, segment and Warm leases are in memory. The agent can die before any of its
// effects, and start again.
package fakenode

import (
	"net"
)

// SetMAC changes the MAC of a pod's interface.
func (r *Node) SetMAC(netns string, mac net.HardwareAddr) {
	r.macs.Lock()
	defer r.macs.Unlock()
	r.set[netns] = mac
}

// links sets MAC and state of the interfaces of a node's pods.
type links struct{ *Node }

func (l links) SetMAC(netns, _ string, mac net.HardwareAddr) error {
	l.Node.SetMAC(netns, mac)
	return nil
}

func (l links) SetDown(netns, _ string) error {
	l.Lowered = append(l.Lowered, netns)
	return nil
}

func (r *Node) setRemoved(netns string, removed bool) {
	r.macs.Lock()
	defer r.macs.Unlock()
	r.removed[netns] = removed
}

func (r *Node) isRemoved(netns string) bool {
	r.macs.Lock()
	defer r.macs.Unlock()
	return r.removed[netns]
}

func (r *Node) macOf(netns string) net.HardwareAddr {
	r.macs.Lock()
	defer r.macs.Unlock()
	if mac, ok := r.set[netns]; ok {
		return mac
	}
	return MacOf(netns)
}

func MacOf(netns string) net.HardwareAddr {
	return net.HardwareAddr{2, 0, 0, 0, byte(len(netns)), netns[len(netns)-1]}
}
