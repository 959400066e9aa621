// SPDX-License-Identifier: Apache-2.0

// Package network builds small networks out of named network namespaces, bridges and veth pairs.
package network

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/fenceline/fenceline/test/interrupted"
	"github.com/fenceline/fenceline/test/must"
)

// Namespace is a network namespace. Its methods may be called at the same time from several goroutines.
type Namespace struct {
	Name   string
	path   string
	handle netns.NsHandle
	links  *netlink.Handle
	mounts *os.File // the mount namespace of Do; nil if it is the process's
	record *record  // nil if its bridges record nothing
}

// Create makes a namespace with its loopback interface up. It fails if the name is taken.
func Create(name string) (_ *Namespace, err error) {
	defer must.CatchIn(&err, "create network namespace %s", name)
	must.OK(shareNamedDir())
	must.OK(onOwnThread(func() error {
		h := must.Value(netns.NewNamed(name))
		return h.Close()
	}))
	ns, err := Open(name)
	if err != nil {
		return nil, errors.Join(err, netns.DeleteNamed(name))
	}
	if err := ns.up("lo"); err != nil {
		return nil, errors.Join(err, ns.Delete())
	}
	return ns, nil
}

// Open opens a named namespace that exists.
func Open(name string) (*Namespace, error) { return open(name, filepath.Join(namedDir, name)) }

// OfProcess opens the namespace that a process lives in.
func OfProcess(pid int) (*Namespace, error) {
	return open(fmt.Sprintf("the namespace of process %d", pid), fmt.Sprintf("/proc/%d/ns/net", pid))
}

// Current opens the namespace that the calling thread lives in.
func Current() (*Namespace, error) { return open("the current namespace", "/proc/thread-self/ns/net") }

func open(name, path string) (*Namespace, error) {
	h, err := netns.GetFromPath(path)
	if err != nil {
		return nil, fmt.Errorf("open network namespace %s: %w", name, err)
	}
	links, err := netlink.NewHandleAt(h)
	if err != nil {
		h.Close()
		return nil, fmt.Errorf("open a netlink socket in network namespace %s: %w", name, err)
	}
	return &Namespace{Name: name, path: path, handle: h, links: links}, nil
}

// Remove deletes the namespace of that name; it is no error if there is none.
func Remove(name string) error {
	path := filepath.Join(namedDir, name)
	err := unix.Unmount(path, unix.MNT_DETACH)
	if err == nil || errors.Is(err, unix.EINVAL) { // a file on which nothing is mounted
		err = os.Remove(path)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("delete network namespace %s: %w", name, err)
	}
	return nil
}

// Path returns the file by which setns and nsenter reach the namespace.
func (n *Namespace) Path() string { return n.path }

// Links returns the netlink handle of the namespace.
func (n *Namespace) Links() *netlink.Handle { return n.links }

// Close releases the handles; the namespace stays.
func (n *Namespace) Close() error {
	if !n.handle.IsOpen() {
		return nil
	}
	n.links.Close()
	n.links = nil // a closed handle would act on the namespace of its caller
	var unmounted error
	if n.mounts != nil {
		unmounted = n.mounts.Close()
	}
	return errors.Join(n.EndRecord(), unmounted, n.handle.Close())
}

// Delete closes and removes the namespace. The kernel ends it when its last process has left.
func (n *Namespace) Delete() error { return errors.Join(n.Close(), Remove(n.Name)) }

// Do runs fn on a thread that is in the namespace. Sockets that fn opens
// belong to the namespace for ever; goroutines that fn starts do not run in it. fn may fail by package must.
func (n *Namespace) Do(fn func() error) error {
	return onOwnThread(func() error {
		must.Done(n.enter(), "enter network namespace %s", n.Name)
		return fn()
	})
}

