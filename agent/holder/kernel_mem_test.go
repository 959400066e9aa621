package holder

import (
	"maps"
	"sync"

	"github.com/fenceline/fenceline/bpf"
)

// memKernel keeps the rules of package bpf in memory, where they are tested
// against the real one. It outlives the agent, as pins do.
type memKernel struct {
	mu     sync.Mutex
	leases map[bpf.Key]bpf.Lease
	claims map[bpf.Key]uint64
	dead   map[uint32]bool
	// guards are the devices that the slots sit on; gone are devices that do
	// not exist any more. lost are guards of which nothing tells the device.
	guards map[uint32]string
	gone   map[string]bool
	lost   map[uint32]bool
	// pinned are the slots whose guards were made to last.
	pinned   map[uint32]bool
	pinFails error
}

func newMemKernel() *memKernel {
	return &memKernel{
		leases: map[bpf.Key]bpf.Lease{}, claims: map[bpf.Key]uint64{}, dead: map[uint32]bool{},
		guards: map[uint32]string{}, gone: map[string]bool{}, lost: map[uint32]bool{}, pinned: map[uint32]bool{},
	}
}

func (k *memKernel) PrepareGuard(bpf.Guard) error { return nil }

func (k *memKernel) DropGuard(uint32) {}

// PinGuard remembers that it was called; a staged guard judges as well.
func (k *memKernel) PinGuard(g bpf.Guard) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.pinFails != nil {
		return k.pinFails
	}
	k.pinned[g.Slot] = true
	return nil
}

func (k *memKernel) isPinned(slot uint32) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.pinned[slot]
}

func (k *memKernel) StageGuard(g bpf.Guard) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	device := g.NetNS + " " + g.Interface
	switch on, pinned := k.guards[g.Slot]; {
	case k.gone[device]:
		return bpf.ErrNoDevice
	case pinned && on != device && !k.gone[on]:
		return bpf.ErrPinned
	}
	// A slot that was killed stays dead until it is detached.
	k.guards[g.Slot] = device
	return nil
}

func (k *memKernel) DetachGuard(slot uint32) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.guards, slot)
	delete(k.dead, slot)
	return nil
}

func (k *memKernel) GuardAttached(slot uint32) (bool, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	device, ok := k.guards[slot]
	return ok && !k.gone[device], nil
}

func (k *memKernel) SweepGuards() (swept []uint32, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for slot, device := range k.guards {
		if k.gone[device] {
			delete(k.guards, slot)
			delete(k.dead, slot)
			swept = append(swept, slot)
		}
	}
	for slot := range k.dead {
		if _, guards := k.guards[slot]; !guards && !k.lost[slot] {
			delete(k.dead, slot)
			swept = append(swept, slot)
		}
	}
	return swept, nil
}

func (k *memKernel) KillSlot(slot uint32) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if slot == 0 {
		return bpf.ErrSlot
	}
	k.dead[slot] = true
	return nil
}

func (k *memKernel) SlotDead(slot uint32) (bool, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.dead[slot], nil
}

func (k *memKernel) InstallLease(key bpf.Key, l bpf.Lease) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.leases[key].Token > l.Token {
		return bpf.ErrOlderToken
	}
	k.leases[key] = l
	return nil
}

func (k *memKernel) RemoveLease(key bpf.Key) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.leases, key)
	return nil
}

func (k *memKernel) Lease(key bpf.Key) (bpf.Lease, bool, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	l, ok := k.leases[key]
	return l, ok, nil
}

func (k *memKernel) Leases() (map[bpf.Key]bpf.Lease, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return maps.Clone(k.leases), nil
}

func (k *memKernel) Fenced(key bpf.Key) (bool, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	l := k.leases[key]
	return l.Slot != 0 && k.claims[key] > l.Token, nil
}

// claimed is a valid claim of another node.
func (k *memKernel) claimed(key bpf.Key, token uint64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.claims[key] = max(k.claims[key], token)
}

// speakers are the slots whose frames for an address would pass.
func (k *memKernel) speakers(key bpf.Key) (slots []uint32) {
	k.mu.Lock()
	defer k.mu.Unlock()
	l := k.leases[key]
	device, guarded := k.guards[l.Slot]
	if guarded && !k.gone[device] && !k.dead[l.Slot] && k.claims[key] <= l.Token {
		slots = append(slots, l.Slot)
	}
	return slots
}

// isDead tells whether a slot was killed.
func (k *memKernel) isDead(slot uint32) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.dead[slot]
}

// unplug lets a device vanish.
func (k *memKernel) unplug(netns, ifname string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.gone[netns+" "+ifname] = true
}
