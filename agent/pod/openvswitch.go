// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"errors"
	"fmt"
	"slices"

	"github.com/vishvananda/netlink"

	"github.com/fenceline/fenceline/bpf/attach"
	"github.com/fenceline/fenceline/internal/wholelist"
)

// errNoPort: no bridge of Open vSwitch has a port of this name.
var errNoPort = fmt.Errorf("%w: its other end is no port of Open vSwitch", ErrNoUplink)

// ovs returns the bridges of Open vSwitch, and with them the error for their ports on kernels without tcx: there guards
// and observers are in the qdisc at ingress, of which a port has one, and which Open vSwitch wants for policing and
// offload.
func ovs() ([]wholelist.OVSBridge, error) {
	bridges, err := wholelist.OVS()
	if err == nil && !attach.HasTCX() {
		return bridges, fmt.Errorf("%w: on kernels without tcx it wants the qdisc in which guards are: use Linux 6.6 or newer, or a Linux bridge", ErrUnfitOVS)
	}
	return bridges, err
}

// ofOVS returns the parent of a port of Open vSwitch.
func ofOVS(links []netlink.Link, port string, ask func() ([]wholelist.OVSBridge, error)) (Parent, error) {
	bridges, err := ask()
	if err != nil && !errors.Is(err, ErrUnfitOVS) {
		return Parent{}, err
	}
	for _, b := range bridges {
		if own, ok := portOf(b, port); ok {
			if err != nil {
				return Parent{}, err
			}
			return onOVS(links, b, own)
		}
	}
	return Parent{}, errNoPort
}

func portOf(b wholelist.OVSBridge, name string) (wholelist.OVSPort, bool) {
	at := slices.IndexFunc(b.Ports, func(p wholelist.OVSPort) bool { return p.Name == name })
	if at < 0 {
		return wholelist.OVSPort{}, false
	}
	return b.Ports[at], true
}

// onOVS returns the parent of a port of a bridge: its uplink if the untagged frames of the port have no tag there,
// and otherwise the interface of their VLAN on the bridge, as on a Linux bridge that filters VLANs.
func onOVS(links []netlink.Link, b wholelist.OVSBridge, port wholelist.OVSPort) (Parent, error) {
	if err := fit(b); err != nil {
		return Parent{}, fmt.Errorf("%w: %w", ErrUnfitOVS, err)
	}
	uplink, err := onlyUplink(b.Name, b.Uplinks(links))
	if err != nil {
		return Parent{}, err
	}
	parent, err := inVLANOfOVS(links, b, uplink, port)
	if err != nil {
		return Parent{}, fmt.Errorf("%w: on bridge %s of Open vSwitch, %w", ErrNoVLAN, b.Name, err)
	}
	return parent, nil
}

// fit returns an error unless a bridge is a switch of the kernel with no way out but links of the kernel.
func fit(b wholelist.OVSBridge) error {
	switch {
	case b.Datapath == "netdev":
		return fmt.Errorf("bridge %s switches in user space, past all guards; set its datapath_type to system", b.Name)
	case len(b.Controller) > 0 || slices.Contains(b.FailMode, "secure"):
		return fmt.Errorf("bridge %s forwards by the flows of a controller, not as a switch; make a bridge without controller and fail mode", b.Name)
	}
	for _, p := range b.Ports {
		for _, i := range p.Interfaces {
			if !i.IsLink() && i.Type != "internal" && i.Type != "tap" {
				return fmt.Errorf("port %s of bridge %s is of type %s, behind which no probe looks; make a bridge without it", p.Name, b.Name, i.Type)
			}
		}
	}
	return nil
}

func inVLANOfOVS(links []netlink.Link, b wholelist.OVSBridge, uplink Parent, port wholelist.OVSPort) (Parent, error) {
	vid, ok := port.Untagged()
	if !ok {
		return Parent{}, fmt.Errorf("%s has no VLAN for untagged frames: set vlan in the network configuration, or add the ID 0 to its trunk", port.Name)
	}
	at := slices.IndexFunc(b.Ports, func(p wholelist.OVSPort) bool {
		return slices.ContainsFunc(p.Interfaces, func(i wholelist.OVSInterface) bool { return i.Name == uplink.Name })
	})
	outside := b.Ports[at]
	inside, _ := portOf(b, b.Name)
	untagged, ok := outside.Untagged()
	switch {
	case ok && untagged == vid:
		return uplink, nil
	case !outside.Tagged(vid):
		return Parent{}, fmt.Errorf("VLAN %d does not reach its port %s: run ovs-vsctl clear port %[2]s tag trunks vlan_mode", vid, outside.Name)
	case !inside.Tagged(vid):
		return Parent{}, fmt.Errorf("VLAN %d has no tag on %s itself, so no interface can hear it there: run ovs-vsctl clear port %[2]s tag trunks vlan_mode, after the node's own address is on another interface", vid, b.Name)
	}
	if on, isOn := subinterface(links, uplink.Index, uint16(vid)); isOn {
		return Parent{}, fmt.Errorf("%s takes VLAN %d from it: remove this interface", on.Name, vid)
	}
	own := slices.IndexFunc(links, func(l netlink.Link) bool { return l.Attrs().Name == b.Name && l.Type() == wholelist.OVSKind })
	if own < 0 {
		return Parent{}, errors.New("the node has no interface of the bridge itself")
	}
	sub, isSub := subinterface(links, links[own].Attrs().Index, uint16(vid))
	if !isSub {
		return Parent{}, fmt.Errorf("the node has no interface in VLAN %d of it: run ip link set %s up; ip link add link %[2]s name %[2]s.%[1]d up type vlan id %[1]d", vid, b.Name)
	}
	return sub, nil
}
