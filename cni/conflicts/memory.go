// SPDX-License-Identifier: Apache-2.0

// Package conflicts remembers the addresses for which other hosts have answered. The memory is a
// file beside the data files of host-local, which ignores it.
package conflicts

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

// FileName is the name of the file in the directory of the network.
const FileName = "conflicts.json"

// Retry is how long an address is passed over after a host has answered for it.
const Retry = 10 * time.Minute

// Conflict is one answer of a host.
type Conflict struct {
	Address netip.Addr `json:"address"`
	MAC     string     `json:"mac"`
	Time    time.Time  `json:"time"`
	// PassedOver: the host answers for many addresses. The address is tried again with the next ADD.
	PassedOver bool `json:"passedOver,omitempty"`
}

// fresh reports whether the conflict still counts. A time that is yet to come, after a step of the
// clock, does not.
func (c Conflict) fresh(now time.Time) bool {
	age := now.Sub(c.Time)
	if c.PassedOver {
		return age >= 0 && age < foreignhost.Interval
	}
	return age >= 0 && age < Retry
}

// Memory holds the conflicts of a network. It belongs to the holder of the lock of the directory.
type Memory struct {
	path      string
	now       time.Time
	conflicts []Conflict
}

type file struct {
	Conflicts []Conflict `json:"conflicts"`
}

// Read reads the memory of a network's directory. A missing or damaged file is an empty memory:
// a probe finds the conflicts again.
func Read(dir string, now time.Time) (*Memory, error) {
	m := &Memory{path: filepath.Join(dir, FileName), now: now}
	text, err := os.ReadFile(m.path)
	if errors.Is(err, fs.ErrNotExist) {
		return m, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the memory of conflicts: %w", err)
	}
	var f file
	if json.Unmarshal(text, &f) == nil {
		m.conflicts = slices.DeleteFunc(f.Conflicts, func(c Conflict) bool { return !c.fresh(now) })
	}
	return m, nil
}

// Find returns the conflict for which an address is passed over.
func (m *Memory) Find(addr netip.Addr) (Conflict, bool) {
	i := slices.IndexFunc(m.conflicts, func(c Conflict) bool { return c.Address == addr && !c.PassedOver })
	if i < 0 {
		return Conflict{}, false
	}
	return m.conflicts[i], true
}

// Meet decides about an address for which a host answers, and remembers the answer. A Stop is not
// remembered, so addresses are tried again after foreignhost.Interval.
func (m *Memory) Meet(addr netip.Addr, mac string) (foreignhost.Action, error) {
	recorded, met := 0, 0
	for _, c := range m.conflicts {
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
	m.conflicts = append(m.conflicts, Conflict{addr, mac, m.now.UTC(), action == foreignhost.PassOver})
	return action, m.write()
}

// Forget removes the conflict of an address that no host uses any longer.
func (m *Memory) Forget(addr netip.Addr) error {
	if _, known := m.Find(addr); !known {
		return nil
	}
	m.remove(addr)
	return m.write()
}

func (m *Memory) remove(addr netip.Addr) {
	m.conflicts = slices.DeleteFunc(m.conflicts, func(c Conflict) bool { return c.Address == addr })
}

// write replaces the file by rename, so that a call that is killed leaves the old file or the new one.
func (m *Memory) write() error {
	text, err := json.MarshalIndent(file{m.conflicts}, "", "  ")
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
