// SPDX-License-Identifier: Apache-2.0

package bpf

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"github.com/fenceline/fenceline/bpf/attach"
)

// The pin directory: maps/<name>, guards/<slot>/<direction>, observers/<ifindex>/<direction>.
const (
	mapsDir      = "maps"
	guardsDir    = "guards"
	observersDir = "observers"
)

type pinDir string

func (d pinDir) maps() string { return filepath.Join(string(d), mapsDir) }

func (d pinDir) guard(slot uint32) attach.Pins {
	return attach.Pins(filepath.Join(string(d), guardsDir, strconv.FormatUint(uint64(slot), 10)))
}

func (d pinDir) observer(parent int) attach.Pins {
	return attach.Pins(filepath.Join(string(d), observersDir, strconv.Itoa(parent)))
}

func (d pinDir) guards() ([]uint32, error)    { return d.numbers(guardsDir) }
func (d pinDir) observers() ([]uint32, error) { return d.numbers(observersDir) }

// pairs returns the pairs of all guards and observers.
func (d pinDir) pairs() ([]attach.Pins, error) {
	var pairs []attach.Pins
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

// numbers returns the numbers of the pairs below kind. A missing directory has none.
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
			return nil, fmt.Errorf("unknown entry %q among the pinned %s: remove it", e.Name(), kind)
		}
		numbers = append(numbers, uint32(n))
	}
	return numbers, nil
}
