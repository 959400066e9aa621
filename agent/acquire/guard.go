// SPDX-License-Identifier: Apache-2.0

package acquire

import (
	"context"
	"errors"
	"fmt"

	"github.com/fenceline/fenceline/agent/attachment"
	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/bpf/enforce"
)

// intend journals that the ADD is about to lease an address of a pool, and gives the interface its MAC.
func (a *Interface) intend(ctx context.Context, pool *v1alpha1.IPPool, address attachment.Address) error {
	if err := a.chooseMAC(ctx, pool, address.Addr); err != nil {
		return err
	}
	a.Trying = &address
	return a.journal()
}

// journal writes the intent of the ADD before its next write to the API server. It
// begins to attach the guard with its sources, and to check the observer. The interface is down
// while IPAM runs: the guard is there before the first frame.
func (a *Interface) journal() error {
	if a.Slot == 0 {
		slot, err := a.h.Guards.Take()
		if err != nil {
			return err
		}
		a.Slot = slot
	}
	e := a.Entry(attachment.Intent)
	if err := a.h.Journal.Put(e); err != nil {
		a.returnSlot()
		return err
	}
	if a.staging == nil && !a.guarded {
		staging, seg := make(chan error, 1), a.Seg
		a.staging = staging
		go func() {
			err := a.h.Guards.Stage(&e)
			if err == nil && !e.SharedMAC { // the next candidate would have another MAC
				err = a.h.GuardSources(&e)
			}
			if err == nil {
				err = seg.Observe()
			}
			staging <- err
		}()
	}
	return nil
}

// returnSlot returns a slot whose guard was never attached. If the undo killed the slot, it would
// be lost, because no sweep would ever see that its device is gone.
func (a *Interface) returnSlot() {
	if a.staging == nil && !a.guarded {
		a.h.Guards.PutBack(a.Slot)
		a.Slot = 0
	}
}

// Guard waits until the guard enforces. Installing, probing and answering come after it.
func (a *Interface) Guard() error {
	if a.guarded {
		return nil
	}
	if a.staging == nil {
		if err := a.journal(); err != nil {
			return err
		}
	}
	err := a.AwaitGuard()
	for errors.Is(err, enforce.ErrPinned) {
		// The guard has outlived its entry in the journal. The sweep frees the slot.
		a.h.Guards.Leave(a.Slot)
		a.Slot = 0
		if err = a.journal(); err == nil {
			err = a.AwaitGuard()
		}
	}
	for err == nil && len(a.Replaced) > 0 {
		// The dead slot of the earlier ADD or try would keep the interface mute.
		if err = a.h.Guards.Kernel.DetachGuard(a.Replaced[0]); err == nil {
			a.Replaced = a.Replaced[1:]
		}
	}
	if err != nil {
		return fmt.Errorf("guard %s of pod %s/%s: %w", a.Who.Interface, a.Who.Namespace, a.Who.Pod, err)
	}
	a.guarded = true
	return nil
}

// AwaitGuard waits for the guard that is being attached, if there is one.
func (a *Interface) AwaitGuard() error {
	if a.staging == nil {
		return nil
	}
	err := <-a.staging
	a.staging = nil
	return err
}

// Mutes returns the dead slots that keep the interface mute after the undo of a try: those that
// were left before, and its own, if the guard is still there.
func (a *Interface) Mutes() ([]uint32, error) {
	if a.Slot == 0 || a.Link.Unguarded {
		return a.Replaced, nil
	}
	e := a.Entry(attachment.Intent)
	attached, err := a.h.Guards.Attached(&e)
	if err == nil && attached {
		return append(a.Replaced, a.Slot), nil
	}
	return a.Replaced, err
}
