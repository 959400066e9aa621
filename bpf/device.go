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
	ns, present, err := netnsAt(path)
	if err != nil {
		return nil, err
	}
	defer ns.Close()
	// Before anything is asked of it: a runtime may leave a file behind that is no namespace any more.
	if present != inode {
		return nil, fmt.Errorf("%w: %s is another namespace by now, or none", ErrNoDevice, path)
	}
	d, err := openIn(ns, present)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if _, err := d.links.LinkByIndex(index); err != nil {
		d.close()
		return nil, noDevice(fmt.Errorf("look up ifindex %d: %w", index, err))
	}
	d.index = index
	return d, nil
}

// openNetNS opens a namespace, without a device.
func openNetNS(path string) (*device, error) {
	ns, inode, err := netnsAt(path)
	if err != nil {
		return nil, err
	}
	defer ns.Close()
	d, err := openIn(ns, inode)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return d, nil
}

// openIn opens the socket for requests in a namespace.
func openIn(ns namespace.NsHandle, inode uint32) (*device, error) {
	links, err := netlink.NewHandleAt(ns, unix.NETLINK_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("open a netlink socket in the network namespace: %w", err)
	}
	return &device{links: links, netns: inode}, nil
}

// netnsAt opens what is at path, "" being the calling thread's namespace, and tells its inode.
func netnsAt(path string) (ns namespace.NsHandle, inode uint32, err error) {
	if path == "" {
		ns, err = namespace.Get()
	} else {
		ns, err = namespace.GetFromPath(path)
	}
	if err != nil {
		return ns, 0, noDevice(fmt.Errorf("open network namespace: %w", err))
	}
	var st unix.Stat_t
	if err := unix.Fstat(int(ns), &st); err != nil {
		return ns, 0, fmt.Errorf("identify network namespace: %w", errors.Join(err, ns.Close()))
	}
	return ns, uint32(st.Ino), nil
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
