// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"

	"github.com/vishvananda/netlink"
	namespace "github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// ErrNoDevice is returned if the interface or its network namespace does not exist.
var ErrNoDevice = errors.New("no such device")

// Device is an interface with an rtnetlink socket in its network namespace.
type Device struct {
	links *netlink.Handle
	// NetNS is the inode of the namespace, Index the ifindex in it.
	NetNS uint32
	Index int
	// Turned: it is the other end of a pod's veth. The frames that leave the pod come in here.
	Turned bool
}

// At returns the hook of the device for frames that leave the pod (egress) or come to it (ingress), under the name
// of that direction.
func (d *Device) At(dir Direction) Direction {
	if d.Turned {
		i := slices.Index(Directions[:], dir)
		opposite := Directions[len(Directions)-1-i]
		dir.Hook, dir.clsact = opposite.Hook, opposite.clsact
	}
	return dir
}

// OpenDevice opens a device by name in the namespace at path; "" is the calling thread's. It
// returns ErrNoDevice if the namespace or the device does not exist.
func OpenDevice(path, name string) (*Device, error) {
	d, err := openNetNS(path)
	if err != nil {
		return nil, err
	}
	link, err := d.links.LinkByName(name)
	if err != nil {
		d.Close()
		return nil, NoDevice(fmt.Errorf("look up %s: %w", name, err))
	}
	d.Index = link.Attrs().Index
	return d, nil
}

// OpenIndex is OpenDevice by ifindex: the device may have been renamed.
func OpenIndex(path string, index int) (*Device, error) {
	d, err := openNetNS(path)
	if err != nil {
		return nil, err
	}
	return d, d.at(index)
}

// OpenTurned opens the other end of a pod's veth by its ifindex in the calling thread's network namespace.
func OpenTurned(index int) (*Device, error) {
	d, err := OpenIndex("", index)
	if err == nil {
		d.Turned = true
	}
	return d, err
}

// at is the device with an ifindex in the namespace of d. It closes d if there is none.
func (d *Device) at(index int) error {
	if _, err := d.links.LinkByIndex(index); err != nil {
		d.Close()
		return NoDevice(fmt.Errorf("look up ifindex %d: %w", index, err))
	}
	d.Index = index
	return nil
}

// ReopenDevice opens a device by namespace and ifindex, since it may have been renamed. It returns
// ErrNoDevice if it does not exist.
func ReopenDevice(path string, inode uint32, index int) (*Device, error) {
	ns, present, err := netnsAt(path)
	if err != nil {
		return nil, err
	}
	defer ns.Close()
	// Check this first: a runtime may leave a file that is no longer a namespace.
	if present != inode {
		return nil, fmt.Errorf("%w: %s is not the device's network namespace any more", ErrNoDevice, path)
	}
	d, err := openIn(path, ns, present)
	if err != nil {
		return nil, err
	}
	return d, d.at(index)
}

// openNetNS opens a namespace without a device.
func openNetNS(path string) (*Device, error) {
	ns, inode, err := netnsAt(path)
	if err != nil {
		return nil, err
	}
	defer ns.Close()
	return openIn(path, ns, inode)
}

func openIn(path string, ns namespace.NsHandle, inode uint32) (*Device, error) {
	links, err := netlink.NewHandleAt(ns, unix.NETLINK_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("%s: open rtnetlink socket in the network namespace: %w", path, err)
	}
	return &Device{links: links, NetNS: inode}, nil
}

// netnsAt opens the namespace at path and returns its inode; "" is the calling thread's.
func netnsAt(path string) (ns namespace.NsHandle, inode uint32, err error) {
	if path == "" {
		ns, err = namespace.Get()
	} else {
		ns, err = namespace.GetFromPath(path)
	}
	if err != nil {
		return ns, 0, NoDevice(fmt.Errorf("open network namespace: %w", err))
	}
	var st unix.Stat_t
	if err := unix.Fstat(int(ns), &st); err != nil {
		return ns, 0, fmt.Errorf("identify network namespace: %w", errors.Join(err, ns.Close()))
	}
	return ns, uint32(st.Ino), nil
}

// NetNS returns the inode of the network namespace at path. It returns ErrNoDevice if there is none.
func NetNS(path string) (inode uint32, err error) {
	ns, inode, err := netnsAt(path)
	if err != nil {
		return 0, err
	}
	return inode, ns.Close()
}

// NoDevice wraps errors of a missing device or namespace in ErrNoDevice.
func NoDevice(err error) error {
	_, missing := errors.AsType[netlink.LinkNotFoundError](err)
	if missing || errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENODEV) {
		return fmt.Errorf("%w: %w", ErrNoDevice, err)
	}
	return err
}

// Close closes the socket.
func (d *Device) Close() { d.links.Close() }

// IsGone reports whether err means that the device or its namespace does not exist.
func IsGone(err error) bool { return errors.Is(NoDevice(err), ErrNoDevice) }
