package bpf

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
)

// The pin directory: maps/<name>, guards/<slot>/<direction>, observers/<ifindex>/<direction>.
const (
	mapsDir      = "maps"
	guardsDir    = "guards"
	observersDir = "observers"
)

// nextSuffix marks a pin that is about to take another's place: of a link for a moment, of a map with a new layout
// until all programs use it. A crash is taken up from there.
const nextSuffix = "_next"

type pinDir string

func (d pinDir) guard(slot uint32) pinPair {
	return pinPair(filepath.Join(string(d), guardsDir, strconv.FormatUint(uint64(slot), 10)))
}

func (d pinDir) observer(parent int) pinPair {
	return pinPair(filepath.Join(string(d), observersDir, strconv.Itoa(parent)))
}

func (d pinDir) guards() ([]uint32, error)    { return d.numbers(guardsDir) }
func (d pinDir) observers() ([]uint32, error) { return d.numbers(observersDir) }

// pairs are those of all guards and observers.
func (d pinDir) pairs() ([]pinPair, error) {
	var pairs []pinPair
	slots, err := d.guards()
	if err != nil {
		return nil, err
	}
	for _, slot := range slots {
		pairs = append(pairs, d.guard(slot))
	}
	parents, err := d.observers()
	if err != nil {
		return nil, err
	}
	for _, parent := range parents {
		pairs = append(pairs, d.observer(int(parent)))
	}
	return pairs, nil
}

// numbers lists the pairs below kind; a missing directory has none.
func (d pinDir) numbers(kind string) ([]uint32, error) {
	entries, err := os.ReadDir(filepath.Join(string(d), kind))
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list pinned %s: %w", kind, err)
	}
	var numbers []uint32
	for _, e := range entries {
		n, err := strconv.ParseUint(e.Name(), 10, 32)
		if err != nil {
			return nil, fmt.Errorf("foreign entry %q among the pinned %s", e.Name(), kind)
		}
		numbers = append(numbers, uint32(n))
	}
	return numbers, nil
}

// direction of frames through a device, as tcx hooks and the classes of a clsact qdisc see it.
type direction struct {
	name   string
	attach ebpf.AttachType
	clsact uint32
}

// Egress comes first: what must not leave matters more than what comes in.
var directions = [...]direction{
	{"egress", ebpf.AttachTCXEgress, netlink.HANDLE_MIN_EGRESS},
	{"ingress", ebpf.AttachTCXIngress, netlink.HANDLE_MIN_INGRESS},
}

// pinPair is the directory of the two pinned links of one device.
type pinPair string

func (p pinPair) path(d direction) string { return filepath.Join(string(p), d.name) }

func (p pinPair) device(d direction) (ifindex uint32, ok bool, err error) { return deviceOf(p.path(d)) }

// deviceOf is the ifindex that a pinned link sits on: 0 when the device is gone, ok false when nothing is pinned.
func deviceOf(path string) (ifindex uint32, ok bool, err error) {
	l, err := link.LoadPinnedLink(path, nil)
	if errors.Is(err, os.ErrNotExist) {
		return 0, false, nil
	}
	if err != nil {
		return 0, false, fmt.Errorf("open pinned link %s: %w", path, err)
	}
	defer l.Close()
	info, err := l.Info()
	if err != nil {
		return 0, false, fmt.Errorf("query pinned link %s: %w", path, err)
	}
	return info.TCX().Ifindex, true, nil
}

// attached reports whether both links sit on a living device.
func (p pinPair) attached() (bool, error) {
	for _, d := range directions {
		ifindex, ok, err := p.device(d)
		if err != nil || !ok || ifindex == 0 {
			return false, err
		}
	}
	return true, nil
}

// gone reports whether no link of the pair sits on a living device any more, nor one that was to take its place.
func (p pinPair) gone() (bool, error) {
	for _, path := range p.paths() {
		ifindex, ok, err := deviceOf(path)
		if err != nil || (ok && ifindex != 0) {
			return false, err
		}
	}
	return true, nil
}

// pinned reports whether a link of the pair is pinned, or one that was to take its place, wherever it sits.
func (p pinPair) pinned() (bool, error) {
	for _, path := range p.paths() {
		_, ok, err := deviceOf(path)
		if err != nil || ok {
			return ok, err
		}
	}
	return false, nil
}

// paths are all that may be pinned.
func (p pinPair) paths() (all []string) {
	for _, d := range directions {
		all = append(all, p.path(d), p.path(d)+nextSuffix)
	}
	return all
}

// remove detaches and unpins both links, and what was to take their place. Removing twice is fine.
func (p pinPair) remove() error {
	for _, path := range p.paths() {
		if err := detach(path); err != nil {
			return err
		}
	}
	if err := os.RemoveAll(string(p)); err != nil {
		return fmt.Errorf("unpin %s: %w", p, err)
	}
	return nil
}

// detach takes a pinned link off its device at once: unpinning alone does so some time later.
func detach(path string) error {
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

// attach puts prog at the head of the device's chain and pins the link, in place of one pinned before: the new
// link enforces, and would outlive us, before the old one goes.
func (p pinPair) attach(d direction, ifindex int, prog *ebpf.Program) error {
	if err := os.MkdirAll(string(p), 0o700); err != nil {
		return err
	}
	next := p.path(d) + nextSuffix
	if err := os.Remove(next); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("unpin %s: %w", next, err)
	}
	l, err := link.AttachTCX(link.TCXOptions{
		Interface: ifindex, Program: prog, Attach: d.attach, Anchor: link.Head(),
	})
	if err != nil {
		return fmt.Errorf("attach %s: %w", d.name, err)
	}
	defer l.Close()
	if err := l.Pin(next); err != nil {
		return fmt.Errorf("pin %s: %w", next, err)
	}
	if err := detach(p.path(d)); err != nil {
		return err
	}
	if err := os.Rename(next, p.path(d)); err != nil {
		return fmt.Errorf("pin %s: %w", p.path(d), err)
	}
	return nil
}

// replace swaps the program of the pinned link in place: no frame passes in between.
func (p pinPair) replace(d direction, prog *ebpf.Program) error {
	l, err := link.LoadPinnedLink(p.path(d), nil)
	if err != nil {
		return fmt.Errorf("open pinned link %s: %w", p.path(d), err)
	}
	defer l.Close()
	if err := l.Update(prog); err != nil {
		return fmt.Errorf("replace program of %s: %w", p.path(d), err)
	}
	return nil
}
