package bpf

import (
	"errors"
	"fmt"
	"io/fs"

	"github.com/vishvananda/netlink"
	namespace "github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// device is a pod's interface, open for requests in its network namespace.
type device struct {
	links *netlink.Handle
	// netns is the inode of the namespace, index the device's number in it.
	netns uint32
	index int
}

// openDevice looks a device up by name in the namespace at path, "" being the calling thread's. It returns
// ErrNoDevice when either is gone.
func openDevice(path, name string) (*device, error) {
	d, err := openNetNS(path)
	if err != nil {
		return nil, err
	}
	link, err := d.links.LinkByName(name)
	if err != nil {
		d.close()
		return nil, noDevice(fmt.Errorf("look up %s: %w", name, err))
	}
	d.index = link.Attrs().Index
	return d, nil
}

// reopenDevice opens a device that was open before, whatever it is called now. It returns ErrNoDevice when it is gone.
func reopenDevice(path string, inode uint32, index int) (*device, error) {
	d, err := openNetNS(path)
	if err != nil {
		return nil, err
	}
	if d.netns != inode {
		err = fmt.Errorf("%w: %s is another namespace by now", ErrNoDevice, path)
	} else if _, err = d.links.LinkByIndex(index); err != nil {
		err = noDevice(fmt.Errorf("look up ifindex %d: %w", index, err))
	}
	if err != nil {
		d.close()
		return nil, err
	}
	d.index = index
	return d, nil
}

// openNetNS opens a namespace, without a device.
func openNetNS(path string) (*device, error) {
	ns, err := netnsAt(path)
	if err != nil {
		return nil, noDevice(fmt.Errorf("open network namespace: %w", err))
	}
	defer ns.Close()
	var st unix.Stat_t
	if err := unix.Fstat(int(ns), &st); err != nil {
		return nil, fmt.Errorf("identify network namespace: %w", err)
	}
	links, err := netlink.NewHandleAt(ns, unix.NETLINK_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("open a netlink socket in %s: %w", path, err)
	}
	return &device{links: links, netns: uint32(st.Ino)}, nil
}

func netnsAt(path string) (namespace.NsHandle, error) {
	if path == "" {
		return namespace.Get()
	}
	return namespace.GetFromPath(path)
}

// noDevice makes the errors that mean it ErrNoDevice.
func noDevice(err error) error {
	_, missing := errors.AsType[netlink.LinkNotFoundError](err)
	if missing || errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENODEV) {
		return fmt.Errorf("%w: %w", ErrNoDevice, err)
	}
	return err
}

func (d *device) close() { d.links.Close() }
