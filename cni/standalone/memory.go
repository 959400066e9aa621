// SPDX-License-Identifier: Apache-2.0

package standalone

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/fenceline/fenceline/internal/foreignhost"
)

// conflictsFile is the name of the memory's file in the directory of the network. host-local ignores it.
const conflictsFile = "conflicts.json"

// retryAfter is how long an address is passed over after a host has answered for it.
const retryAfter = 10 * time.Minute

// conflict is the answer of a host for an address.
type conflict struct {
	Address netip.Addr `json:"address"`
	MAC     string     `json:"mac"`
	Time    time.Time  `json:"time"`
	// PassedOver: the host answers for many addresses. The address is tried again with the next ADD.
	PassedOver bool `json:"passedOver,omitempty"`
}

// fresh reports whether the conflict still counts. A time that is yet to come, after a step of the
// clock, does not.
func (c conflict) fresh(now time.Time) bool {
	age := now.Sub(c.Time)
	if c.PassedOver {
		return age >= 0 && age < foreignhost.Interval
	}
	return age >= 0 && age < retryAfter
}

// memory holds the conflicts of a network. It belongs to the holder of the lock of the directory.
type memory struct {
	path      string
	now       time.Time
	Conflicts []conflict `json:"conflicts"`
}

// readMemory reads the memory of a network's directory. A missing or damaged file is an empty memory:
// a probe finds the conflicts again.
func readMemory(dir string, now time.Time) (*memory, error) {
	m := &memory{path: filepath.Join(dir, conflictsFile), now: now}
	text, err := os.ReadFile(m.path)
	if errors.Is(err, fs.ErrNotExist) {
		return m, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the memory of conflicts: %w", err)
	}
	if json.Unmarshal(text, m) != nil {
		m.Conflicts = nil
	}
	m.Conflicts = slices.DeleteFunc(m.Conflicts, func(c conflict) bool { return !c.fresh(now) })
	return m, nil
}

// knows reports whether an address is passed over.
func (m *memory) knows(addr netip.Addr) bool {
	return slices.ContainsFunc(m.Conflicts, func(c conflict) bool { return c.Address == addr && !c.PassedOver })
}

// meet decides about an address for which a host answers, and remembers the answer. A Stop is not
// remembered, so addresses are tried again after foreignhost.Interval.
func (m *memory) meet(addr netip.Addr, mac string) (foreignhost.Action, error) {
	recorded, met := 0, 0
	for _, c := range m.Conflicts {
		if c.MAC != mac || c.Address == addr {
			continue
		}
		if !c.PassedOver {
			recorded++
		}
		if m.now.Sub(c.Time) < foreignhost.Interval {
			met++
		}
	}
	action := foreignhost.Decide(recorded, met)
	if action == foreignhost.Stop {
		return action, nil
	}
	m.remove(addr)
	m.Conflicts = append(m.Conflicts, conflict{addr, mac, m.now.UTC(), action == foreignhost.PassOver})
	return action, m.write()
}

// forget removes the conflict of an address that no host uses any longer.
func (m *memory) forget(addr netip.Addr) error {
	if !m.knows(addr) {
		return nil
	}
	m.remove(addr)
	return m.write()
}

func (m *memory) remove(addr netip.Addr) {
	m.Conflicts = slices.DeleteFunc(m.Conflicts, func(c conflict) bool { return c.Address == addr })
}

// write replaces the file by rename, so that a call that is killed leaves the old file or the new one.
func (m *memory) write() error {
	text, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return fmt.Errorf("encode the memory of conflicts: %w", err)
	}
	next := m.path + ".new"
	err = os.WriteFile(next, append(text, '\n'), 0o600)
	if err == nil {
		err = os.Rename(next, m.path)
	}
	if err != nil {
		return fmt.Errorf("write the memory of conflicts: %w", errors.Join(err, os.RemoveAll(next)))
	}
	return nil
}
