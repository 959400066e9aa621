// SPDX-License-Identifier: Apache-2.0

package ipam

import (
	"slices"

	"github.com/fenceline/fenceline/internal/demand"
)

// perInterface is one entry of the annotation ippools, which names pools for each interface.
type perInterface struct {
	Interface    string   `json:"interface"`
	V4           []string `json:"ipv4"`
	V6           []string `json:"ipv6"`
	CleanGateway bool     `json:"cleangateway"`
}

// readInterfaces reads the annotation ippools. Without it there are no entries.
func readInterfaces(req Request) ([]perInterface, annotation, error) {
	a, ok := find(req.Pod.describe(), req.Pod.Annotations, poolsForm, demand.Pools)
	if !ok {
		return nil, annotation{}, nil
	}
	var entries []perInterface
	if err := a.decode(&entries); err != nil {
		return nil, a, err
	}
	if len(entries) == 0 || len(entries) > demand.MaxEntries {
		return nil, a, a.wrong("the list has %d entries, expected 1 to %d", len(entries), demand.MaxEntries)
	}
	seen := map[string]bool{}
	for i, e := range entries {
		if len(e.V4) == 0 && len(e.V6) == 0 {
			return nil, a, a.wrong("entry %d names nothing", i)
		}
		if e.Interface != "" && seen[e.Interface] {
			return nil, a, a.wrong("interface %s is named twice", e.Interface)
		}
		seen[e.Interface] = true
	}
	return entries, a, nil
}

// entryOf returns the index of the entry for an interface among the names of entries, or -1. An entry
// with the interface's name takes precedence over an entry without a name at the given index.
func entryOf(names []string, iface string, index int) int {
	if i := slices.Index(names, iface); i >= 0 {
		return i
	}
	if index >= 0 && index < len(names) && names[index] == "" {
		return index
	}
	return -1
}

// entryOf returns the index of the entry of ippools for an interface, or -1.
func (s said) entryOf(iface string, index int) int {
	names := make([]string, len(s.interfaces))
	for i, e := range s.interfaces {
		names[i] = e.Interface
	}
	return entryOf(names, iface, index)
}
