package pod

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// Kind is the kernel's name for a kind of link (IFLA_INFO_KIND).
type Kind string

// Kinds whose parent is found. The kernel has no name for a device of its own,
// such as an SR-IOV VF.
const (
	MACVLAN Kind = "macvlan"
	MACVTAP Kind = "macvtap"
	IPVLAN  Kind = "ipvlan"
)

// Interface is a pod's interface at the time of the look.
type Interface struct {
	Name string
	// Index is the ifindex in the pod's namespace.
	Index int
	MAC   net.HardwareAddr
	Kind  Kind
	// Up is the administrative state (IFF_UP). It is false when the IPAM of the
	// plugin that made the interface runs.
	Up bool
	// Parent is the link that the interface hangs on, in the node's namespace.
	Parent Parent
}

// Parent is a link in the node's namespace.
type Parent struct {
	Index int
	Name  string
}

// Finder looks at pods' interfaces from the node's network namespace. Safe for
// concurrent use.
type Finder struct {
	host netns.NsHandle
	// names is a socket of the node's namespace that takes ioctls.
	names *os.File
}

// NewFinder returns a Finder of the calling thread's network namespace.
func NewFinder() (*Finder, error) {
	host, err := netns.Get()
	if err != nil {
		return nil, fmt.Errorf("open the node's network namespace: %w", err)
	}
	names, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open a socket on the node: %w", errors.Join(err, host.Close()))
	}
	return &Finder{host, os.NewFile(uintptr(names), "names of the node's links")}, nil
}

// Close gives up what the Finder holds of the namespace.
func (f *Finder) Close() error { return errors.Join(f.names.Close(), f.host.Close()) }

// Find looks at the interface called name in the namespace at path.
//
// The error wraps one of the package's errors where the reason is one of
// theirs. With ErrNoParent and ErrForeignParent the rest of the Interface is valid.
func (f *Finder) Find(path, name string) (Interface, error) {
	i, err := f.find(path, name)
	if err != nil {
		return i, fmt.Errorf("find interface %s in %s: %w", name, path, err)
	}
	return i, nil
}

func (f *Finder) find(path, name string) (Interface, error) {
	inside, err := open(path)
	if err != nil {
		return Interface{}, err
	}
	defer inside.Close()
	if inside.Equal(f.host) {
		return Interface{}, ErrHostNetNS
	}
	links, err := netlink.NewHandleAt(inside, unix.NETLINK_ROUTE)
	if err != nil {
		return Interface{}, fmt.Errorf("open a netlink socket in it: %w", err)
	}
	defer links.Close()
	// Before the link: the library leaves the acknowledgement of that question in
	// the socket, which the next one would have to read.
	hostID, err := links.GetNetNsIdByFd(int(f.host))
	if err != nil {
		return Interface{}, fmt.Errorf("ask for the ID of the node's network namespace: %w", err)
	}
	link, err := links.LinkByName(name)
	if _, missing := errors.AsType[netlink.LinkNotFoundError](err); missing {
		return Interface{}, ErrNoInterface
	}
	if err != nil {
		return Interface{}, fmt.Errorf("read the link: %w", err)
	}
	attrs := link.Attrs()
	found := Interface{
		Name:  attrs.Name,
		Index: attrs.Index,
		MAC:   attrs.HardwareAddr,
		Kind:  kind(link),
		Up:    attrs.RawFlags&unix.IFF_UP != 0,
	}
	found.Parent, err = f.parent(link, hostID)
	return found, err
}

// open opens a namespace and makes sure that it is one, of the network.
func open(path string) (netns.NsHandle, error) {
	h, err := netns.GetFromPath(path)
	if errors.Is(err, fs.ErrNotExist) {
		return netns.None(), ErrNoNetNS
	}
	if err != nil {
		return netns.None(), fmt.Errorf("open it: %w", err)
	}
	if kind, err := unix.IoctlRetInt(int(h), unix.NS_GET_NSTYPE); err != nil || kind != unix.CLONE_NEWNET {
		h.Close()
		return netns.None(), ErrNotNetNS
	}
	return h, nil
}

// parent resolves IFLA_LINK. The number alone does not tell in which namespace
// it counts; IFLA_LINK_NETNSID does, as an ID that the pod's namespace has for
// the other one, hostID for the node's. It is absent when both ends are in the
// same namespace.
func (f *Finder) parent(link netlink.Link, hostID int) (Parent, error) {
	attrs := link.Attrs()
	if !hasParent(kind(link)) || attrs.ParentIndex == 0 {
		return Parent{}, fmt.Errorf("%w: kind %q", ErrNoParent, link.Type())
	}
	if attrs.NetNsID < 0 {
		return Parent{}, fmt.Errorf("%w: it is in the pod's", ErrForeignParent)
	}
	if attrs.NetNsID != hostID {
		return Parent{}, fmt.Errorf("%w: it is in the one with ID %d, the node's has %d", ErrForeignParent, attrs.NetNsID, hostID)
	}
	name, err := f.name(attrs.ParentIndex)
	if err != nil {
		return Parent{}, fmt.Errorf("read the name of the parent, ifindex %d: %w", attrs.ParentIndex, err)
	}
	return Parent{Index: attrs.ParentIndex, Name: name}, nil
}

// name asks for the name alone (netdevice(7)): all that netlink tells of a link
// takes several times as long.
func (f *Finder) name(index int) (string, error) {
	var request unix.Ifreq
	request.SetUint32(uint32(index))
	if err := unix.IoctlIfreq(int(f.names.Fd()), unix.SIOCGIFNAME, &request); err != nil {
		return "", err
	}
	return request.Name(), nil
}

// kind is empty for devices that the kernel has no kind for; netlink calls them "device".
func kind(link netlink.Link) Kind {
	if link.Type() == "device" {
		return ""
	}
	return Kind(link.Type())
}

func hasParent(k Kind) bool { return k == MACVLAN || k == MACVTAP || k == IPVLAN }
