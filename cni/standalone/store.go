// SPDX-License-Identifier: Apache-2.0

package standalone

import (
	"cmp"
	"encoding/json"
	"errors"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/containernetworking/plugins/plugins/ipam/host-local/backend/disk"
	"golang.org/x/sys/unix"

	"github.com/fenceline/fenceline/cni/agentapi"
)

// defaultDataDir is the one of host-local, which does not export it.
const defaultDataDir = "/var/lib/cni/networks"

// bootAttribute marks a file with the boot in which it was written. host-local neither reads nor
// sets it. A file system without attributes, such as tmpfs before Linux 6.6, does not survive a boot.
const bootAttribute = "user.fenceline.boot"

// hostAttribute marks a file with the host name of its machine, since machines may share a directory.
// Kubernetes demands that host names differ.
const hostAttribute = "user.fenceline.host"

// store is host-local's store, with a memory of the addresses that other hosts use.
type store struct {
	*disk.Store
	dir string
	// call is the call that opened the store. Its Booted is zero if times in dir do not tell the boot.
	call Call
	// memory is valid while the lock is held, and nil without conflict detection.
	memory *memory
	// detect: addresses that other hosts have used are passed over, unless insist is set.
	detect, insist bool
	// used are the addresses that no host can have, and those of hosts that answered this call.
	used []netip.Addr
	// passed is the number of addresses that were passed over.
	passed int
	// reserved are the addresses of this call.
	reserved []net.IP
	failed   error
}

// open opens the data files of the network. It does not check the ranges.
func (c Call) open() (*store, error) {
	var conf struct {
		Name string `json:"name"`
		IPAM struct {
			DataDir string `json:"dataDir"`
		} `json:"ipam"`
	}
	if err := json.Unmarshal(c.Conf, &conf); err != nil {
		return nil, agentapi.Errorf(agentapi.CodeDecodingFailure, "decode the network configuration: %w", err)
	}
	dataDir := cmp.Or(conf.IPAM.DataDir, defaultDataDir)
	s, err := disk.New(conf.Name, dataDir)
	if err != nil {
		return nil, ioError(`open the data files of network %q in "ipam.dataDir" %q: %w`, conf.Name, dataDir, err)
	}
	opened := &store{Store: s, dir: filepath.Join(dataDir, conf.Name), call: c}
	var volume unix.Statfs_t
	if unix.Statfs(opened.dir, &volume) != nil || !isLocal(volume.Type) {
		opened.call.Booted = time.Time{}
	}
	return opened, nil
}

// isLocal reports whether a type of file system (statfs(2)) is of this machine alone, so that its clock
// has set the times of the files.
func isLocal(magic int64) bool {
	const zfs = 0x2fc12fc1
	return slices.Contains([]int64{
		unix.EXT4_SUPER_MAGIC, unix.XFS_SUPER_MAGIC, unix.BTRFS_SUPER_MAGIC, unix.F2FS_SUPER_MAGIC, zfs, unix.OVERLAYFS_SUPER_MAGIC, unix.TMPFS_MAGIC,
	}, magic)
}

// Lock locks the directory and reads the memory. The allocator ignores its error, which the next
// Reserve returns.
func (s *store) Lock() error {
	s.failed = s.Store.Lock()
	if s.failed == nil && s.detect {
		s.memory, s.failed = readMemory(s.dir, s.call.Now())
	}
	return s.failed
}

func (s *store) locked(fn func() error) error {
	if err := s.Lock(); err != nil {
		return errors.Join(ioError("lock %s: %w", s.dir, err), s.Unlock())
	}
	return errors.Join(fn(), s.Unlock())
}

// Reserve reserves an address for the attachment, and reports false if it is taken.
func (s *store) Reserve(id, ifname string, ip net.IP, rangeID string) (bool, error) {
	if s.failed != nil {
		return false, ioError("lock %s: %w", s.dir, s.failed)
	}
	if slices.Contains(s.used, addrOf(ip)) {
		return false, nil
	}
	if s.memory != nil && !s.insist && s.memory.knows(addrOf(ip)) {
		s.passed++
		return false, nil
	}
	reserved, err := s.Store.Reserve(id, ifname, ip, rangeID)
	if err != nil {
		// The reference leaves the file if only the file of the last address failed.
		return false, ioError("write the data file of %s in %s: %w", ip, s.dir, errors.Join(err, s.free(ip)))
	}
	if reserved {
		s.reserved = append(s.reserved, ip)
		s.mark(ip)
	}
	return reserved, nil
}

