// SPDX-License-Identifier: Apache-2.0

// Package network builds small networks out of named network namespaces,
// bridges and veth pairs.
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
)

// Namespace is a network namespace. Its methods may be called at the
// same time from several goroutines.
type Namespace struct {
	Name   string
	path   string
	handle netns.NsHandle
	links  *netlink.Handle
	mounts *os.File // the mount namespace of Do; nil if it is the process's
	record *record  // nil if its bridges record nothing
}

// Create makes a namespace with its loopback interface up. It fails if the
// name is taken.
func Create(name string) (*Namespace, error) {
	if err := shareNamedDir(); err != nil {
		return nil, fmt.Errorf("create network namespace %s: %w", name, err)
	}
	err := onOwnThread(func() error {
		h, err := netns.NewNamed(name)
		if err != nil {
			return err
		}
		return h.Close()
	})
	if err != nil {
		return nil, fmt.Errorf("create network namespace %s: %w", name, err)
	}
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
func Open(name string) (*Namespace, error) {
	return open(name, filepath.Join(namedDir, name))
}

// OfProcess opens the namespace that a process lives in.
func OfProcess(pid int) (*Namespace, error) {
	return open(fmt.Sprintf("the namespace of process %d", pid), fmt.Sprintf("/proc/%d/ns/net", pid))
}

// Current opens the namespace that the calling thread lives in.
func Current() (*Namespace, error) {
	return open("the current namespace", "/proc/thread-self/ns/net")
}

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

// Delete closes and removes the namespace. The kernel ends it when its last
// process has left.
func (n *Namespace) Delete() error {
	return errors.Join(n.Close(), Remove(n.Name))
}

// Do runs fn on a thread that is in the namespace. Sockets that fn opens
// belong to the namespace for ever; goroutines that fn starts do not run in it.
func (n *Namespace) Do(fn func() error) error {
	return onOwnThread(func() error {
		if err := n.enter(); err != nil {
			return fmt.Errorf("enter network namespace %s: %w", n.Name, err)
		}
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
// namespace, as on a machine. Later mounts appear there too if their mount point is shared.
func (n *Namespace) MountSysfs() error {
	err := n.Do(func() error {
		if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
			return err
		}
		if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_SLAVE, ""); err != nil {
			return err
		}
		if err := unix.Mount("sysfs", "/sys", "sysfs", 0, ""); err != nil {
			return err
		}
		mounts, err := os.Open("/proc/thread-self/ns/mnt")
		n.mounts = mounts
		return err
	})
	if err != nil {
		return fmt.Errorf("mount the sysfs of network namespace %s: %w", n.Name, err)
	}
	return nil
}

// Command returns a command of this machine that will run in the namespace.
func (n *Namespace) Command(ctx context.Context, name string, args ...string) *exec.Cmd {
	return exec.CommandContext(ctx, "nsenter", append([]string{"--net=" + n.Path(), "--", name}, args...)...)
}

// onOwnThread runs fn on a thread that ends afterwards: the goroutine never
// unlocks it, so no other goroutine can inherit a changed namespace.
func onOwnThread(fn func() error) error {
	result := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		result <- fn()
	}()
	return <-result
}

// Names returns the named namespaces that begin with prefix.
func Names(prefix string) ([]string, error) {
	entries, err := os.ReadDir(namedDir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list network namespaces: %w", err)
	}
	var names []string
	for _, e := range entries {
		if len(e.Name()) >= len(prefix) && e.Name()[:len(prefix)] == prefix {
			names = append(names, e.Name())
		}
	}
	return names, nil
}
