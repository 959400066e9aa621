package bpf

import (
	"errors"
	"fmt"
	"slices"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// parentBridgePort is a flag of the parents map. Keep in sync with segment.h.
const parentBridgePort uint16 = 1 << 0

// AttachObserver puts the observer on the parent with this ifindex, which must be in the calling thread's network
// namespace, at the head of both chains. Calling it again refreshes what the programs know of the parent, completes
// a torn pair and takes the head back. It returns ErrNoDevice when there is no such interface.
func (k *Kernel) AttachObserver(parent int) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if err := k.attachObserver(parent); err != nil {
		return fmt.Errorf("attach observer to ifindex %d: %w", parent, err)
	}
	return nil
}

func (k *Kernel) attachObserver(parent int) error {
	if err := k.describeParent(parent); err != nil {
		return err
	}
	if k.noTCX.Load() {
		return k.observeByFilters(parent)
	}
	err := k.observeByLinks(parent)
	if errors.Is(err, ebpf.ErrNotSupported) {
		k.noTCX.Store(true)
		return k.observeByFilters(parent)
	}
	return err
}

func (k *Kernel) observeByLinks(parent int) error {
	pins := k.dir.observer(parent)
	gone, err := pins.gone()
	if err != nil {
		return err
	}
	if gone { // ifindexes are used again
		if err := pins.remove(); err != nil {
			return err
		}
	}
	var programs pair
	for _, d := range directions {
		first, err := pins.first(d, parent)
		if err != nil {
			return err
		}
		if first {
			continue
		}
		if programs == nil {
			if programs, err = k.loadObserverPair(uint32(parent)); err != nil {
				return err
			}
			defer programs.close()
		}
		if err := pins.attach(d, parent, programs[d.name]); err != nil {
			return err
		}
	}
	return nil
}

// describeParent tells the programs the parent's MAC and whether it is a bridge port, before the first frame.
func (k *Kernel) describeParent(parent int) error {
	dev, err := netlink.LinkByIndex(parent)
	if err != nil {
		return noDevice(fmt.Errorf("look up the parent: %w", err))
	}
	var p observerParent
	p.Mac.Part = macLayout(dev.Attrs().HardwareAddr)
	bridged, err := isBridgePort(dev)
	if err != nil {
		return err
	}
	if bridged {
		p.Flags |= parentBridgePort
	}
	var before observerParent
	known, err := lookup(k.maps.Parents, uint32(parent), &before)
	if err != nil {
		return fmt.Errorf("read parent: %w", err)
	}
	err = k.maps.Parents.Put(uint32(parent), p)
	if errors.Is(err, unix.E2BIG) {
		if err := k.forgetParents(); err != nil {
			return err
		}
		err = k.maps.Parents.Put(uint32(parent), p)
	}
	if err != nil {
		return fmt.Errorf("describe parent: %w", err)
	}
	if !known || before != p {
		if err := k.tellMACs(); err != nil {
			return err
		}
	}
	err = k.maps.Hearing.Update(uint32(parent), uint64(0), ebpf.UpdateNoExist)
	if err != nil && !errors.Is(err, ebpf.ErrKeyExist) {
		return fmt.Errorf("create hearing: %w", err)
	}
	return nil
}

func isBridgePort(dev netlink.Link) (bool, error) {
	index := dev.Attrs().MasterIndex
	if index == 0 {
		return false, nil
	}
	master, err := netlink.LinkByIndex(index)
	if err != nil {
		return false, fmt.Errorf("look up master %d: %w", index, err)
	}
	return master.Type() == "bridge" || master.Type() == "openvswitch", nil
}

// first reports whether the pinned link is the first of the device's chain, so that nobody hides frames from it.
func (p pinPair) first(d direction, ifindex int) (bool, error) {
	on, ok, err := p.device(d)
	if err != nil || !ok || on != uint32(ifindex) {
		return false, err
	}
	l, err := link.LoadPinnedLink(p.path(d), nil)
	if err != nil {
		return false, fmt.Errorf("open pinned link %s: %w", p.path(d), err)
	}
	defer l.Close()
	info, err := l.Info()
	if err != nil {
		return false, fmt.Errorf("query pinned link %s: %w", p.path(d), err)
	}
	chain, err := link.QueryPrograms(link.QueryOptions{Target: ifindex, Attach: d.attach})
	if err != nil {
		return false, fmt.Errorf("query %s chain of ifindex %d: %w", d.name, ifindex, err)
	}
	return len(chain.Programs) > 0 && chain.Programs[0].ID == info.Program, nil
}

// DetachObserver takes the observer off a parent in the calling thread's network namespace; one without an observer,
// or gone, is no error.
func (k *Kernel) DetachObserver(parent int) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if err := errors.Join(k.detachObserver(parent), k.tellMACs()); err != nil {
		return fmt.Errorf("detach observer from ifindex %d: %w", parent, err)
	}
	return nil
}

func (k *Kernel) detachObserver(parent int) error {
	err := errors.Join(k.removeObserverFilters(parent), k.dir.observer(parent).remove())
	for _, m := range []*ebpf.Map{k.maps.Parents, k.maps.Hearing} {
		if e := m.Delete(uint32(parent)); e != nil && !errors.Is(e, ebpf.ErrKeyNotExist) {
			err = errors.Join(err, e)
		}
	}
	return err
}

// ObserversAttached lists the parents that were given an observer, and whether both of its programs still sit at
// the head of a living device's chains. Parents are looked for in the calling thread's network namespace.
func (k *Kernel) ObserversAttached() (map[int]bool, error) {
	parents, err := k.dir.observers()
	if err != nil {
		return nil, err
	}
	attached := map[int]bool{}
	for _, parent := range parents {
		// A parent that cannot be asked, because it was moved away for instance, is not observed; the others are.
		attached[int(parent)] = k.observes(int(parent))
	}
	return attached, nil
}

// observes tells whether both of the observer's programs are the first to see the parent's frames.
func (k *Kernel) observes(parent int) bool {
	if k.noTCX.Load() {
		ids, err := firstFilters(parent)
		return err == nil && !slices.Contains(ids[:], 0)
	}
	for _, d := range directions {
		first, err := k.dir.observer(parent).first(d, parent)
		if err != nil || !first {
			return false
		}
	}
	return true
}
