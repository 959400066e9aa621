// SPDX-License-Identifier: Apache-2.0

package vf

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/vishvananda/netlink"

	"github.com/fenceline/fenceline/internal/wholelist"
)

// Sysfs is the mount point of sysfs. It shows the devices of the node, and the interfaces of the
// calling process's network namespace.
const Sysfs = "/sys"

var (
	// ErrNoVF: the device is not a virtual function.
	ErrNoVF = errors.New("not a virtual function")
	// ErrNoPF: the node has not exactly one interface of the PF.
	ErrNoPF = errors.New("the PF has not one interface on the node")
	// ErrNoInfo: the driver of the PF reports nothing about the VF now, for example during a reset.
	ErrNoInfo = errors.New("the PF says nothing about the VF now")
	// ErrNoVLAN: the node has no subinterface in the VLAN of the VF, so it cannot probe there.
	ErrNoVLAN = errors.New("the node has no interface in the VLAN of the VF")
)

// Function is a VF and its PF.
type Function struct {
	// Device is the PCI address of the VF, such as 0000:03:10.0.
	Device string
	// PF is the interface of the PF on the node.
	PF netlink.Link
	// Info is the state of the VF at its PF. Its ID is the number of the VF on the PF.
	Info netlink.VfInfo
}

// Host has the cards of this node. Their PFs are in the network namespace of the calling thread.
type Host struct{}

// Find is Find in Sysfs.
func (Host) Find(device string) (Function, error) { return Find(Sysfs, device) }

// IsGone reports whether the node has no such device. A VF that is being removed loses its PF
// first, while a program may still drive it.
func (Host) IsGone(device string) bool {
	_, err := os.Stat(filepath.Join(Sysfs, "bus/pci/devices", device))
	return errors.Is(err, fs.ErrNotExist)
}

// SetState sets the link state of a VF.
func (Host) SetState(f Function, state uint32) error {
	return netlink.LinkSetVfState(f.PF, f.Info.ID, state)
}

// SetVLAN sets the VLAN of a VF, and keeps its priority.
func (Host) SetVLAN(f Function, vlan int) error {
	return netlink.LinkSetVfVlanQos(f.PF, f.Info.ID, vlan, f.Info.Qos)
}

// SetSpoofCheck sets the spoof check of a VF.
func (Host) SetSpoofCheck(f Function, on bool) error {
	return netlink.LinkSetVfSpoofchk(f.PF, f.Info.ID, on)
}

// Find finds the VF with a PCI address. It looks for the PF in the calling thread's network namespace.
// The error wraps ErrNoVF or ErrNoPF if one of them applies.
func Find(sysfs, device string) (Function, error) {
	dir := filepath.Join(sysfs, "bus/pci/devices", device)
	number, err := numberOf(dir, device)
	if err != nil {
		return Function{}, err
	}
	pf, err := pfOf(dir)
	if err != nil {
		return Function{}, err
	}
	link, err := netlink.LinkByName(pf)
	if err != nil {
		return Function{}, fmt.Errorf("read PF %s of VF %s: %w", pf, device, err)
	}
	for _, info := range link.Attrs().Vfs {
		if info.ID == number {
			return Function{Device: device, PF: link, Info: info}, nil
		}
	}
	// Without this error, a VF in a VLAN would pass for one without.
	return Function{}, fmt.Errorf("%w: VF %d (%s) of PF %s", ErrNoInfo, number, device, pf)
}

// Parent returns the interface of the node that is in the VF's segment: the PF or, if the PF puts the
// frames of the VF into a VLAN, the subinterface of this VLAN. The error wraps ErrNoVLAN if there is no
// such subinterface.
func (f Function) Parent() (*netlink.LinkAttrs, error) {
	pf := f.PF.Attrs()
	if f.Info.Vlan == 0 {
		return pf, nil
	}
	if f.Info.Vlan == DeadVLAN {
		return nil, fmt.Errorf("%w: PF %s has cut VF %s off by VLAN %d, since its pod was fenced; if that pod is gone, run ip link set %[2]s vf %[5]d vlan 0",
			ErrNoVLAN, pf.Name, f.Device, DeadVLAN, f.Info.ID)
	}
	links, err := wholelist.Of(netlink.LinkList)
	if err != nil {
		return nil, fmt.Errorf("look for VLAN %d of PF %s: %w", f.Info.Vlan, pf.Name, err)
	}
	if sub := subinterface(links, pf, f.Info.Vlan); sub != nil && f.Info.VlanProto != int(netlink.VLAN_PROTOCOL_8021AD) {
		return sub, nil
	}
	return nil, fmt.Errorf("%w: PF %s puts the frames of VF %s into VLAN %d", ErrNoVLAN, pf.Name, f.Device, f.Info.Vlan)
}

// subinterface returns the interface of a VLAN on a PF, or on the bond that the PF is in.
func subinterface(links []netlink.Link, pf *netlink.LinkAttrs, vlan int) *netlink.LinkAttrs {
	for _, l := range links {
		sub, ok := l.(*netlink.Vlan)
		if !ok || sub.VlanId != vlan || sub.VlanProtocol == netlink.VLAN_PROTOCOL_8021AD {
			continue
		}
		if on := sub.ParentIndex; on == pf.Index || on == pf.MasterIndex {
			return sub.Attrs()
		}
	}
	return nil
}

// UserDriver returns the driver by which a program drives a device itself, such as vfio-pci for DPDK. It
// is empty if the kernel drives the device, or if nothing does.
func UserDriver(sysfs, device string) string {
	driver, err := os.Readlink(filepath.Join(sysfs, "bus/pci/devices", filepath.Base(device), "driver"))
	if name := filepath.Base(driver); err == nil && slices.Contains([]string{"vfio-pci", "uio_pci_generic", "igb_uio"}, name) {
		return name
	}
	return ""
}

// UserDriven returns the VFs of the node that programs drive themselves, also those that are off. One whose PF says
// nothing is missing.
func UserDriven(sysfs string) (all []Function, err error) {
	links, err := filepath.Glob(filepath.Join(sysfs, "bus/pci/devices/*/physfn"))
	for _, link := range links {
		device := filepath.Base(filepath.Dir(link))
		if UserDriver(sysfs, device) == "" {
			continue
		}
		if f, err := Find(sysfs, device); err == nil {
			all = append(all, f)
		}
	}
	return all, err
}

// numberOf returns the number of a VF on its PF.
func numberOf(dir, device string) (int, error) {
	functions, err := filepath.Glob(filepath.Join(dir, "physfn", "virtfn*"))
	if err != nil {
		return 0, err
	}
	for _, function := range functions {
		to, err := os.Readlink(function)
		if err != nil || filepath.Base(to) != device {
			continue
		}
		return strconv.Atoi(strings.TrimPrefix(filepath.Base(function), "virtfn"))
	}
	return 0, fmt.Errorf("device %s is %w", device, ErrNoVF)
}

// pfOf returns the name of the PF's interface.
func pfOf(dir string) (string, error) {
	names, err := os.ReadDir(filepath.Join(dir, "physfn", "net"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("look for the PF: %w", err)
	}
	if len(names) == 1 {
		return names[0].Name(), nil
	}
	return "", fmt.Errorf("%w: VF %s, %d interfaces", ErrNoPF, filepath.Base(dir), len(names))
}
