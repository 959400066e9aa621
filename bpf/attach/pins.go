// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
)

// NextSuffix marks the pin of a link that is about to replace another one, also after a crash.
const NextSuffix = "_next"

// Direction of frames through a device, with its tcx hook and its class of a clsact qdisc.
type Direction struct {
	Name   string
	Hook   ebpf.AttachType
	clsact uint32
}

// Directions are both directions. Egress comes first: to stop a pod from sending is more urgent.
var Directions = [...]Direction{
	{"egress", ebpf.AttachTCXEgress, netlink.HANDLE_MIN_EGRESS},
	{"ingress", ebpf.AttachTCXIngress, netlink.HANDLE_MIN_INGRESS},
}

// Pins is the directory of the two pinned links of one device.
type Pins string

// Path returns the pin of one link.
func (p Pins) Path(d Direction) string { return filepath.Join(string(p), d.Name) }

// On returns the ifindex of one link, 0 if the device is deleted; ok is false if there is no pin.
func (p Pins) On(d Direction) (ifindex uint32, ok bool, err error) { return deviceOf(p.Path(d)) }

// deviceOf is On for any pin.
func deviceOf(path string) (ifindex uint32, ok bool, err error) {
	info, err := infoOf(path)
	if err != nil || info == nil {
		return 0, false, err
	}
	return info.TCX().Ifindex, true, nil
}

// infoOf returns the kernel's description of a pinned link, nil if there is no pin.
func infoOf(path string) (*link.Info, error) {
	l, err := link.LoadPinnedLink(path, nil)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("open pinned link %s: %w", path, err)
	}
	defer l.Close()
	info, err := l.Info()
	if err != nil {
		return nil, fmt.Errorf("query pinned link %s: %w", path, err)
	}
	return info, nil
}

// Attached reports whether both links are on an existing device.
func (p Pins) Attached() (bool, error) {
	for _, d := range Directions {
		ifindex, ok, err := p.On(d)
		if err != nil || !ok || ifindex == 0 {
			return false, err
		}
	}
	return true, nil
}

// Gone reports whether none of these links, and none that was to replace one, is on an existing device.
func (p Pins) Gone() (bool, error) {
	for _, path := range p.paths() {
		ifindex, ok, err := deviceOf(path)
		if err != nil || (ok && ifindex != 0) {
			return false, err
		}
	}
	return true, nil
}

// Pinned reports whether a link of the pair, or one that was to replace it, is pinned.
func (p Pins) Pinned() (bool, error) {
	for _, path := range p.paths() {
		_, ok, err := deviceOf(path)
		if err != nil || ok {
			return ok, err
		}
	}
	return false, nil
}

// paths returns all paths of the pair that may have a pin.
func (p Pins) paths() (all []string) {
	for _, d := range Directions {
		all = append(all, p.Path(d), p.Path(d)+NextSuffix)
	}
	return all
}

// Remove detaches and unpins both links, if they exist, and those that were to replace them.
func (p Pins) Remove() error {
	for _, path := range p.paths() {
		if err := Unpin(path); err != nil {
			return err
		}
	}
	if err := os.RemoveAll(string(p)); err != nil {
		return fmt.Errorf("unpin %s: %w", p, err)
	}
	return nil
}

// Unpin detaches and unpins one link, if it exists.
func Unpin(path string) error {
	if err := Detach(path); err != nil {
		return err
	}
	if err := os.RemoveAll(path); err != nil {
		return fmt.Errorf("unpin %s: %w", path, err)
	}
	return nil
}

// Detach removes a pinned link from its device at once. Removing the pin does so some time later.
func Detach(path string) error {
	l, err := link.LoadPinnedLink(path, nil)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("open pinned link %s: %w", path, err)
	}
	defer l.Close()
	if err := l.Detach(); err != nil {
		return fmt.Errorf("detach %s: %w", path, err)
	}
	return nil
}

// Attach puts prog at the head of the device's chain, pins the link and replaces an earlier one.
// The new link enforces and is pinned before the old one is detached.
func (p Pins) Attach(d Direction, ifindex int, prog *ebpf.Program) error {
	if err := os.MkdirAll(string(p), 0o700); err != nil {
		return err
	}
	return renew(p.Path(d), func() (link.Link, error) {
		return link.AttachTCX(link.TCXOptions{Interface: ifindex, Program: prog, Attach: d.Hook, Anchor: link.Head()})
	})
}

// renew attaches a link and pins it at path, before it detaches the earlier one of this path.
func renew(path string, attach func() (link.Link, error)) error {
	next := path + NextSuffix
	if err := os.Remove(next); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("unpin %s: %w", next, err)
	}
	l, err := attach()
	if err != nil {
		return fmt.Errorf("attach %s: %w", filepath.Base(path), err)
	}
	defer l.Close()
	if err := l.Pin(next); err != nil {
		return fmt.Errorf("pin %s: %w", next, err)
	}
	if err := Detach(path); err != nil {
		return err
	}
	if err := os.Rename(next, path); err != nil {
		return fmt.Errorf("pin %s: %w", path, err)
	}
	return nil
}

// Replace replaces the program of the pinned link in place: no frame passes unguarded.
func (p Pins) Replace(d Direction, prog *ebpf.Program) error { return replace(p.Path(d), prog) }

// replace is Replace for any pin.
func replace(path string, prog *ebpf.Program) error {
	l, err := link.LoadPinnedLink(path, nil)
	if err != nil {
		return fmt.Errorf("open pinned link %s: %w", path, err)
	}
	defer l.Close()
	if err := l.Update(prog); err != nil {
		return fmt.Errorf("replace program of %s: %w", path, err)
	}
	return nil
}

// Reload puts other programs into the links that are on an existing device. If a crash has left
// only one half of a pair, the other half is missing until the next attach.
func (p Pins) Reload(load func() (Programs, error)) error {
	gone, err := p.Gone()
	if err != nil || gone {
		return err
	}
	programs, err := load()
	if err != nil {
		return err
	}
	defer programs.Close()
	for _, d := range Directions {
		ifindex, ok, err := p.On(d)
		if err != nil {
			return err
		}
		if !ok || ifindex == 0 {
			continue
		}
		if err := p.Replace(d, programs[d.Name]); err != nil {
			if gone, e := p.Gone(); e == nil && gone {
				return nil // the device was deleted meanwhile
			}
			return err
		}
	}
	return nil
}

// First reports whether the pinned link is the first of the device's chain, so that no other
// program hides frames from it.
func (p Pins) First(d Direction, ifindex int) (bool, error) {
	info, err := infoOf(p.Path(d))
	if err != nil || info == nil || info.TCX().Ifindex != uint32(ifindex) {
		return false, err
	}
	chain, err := link.QueryPrograms(link.QueryOptions{Target: ifindex, Attach: d.Hook})
	if err != nil {
		return false, fmt.Errorf("query %s chain of ifindex %d: %w", d.Name, ifindex, err)
	}
	return len(chain.Programs) > 0 && chain.Programs[0].ID == info.Program, nil
}

// LinkID returns the kernel's ID of a pinned link, 0 if there is no pin or no device.
func (p Pins) LinkID(d Direction) (uint32, error) {
	info, err := infoOf(p.Path(d))
	if err != nil || info == nil || info.TCX().Ifindex == 0 {
		return 0, err
	}
	return uint32(info.ID), nil
}
