// SPDX-License-Identifier: Apache-2.0

package vf

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/fenceline/fenceline/test/must"
	"github.com/fenceline/fenceline/test/network"
)

// VF is a virtual function. The host calls its interface vf0, vf1 and so on.
type VF struct {
	Index int
	PCI   string
}

// Name returns the name of the interface while it is the host's.
func (v VF) Name() string { return "vf" + strconv.Itoa(v.Index) }

// devices has all PCI devices. The interfaces below it are those of one network namespace, see
// network.Namespace.MountSysfs.
const devices = "/sys/bus/pci/devices"

// poll is the time between two looks at the work of a driver, driverLimit the time for this work.
const (
	poll        = 10 * time.Millisecond
	driverLimit = 30 * time.Second
)

// SetVFs replaces the VFs of the PF by a number of new ones, and collects their interfaces. The
// interfaces of the earlier VFs disappear, in any namespace.
func (h *Host) SetVFs(number int) (err error) {
	defer must.CatchIn(&err, "make %d VFs of %s", number, h.Name)
	file := filepath.Join(devices, h.PCI, "sriov_numvfs")
	for _, n := range []int{0, number} { // the kernel changes a number only from or to none
		must.OK(os.WriteFile(file, []byte(strconv.Itoa(n)), 0))
	}
	return h.Collect()
}

// Drive gives a VF to a driver; empty is the one that the kernel chooses. Its interface disappears.
func (h *Host) Drive(v VF, driver string) (err error) {
	defer must.CatchIn(&err, "give VF %d of %s to driver %q", v.Index, h.Name, driver)
	dir := filepath.Join(devices, v.PCI)
	for _, step := range []struct{ file, text string }{
		{filepath.Join(dir, "driver_override"), driver + "\n"}, {filepath.Join(dir, "driver/unbind"), v.PCI}, {"/sys/bus/pci/drivers_probe", v.PCI},
	} {
		must.OK(os.WriteFile(step.file, []byte(step.text), 0))
	}
	if driver != "" {
		to := must.Value(os.Readlink(filepath.Join(dir, "driver")))
		must.That(filepath.Base(to) == driver, "it has driver %q", to)
	}
	return nil
}

// VFs lists the VFs of the card, also those whose interface is a pod's.
func (h *Host) VFs() (all []VF, err error) {
	defer must.CatchIn(&err, "list the VFs of %s", h.Name)
	for {
		target, err := os.Readlink(filepath.Join(devices, h.PCI, "virtfn"+strconv.Itoa(len(all))))
		if errors.Is(err, fs.ErrNotExist) {
			return all, nil
		}
		must.OK(err)
		all = append(all, VF{Index: len(all), PCI: filepath.Base(target)})
	}
}

// Collect moves to the host all interfaces of VFs that are neither the host's nor a pod's. It waits
// until each VF has an interface in one of the namespaces.
func (h *Host) Collect(pods ...*network.Namespace) (err error) {
	defer must.Catch(&err)
	for _, v := range must.Value(h.VFs()) {
		must.Done(h.collect(v, append(pods, h.Namespace)), "collect VF %d of %s", v.Index, h.Name)
	}
	return nil
}

func (h *Host) collect(v VF, owners []*network.Namespace) error {
	for deadline := time.Now().Add(driverLimit); ; time.Sleep(poll) {
		if name := interfaceOf(v.PCI); name != "" {
			link, err := netlink.LinkByName(name)
			if err != nil {
				return err
			}
			return move(link, h.Namespace, v.Name())
		}
		for _, ns := range owners {
			if _, err := NameIn(ns, v.PCI); err == nil {
				return nil
			}
		}
		if time.Now().After(deadline) {
			return errors.New("it has no interface")
		}
	}
}

// interfaceOf returns the name of a device's interface in the namespace of the calling thread's
// sysfs, or "" if it has none there.
func interfaceOf(pci string) string {
	entries, err := os.ReadDir(filepath.Join(devices, pci, "net"))
	if err != nil || len(entries) == 0 {
		return ""
	}
	return entries[0].Name()
}

// PF returns the name of the interface of the PF of a VF, as the host finds it.
func (h *Host) PF(v VF) (name string, err error) {
	return name, h.Do(func() error {
		name = interfaceOf(filepath.Join(v.PCI, "physfn"))
		return nil
	})
}

// NameIn returns the name of the interface of a PCI device in a namespace, as the drivers report it there.
func NameIn(ns *network.Namespace, pci string) (_ string, err error) {
	defer must.CatchIn(&err, "look for %s in %s", pci, ns.Name)
	for _, l := range must.Value(ns.Links().LinkList()) {
		if bus, err := BusInfo(ns, l.Attrs().Name); err == nil && bus == pci {
			return l.Attrs().Name, nil
		}
	}
	return "", errors.New("it has no interface there")
}

// BusInfo returns the PCI address of an interface by ETHTOOL_GDRVINFO.
func BusInfo(ns *network.Namespace, name string) (pci string, err error) {
	return pci, ns.Do(func() error {
		fd := must.Value(unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0))
		defer unix.Close(fd)
		info, err := unix.IoctlGetEthtoolDrvinfo(fd, name)
		if err == nil {
			pci = unix.ByteSliceToString(info.Bus_info[:])
		}
		return err
	})
}