// mark marks a file with this machine and this boot. Without the marks only DEL and GC free the address.
func (s *store) mark(ip net.IP) {
	path := disk.GetEscapedPath(s.dir, ip.String())
	if unix.Setxattr(path, hostAttribute, []byte(s.call.Host), 0) == nil {
		_ = unix.Setxattr(path, bootAttribute, []byte(s.call.Boot), 0)
	}
}

// free removes the files of addresses that the attachment holds.
func (s *store) free(ips ...net.IP) error {
	return s.remove(func(e entry) bool {
		return e.isOneOf([]agentapi.Attachment{s.call.Attachment}) && slices.ContainsFunc(ips, net.IP(e.addr.AsSlice()).Equal)
	})
}

func (s *store) undo() error {
	return s.locked(func() error { return s.free(s.reserved...) })
}

// holderOf returns the container that has an address, and its machine. Without one, the container is "".
func (s *store) holderOf(ip net.IP) (container, host string) {
	found, _ := s.entries()
	for _, e := range found {
		if e.addr == addrOf(ip) {
			container, _, _ = strings.Cut(e.holder, disk.LineBreak)
			return container, e.host
		}
	}
	return "", ""
}

// entry is a data file, of a container on a machine.
type entry struct {
	addr netip.Addr
	path string
	// holder is "" if the content was lost.
	holder, host string
	// stale: the entry is of no living container.
	stale bool
}

// entries reads the data files. Files whose name is no address belong to others.
func (s *store) entries() ([]entry, error) {
	files, err := os.ReadDir(s.dir)
	if err != nil {
		return nil, ioError("read the data files: %w", err)
	}
	var found []entry
	for _, f := range files {
		addr, err := netip.ParseAddr(f.Name())
		if err != nil || f.IsDir() {
			continue
		}
		path := filepath.Join(s.dir, f.Name())
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, ioError("read the data file of %s: %w", addr, err)
		}
		info, err := f.Info()
		if err != nil {
			return nil, ioError("read the time of the data file of %s: %w", addr, err)
		}
		holder, host := strings.Trim(string(text), "\x00 \t\r\n"), cmp.Or(markOf(path, hostAttribute), s.call.Host)
		stale := host == s.call.Host && s.stale(holder, markOf(path, bootAttribute), info.ModTime())
		found = append(found, entry{addr.Unmap(), path, holder, host, stale})
	}
	return found, nil
}

func markOf(path, attribute string) string {
	buffer := make([]byte, 64)
	n, err := unix.Getxattr(path, attribute, buffer)
	if err != nil {
		return ""
	}
	return string(buffer[:n])
}

func (s *store) remove(which func(entry) bool) error {
	found, err := s.entries()
	if err != nil {
		return err
	}
	var errs []error
	for _, e := range slices.DeleteFunc(found, func(e entry) bool { return !which(e) }) {
		if err := os.Remove(e.path); err != nil {
			errs = append(errs, ioError("free %s: %w", e.addr, err))
		}
	}
	return errors.Join(errs...)
}

// sweep frees the addresses of entries that are stale, and reports whether there were any.
func (s *store) sweep() (swept bool, err error) {
	err = s.locked(func() error {
		return s.remove(func(e entry) bool {
			swept = swept || e.stale
			return e.stale
		})
	})
	return swept, err
}

// stale reports whether a file of this machine belongs to no living container. No container
// survives a boot. A file without a mark is of host-local, and its time tells whether it is older than
// the boot. A file without a holder was left by a power loss or by a plugin that was killed, since the
// lock keeps other calls from writing one now. The mark of this boot comes after the holder, so a marked
// file that has only lost its holder may belong to a living container.
func (s *store) stale(holder, mark string, written time.Time) bool {
	if mark == "" {
		return holder == "" || written.Before(s.call.Booted)
	}
	return mark != s.call.Boot
}

// isOneOf reports whether one of the attachments holds the entry. Old versions of host-local wrote
// no interface.
func (e entry) isOneOf(valid []agentapi.Attachment) bool {
	return slices.ContainsFunc(valid, func(a agentapi.Attachment) bool {
		id := strings.TrimSpace(a.ContainerID)
		return e.holder == id+disk.LineBreak+a.Interface || e.holder == id
	})
}

func addrOf(ip net.IP) netip.Addr {
	addr, _ := netip.AddrFromSlice(ip)
	return addr.Unmap()
}
