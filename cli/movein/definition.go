// SPDX-License-Identifier: Apache-2.0

package movein

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/internal/poolset"
)

// Definition is a NetworkAttachmentDefinition.
type Definition struct {
	Namespace, Name string
	// Config is its network configuration.
	Config string
	// Owner is the program that would undo an edit, or empty.
	Owner string
}

func (d Definition) String() string { return d.Namespace + "/" + d.Name }

// errOtherIPAM: the IPAM of a move does not serve a definition.
var errOtherIPAM = errors.New("its IPAM is not")

// served is a range that the other IPAM serves.
type served struct {
	prefix netip.Prefix
	// ips and excluded are the addresses that it gives, in the form of a pool. gateway may be unset.
	ips, excluded []string
	gateway       netip.Addr
	// set is where other networks may have no address, and gives the addresses that a pod may get.
	set, gives poolset.Set
	// records is the name of whereabouts' records of the range, slices its parts that nodes have, if it is divided. pool is
	// the SpiderIPPool of Spiderpool.
	records string
	slices  []slice
	pool    *spiderPool
}

// network is the configuration of a definition, as far as a move needs it.
type network struct {
	Definition
	from   v1alpha1.MoveSource
	ranges []served
	// master is the parent of macvlan or ipvlan, or empty.
	master string
	// networkName is network_name of whereabouts, or empty.
	networkName string
	// slicing is how whereabouts divides its range between the nodes, slicesIn the namespace of their records.
	// isLost: its NodeSlicePool has gone during the move, and its slices are those that have records.
	slicing  slicing
	slicesIn string
	isLost   bool
	// files is where host-local keeps its files.
	files Directory
	// notes are for the person.
	notes []string
}

// written is a network configuration, or a list of them, as people write it.
type written struct {
	Name    string
	Type    string
	Master  string
	IPAM    json.RawMessage
	Plugins []written
}

// typeOf returns the type of an ipam, or "".
func typeOf(ipam json.RawMessage) string {
	var of struct{ Type string }
	_ = json.Unmarshal(ipam, &of) // what is no object has no type
	return of.Type
}

// read reads a definition. The error is errOtherIPAM if the IPAM of a move does not serve it.
func (f Facts) read(d Definition) (network, error) {
	from := f.From
	n := network{Definition: d, from: from}
	var w written
	if !strings.Contains(d.Config, string(from)) { // also one without a text: Multus reads a file of that name then
		return n, fmt.Errorf("%w %s", errOtherIPAM, from)
	}
	if err := json.Unmarshal([]byte(d.Config), &w); err != nil {
		return n, fmt.Errorf("read spec.config: %w", err)
	}
	plugins := w.Plugins
	if len(plugins) == 0 {
		plugins = []written{w}
	}
	plugins = slices.DeleteFunc(slices.Clone(plugins), func(p written) bool { return typeOf(p.IPAM) != string(from) })
	switch {
	case len(plugins) == 0:
		return n, fmt.Errorf("%w %s", errOtherIPAM, from)
	case len(plugins) > 1:
		return n, fmt.Errorf("%s serves several of its plugins; split it into one definition for each", from)
	}
	p := plugins[0]
	if p.Type == "macvlan" || p.Type == "ipvlan" {
		n.master = p.Master
	}
	switch from {
	case v1alpha1.MoveHostLocal:
		n.files.Network = w.Name
		return n, n.hostLocal(p.IPAM)
	case v1alpha1.MoveSpiderpool:
		return n, n.spiderpool(p.IPAM, f)
	}
	err := n.whereabouts(p.IPAM, w.Name, f)
	return n, err
}

// all are the addresses that the other IPAM may give a pod of a network.
func (n network) all() poolset.Set {
	var sets []poolset.Set
	for _, r := range n.ranges {
		sets = append(sets, r.gives)
	}
	return poolset.Union(sets...)
}

// givesRest returns an error unless the other IPAM, by a text that a move has written, gives all addresses of a network but
// those that are taken. It reads keys without regard to case, and an edit writes them as they are documented.
func (n network) givesRest(text string, taken poolset.Set) error {
	d := n.Definition
	d.Config = text
	now, err := Facts{From: n.from}.read(d)
	if err != nil {
		return fmt.Errorf("read what the move would write: %w", err)
	}
	if !now.all().Equal(n.all().Minus(taken)) {
		return fmt.Errorf("%s would still give addresses that it must not: write the keys of the definition as its documents have them, in lower and upper case too (ipam, type, range, subnet, rangeStart)", n.from)
	}
	return nil
}

// ipamsIn returns the plugins of a configuration with an IPAM.
func ipamsIn(from v1alpha1.MoveSource, whole map[string]any) (found []map[string]any) {
	plugins, isList := whole["plugins"].([]any)
	if !isList {
		plugins = []any{whole}
	}
	for _, each := range plugins {
		plugin, _ := each.(map[string]any)
		if ipam, _ := plugin["ipam"].(map[string]any); ipam["type"] == string(from) {
			found = append(found, plugin)
		}
	}
	return found
}

// rewritten returns a configuration in which each ipam of the other IPAM was edited.
func rewritten(from v1alpha1.MoveSource, config string, edit func(map[string]any) error) (string, error) {
	var whole map[string]any
	if err := json.Unmarshal([]byte(config), &whole); err != nil {
		return "", fmt.Errorf("read the configuration: %w", err)
	}
	for _, plugin := range ipamsIn(from, whole) {
		if err := edit(plugin["ipam"].(map[string]any)); err != nil {
			return "", err
		}
	}
	out, err := json.MarshalIndent(whole, "", "  ")
	return string(out), err
}

// without returns a configuration in which the other IPAM gives none of the addresses, or none at all.
func without(from v1alpha1.MoveSource, config string, all bool, taken []netip.Addr) (string, error) {
	edit := excludeIn
	if from == v1alpha1.MoveHostLocal {
		edit = splitIn
	}
	return rewritten(from, config, func(ipam map[string]any) error { return edit(ipam, all, taken) })
}

// bare returns a configuration without what a move changes in it for the other IPAM, or "" if it cannot be read.
func bare(from v1alpha1.MoveSource, config string) string {
	strip := stripExclude
	if from == v1alpha1.MoveHostLocal {
		strip = stripRanges
	}
	out, err := rewritten(from, config, func(ipam map[string]any) error { strip(ipam); return nil })
	if err != nil {
		return ""
	}
	return out
}
