// SPDX-License-Identifier: Apache-2.0

package bpf

import (
	"fmt"

	"github.com/cilium/ebpf"

	"github.com/fenceline/fenceline/bpf/mapset"
)

// After a change of layout the old programs go on raising maxima in the old map until they are
// replaced. So finish merges these maxima before the new pins move over the old ones.

// forgotten reports whether a map starts empty after a change of layout. Maps of hints and counts
// start empty, and so does the gate, which is opened and settled again. The map of hearing keeps
// its entries: they are hints too, but they cost little.
func forgotten(name string) bool {
	switch name {
	case observerMapCounters, observerMapEvents, observerMapSightings, observerMapGate:
		return true
	}
	return false
}

// finish merges late maxima and moves the new maps over the old ones.
func (k *Kernel) finish(set *mapset.Set) error {
	if len(set.Old) == 0 {
		return nil
	}
	if old, ok := set.Old[observerMapStates]; ok {
		if err := k.mergeStates(old); err != nil {
			return fmt.Errorf("merge maxima: %w", err)
		}
	}
	if err := set.Replace(); err != nil {
		return err
	}
	if err := k.openGate(); err != nil {
		return err
	}
	return k.settle()
}

// mergeStates raises the maxima in the new map to those of the old one. A program does it under
// each entry's lock, because the new programs raise them at the same time.
func (k *Kernel) mergeStates(old *ebpf.Map) error {
	spec := k.code.observer.Copy()
	spec.Programs = map[string]*ebpf.ProgramSpec{observerProgStateMerge: spec.Programs[observerProgStateMerge]}
	shared := k.maps.shared()
	coll, err := ebpf.NewCollectionWithOptions(spec, ebpf.CollectionOptions{MapReplacements: shared})
	if err != nil {
		return fmt.Errorf("load program: %w", err)
	}
	defer coll.Close()
	const etherHeader, maxima, pass = 14, 16, ^uint32(0)
	key, value := make([]byte, old.KeySize()), make([]byte, old.ValueSize())
	for it := old.Iterate(); ; {
		if !it.Next(&key, &value) {
			return it.Err()
		}
		frame := append(make([]byte, etherHeader, etherHeader+maxima+len(key)), value[:maxima]...)
		frame = append(frame, key...)
		verdict, err := coll.Programs[observerProgStateMerge].Run(&ebpf.RunOptions{Data: frame})
		if err != nil {
			return fmt.Errorf("run program: %w", err)
		}
		if verdict != pass {
			return fmt.Errorf("entry %x not merged", key)
		}
	}
}