// enter moves the calling thread into the namespace.
func (n *Namespace) enter() error {
	if err := netns.Set(n.handle); err != nil || n.mounts == nil {
		return err
	}
	// The threads of a process share their root and working directory, which each mount namespace has its own of.
	if err := unix.Unshare(unix.CLONE_FS); err != nil {
		return err
	}
	return unix.Setns(int(n.mounts.Fd()), unix.CLONE_NEWNS)
}

// MountSysfs has Do run in a mount namespace of its own, in which /sys shows the devices of this network
// namespace, as on a machine, and the cgroups. Later mounts appear there too if their mount point is shared.
func (n *Namespace) MountSysfs() (err error) {
	defer must.CatchIn(&err, "mount the sysfs of network namespace %s", n.Name)
	return n.Do(func() (err error) {
		must.OK(unix.Unshare(unix.CLONE_NEWNS))
		must.OK(unix.Mount("", "/", "", unix.MS_REC|unix.MS_SLAVE, ""))
		must.OK(unix.Mount("sysfs", "/sys", "sysfs", 0, ""))
		must.OK(unix.Mount("cgroup2", "/sys/fs/cgroup", "cgroup2", 0, ""))
		n.mounts, err = os.Open("/proc/thread-self/ns/mnt")
		return err
	})
}

// Command returns a command of this machine that will run in the namespace.
func (n *Namespace) Command(ctx context.Context, name string, args ...string) *exec.Cmd {
	return exec.CommandContext(ctx, "nsenter", append([]string{"--net=" + n.Path(), "--", name}, args...)...)
}

// PacketSocket opens a packet socket for the frames of a protocol on all interfaces, or of none for 0. The flags
// are those of socket(2).
func (n *Namespace) PacketSocket(protocol uint16, flags int) (socket int, err error) {
	defer must.CatchIn(&err, "open a packet socket in %s", n.Name)
	err = n.Do(func() (err error) {
		// The kernel wants the protocol in network byte order.
		socket, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC|flags, int(protocol>>8|protocol<<8))
		return err
	})
	return socket, err
}

// onOwnThread runs fn on a thread that ends afterwards: the goroutine never
// unlocks it, so no other goroutine can inherit a changed namespace.
func onOwnThread(fn func() error) error {
	result := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		result <- must.Try(func() { must.OK(fn()) })
	}()
	return <-result
}

// Names returns the named namespaces that begin with prefix.
func Names(prefix string) ([]string, error) {
	names, err := filepath.Glob(filepath.Join(namedDir, prefix+"*"))
	for i := range names {
		names[i] = filepath.Base(names[i])
	}
	return names, err
}

// namedDir is where iproute2 keeps named network namespaces.
const namedDir = "/run/netns"

// shareNamedDir makes the directory a mount point, as the first `ip netns add` of a machine does. After that one,
// the namespaces that were mounted there before could be neither entered nor removed by their names.
func shareNamedDir() (err error) {
	defer must.CatchIn(&err, "share %s", namedDir)
	must.OK(os.MkdirAll(namedDir, 0o755))
	dir := must.Value(os.Open(namedDir))
	defer dir.Close()
	// Two that make it one at the same time would cover each other's; iproute2 takes the same lock.
	must.OK(interrupted.Repeat(func() error { return unix.Flock(int(dir.Fd()), unix.LOCK_EX) }))
	err = unix.Mount("", namedDir, "none", unix.MS_SHARED|unix.MS_REC, "")
	if !errors.Is(err, unix.EINVAL) { // which says that it is no mount point
		return err
	}
	must.OK(unix.Mount(namedDir, namedDir, "none", unix.MS_BIND|unix.MS_REC, ""))
	// As a peer of a shared root, it would have each namespace mounted twice, of which Linux 6.12 may leave one.
	must.OK(unix.Mount("", namedDir, "none", unix.MS_PRIVATE|unix.MS_REC, ""))
	return unix.Mount("", namedDir, "none", unix.MS_SHARED|unix.MS_REC, "")
}
