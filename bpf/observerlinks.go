package bpf

import (
	"errors"
	"fmt"
	"os"

	"github.com/cilium/ebpf/link"
)

// ObserverLinks numbers the two attachments of a parent's observer, 0 where there is none. The kernel never uses a
// number again: who finds the same ones twice knows that no frame has passed unseen in between, since whoever takes
// the observer off, or hides frames from it, makes AttachObserver attach anew.
func (k *Kernel) ObserverLinks(parent int) ([2]uint32, error) {
	if k.noTCX.Load() {
		ids, err := firstFilters(parent)
		if err != nil {
			return ids, fmt.Errorf("number the observer of ifindex %d: %w", parent, err)
		}
		return ids, nil
	}
	var ids [2]uint32
	for i, d := range directions {
		id, err := k.dir.observer(parent).link(d)
		if err != nil {
			return [2]uint32{}, fmt.Errorf("number the observer of ifindex %d: %w", parent, err)
		}
		ids[i] = id
	}
	return ids, nil
}

// link is the kernel's number of a pinned link, 0 if nothing is pinned or the device is gone.
func (p pinPair) link(d direction) (uint32, error) {
	l, err := link.LoadPinnedLink(p.path(d), nil)
	if errors.Is(err, os.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("open pinned link %s: %w", p.path(d), err)
	}
	defer l.Close()
	info, err := l.Info()
	if err != nil {
		return 0, fmt.Errorf("query pinned link %s: %w", p.path(d), err)
	}
	if info.TCX().Ifindex == 0 {
		return 0, nil
	}
	return uint32(info.ID), nil
}
