package bpf

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/cilium/ebpf"
)

// Carrying maps over to a version with another layout. The rules that keep this possible: keys never change, and
// values only grow at their end. Then every entry can be cut or zero-extended, in both directions.
//
// The order is: create and fill the new maps, replace every program, merge the maxima that the old programs have
// raised meanwhile, and only then move the new pins over the old. Each step can be repeated after a crash.

// forgotten are maps whose content is a hint or a count, and starts anew: hearing is not among them only because
// it is cheap to keep. The gate is opened and settled afresh.
func forgotten(name string) bool {
	switch name {
	case observerMapCounters, observerMapEvents, observerMapSightings, observerMapGate:
		return true
	}
	return false
}

// carry fills the new maps. Entries that are there already stay.
func (s *mapSet) carry() error {
	for name, old := range s.old {
		if forgotten(name) {
			continue
		}
		if err := carryMap(s.current[name], old); err != nil {
			return fmt.Errorf("carry over map %s: %w", name, err)
		}
	}
	return nil
}

func carryMap(to, from *ebpf.Map) error {
	if to.KeySize() != from.KeySize() {
		return fmt.Errorf("%w: key of %d bytes was %d", ErrSchema, to.KeySize(), from.KeySize())
	}
	flags := ebpf.UpdateNoExist
	if to.Type() == ebpf.Array {
		flags = ebpf.UpdateAny
	}
	key, value := make([]byte, from.KeySize()), make([]byte, from.ValueSize())
	for it := from.Iterate(); ; {
		if !it.Next(&key, &value) {
			return it.Err()
		}
		grown := make([]byte, to.ValueSize())
		copy(grown, value)
		err := to.Update(key, grown, flags)
		if err != nil && !errors.Is(err, ebpf.ErrKeyExist) {
			return fmt.Errorf("%w: %w", ErrSchema, err)
		}
	}
}

// finish merges late maxima and lets the new maps take the place of the old ones.
func (s *mapSet) finish(k *Kernel) error {
	if len(s.old) == 0 {
		return nil
	}
	if old, ok := s.old[observerMapStates]; ok {
		if err := k.mergeStates(old); err != nil {
			return fmt.Errorf("merge maxima: %w", err)
		}
	}
	for name, old := range s.old {
		path := filepath.Join(s.dir, name)
		if err := os.Rename(path+nextSuffix, path); err != nil {
			return fmt.Errorf("replace map %s: %w", name, err)
		}
		old.Close()
		delete(s.old, name)
	}
	if err := k.openGate(); err != nil {
		return err
	}
	return k.settle()
}

// mergeStates raises the maxima in the new map to those of the old, under the kernel's own lock: the new
// programs raise them at the same time.
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
