// SPDX-License-Identifier: Apache-2.0

package parent

import (
	"errors"
	"fmt"
	"runtime"
	"unsafe"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// LookForHazards reads the facts about a parent of the calling network namespace. others returns the programs
// of others on the parent, and blocked why something is in the place of the observer. below returns
// the parent and the devices below it. rewrites returns an error if one of them changes MACs.
func LookForHazards(parent int, others func(int) ([]string, error), blocked func(int) error, below func(int) ([]netlink.Link, error), rewrites func([]netlink.Link) error) (f HazardFacts, err error) {
	way, err := below(parent)
	if _, missing := errors.AsType[netlink.LinkNotFoundError](err); missing && len(way) == 0 {
		return HazardFacts{}, nil // it is reported elsewhere
	}
	if err != nil {
		return HazardFacts{Unread: HazardKinds()}, fmt.Errorf("read the parent and the devices below it: %w", err)
	}
	for _, link := range way {
		if xdp := link.Attrs().Xdp; xdp != nil && xdp.Attached {
			f.XDP = append(f.XDP, fmt.Sprintf("%d on %s", xdp.ProgId, link.Attrs().Name))
		}
	}
	f.Rewrites, f.Blocked = rewrites(way), blocked(parent)
	var unread, silent error
	if f.Others, unread = others(parent); unread != nil {
		f.Unread = append(f.Unread, Programs)
		unread = fmt.Errorf("list the programs of others: %w", unread)
	}
	if f.Offload, silent = feature(way[0].Attrs().Name, "l2-fwd-offload"); silent != nil {
		f.Unread = append(f.Unread, Offload)
		silent = fmt.Errorf("ask for its features: %w", silent)
	}
	return f, errors.Join(unread, silent)
}

// The requests of ethtool (linux/ethtool.h).
const (
	stringsOf  = 0x1b // ETHTOOL_GSTRINGS
	sizeOf     = 0x37 // ETHTOOL_GSSET_INFO
	featuresOf = 0x3a // ETHTOOL_GFEATURES
	features   = 4    // ETH_SS_FEATURES
	// stringLength is ETH_GSTRING_LEN in words, and most bounds the number of features.
	stringLength, most = 32 / 4, 1024
)

// feature reports whether a feature of a device is on. On a device without features it is off.
func feature(device, name string) (on bool, err error) {
	socket, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return false, err
	}
	defer unix.Close(socket)
	size := []uint32{sizeOf, 0, 1 << features, 0, 0}
	if err := ethtool(socket, device, size); errors.Is(err, unix.EOPNOTSUPP) {
		return false, nil
	} else if err != nil {
		return false, err
	}
	n := min(size[4], most)
	if size[2] == 0 || n == 0 {
		return false, nil
	}
	names := append([]uint32{stringsOf, features, n}, make([]uint32, n*stringLength)...)
	blocks := (n + 31) / 32
	states := append([]uint32{featuresOf, blocks}, make([]uint32, blocks*4)...)
	if err := errors.Join(ethtool(socket, device, names), ethtool(socket, device, states)); err != nil {
		return false, err
	}
	return isOn(names[3:], states[2:], name), nil
}

// isOn reports whether a feature is on. The index of its name is the number of its bit. Each block
// has four words for 32 features, and the third word has the active ones.
func isOn(names, states []uint32, name string) bool {
	for i := range len(names) / stringLength {
		text := unsafe.Slice((*byte)(unsafe.Pointer(&names[i*stringLength])), stringLength*4)
		if unix.ByteSliceToString(text) == name {
			word := i/32*4 + 2
			return word < len(states) && states[word]&(1<<(i%32)) != 0
		}
	}
	return false
}

// ethtool makes a request. The kernel writes its answer into the data.
func ethtool(socket int, device string, data []uint32) error {
	var request struct {
		name [unix.IFNAMSIZ]byte
		data unsafe.Pointer
		_    [16]byte
	}
	copy(request.name[:unix.IFNAMSIZ-1], device)
	request.data = unsafe.Pointer(&data[0])
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(socket), unix.SIOCETHTOOL, uintptr(unsafe.Pointer(&request)))
	runtime.KeepAlive(data)
	if errno != 0 {
		return errno
	}
	return nil
}
