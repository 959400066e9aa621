// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"errors"

	"github.com/fenceline/fenceline/internal/wholelist"
)

var (
	// ErrNoNetNS: the path of the namespace does not exist, since the sandbox is gone.
	ErrNoNetNS = errors.New("network namespace does not exist")
	// ErrNotNetNS: the path leads to something else.
	ErrNotNetNS = errors.New("not a network namespace")
	// ErrHostNetNS: the path leads to the node's namespace, where no interface may be guarded.
	ErrHostNetNS = errors.New("the node's own network namespace")
	// ErrNoInterface: the namespace has no interface of that name, not yet or no longer.
	ErrNoInterface = errors.New("interface does not exist")
	// ErrNoParent: an interface of this kind has no parent.
	ErrNoParent = errors.New("interface has no parent")
	// ErrNoUplink: the interface is a veth without a bridge, or its bridge has no port to the network, or several.
	ErrNoUplink = errors.New("interface has no uplink")
	// ErrNoVLAN: the bridge at the other end of the veth has VLANs, and the node does not hear the pod's.
	ErrNoVLAN = errors.New("the node does not hear the VLAN of the interface")
	// ErrNoOVS: the bridge is one of Open vSwitch, whose database gives no answer.
	ErrNoOVS = wholelist.ErrNoOVS
	// ErrUnfitOVS: a bridge of Open vSwitch is not what guards and probes need.
	ErrUnfitOVS = errors.New("this bridge of Open vSwitch is not served")
	// ErrForeignParent: the parent is not in the node's namespace, so it has no observer.
	ErrForeignParent = errors.New("parent is not in the node's network namespace")
	// ErrInfiniBand: the interface has no ARP or ND over Ethernet.
	ErrInfiniBand = errors.New("interface is InfiniBand")
	// ErrLayer3: the interface routes, so neither ARP nor ND leaves it.
	ErrLayer3 = errors.New("interface has no L2 segment")
	// ErrRewrites: a device below the interface changes the MACs of ARP frames.
	ErrRewrites = errors.New("the parent's device changes the MACs of ARP frames")
)

// IsGone reports whether an error says that the interface or its network namespace does not exist. Others,
// such as too many open files, say nothing about it.
func IsGone(err error) bool {
	return errors.Is(err, ErrNoNetNS) || errors.Is(err, ErrNotNetNS) || errors.Is(err, ErrNoInterface)
}
