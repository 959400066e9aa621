// SPDX-License-Identifier: Apache-2.0

package movein

import (
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strings"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/internal/poolset"
)

// NodeFiles are the files of host-local on a node.
type NodeFiles struct {
	Node  string
	Files []File
	// Marked counts those of a move of this network.
	Marked int
	// Away is why they are not known, or empty.
	Away string
}

// File is a record of host-local, of one address on one node.
type File struct {
	Directory Directory
	Address   netip.Addr
	// Container and Interface are its two lines. The second one may be missing.
	Container, Interface string
	// Old: it is older than the boot of its node.
	Old bool
	// Problem is why it cannot be read, or empty.
	Problem string
}

// Mark returns the text of the files of a move.
func Mark(network string) string { return marks + MoveName(network) }

// marks begins the text of the files of each move.
const marks = "fenceline-move/"

// sandbox is one that host-local has given an address, by a file on its own node. A file of another node tells nothing of
// it.
type sandbox struct{ address, node, container string }

// containerID is what a container ID looks like.
var containerID = regexp.MustCompile(`^[a-zA-Z0-9][a-zA-Z0-9_.-]{0,127}$`)

// Away returns the nodes whose files are not known, as clauses.
func (f Facts) Away() (all []string) {
	for _, n := range f.Nodes {
		if n.Away != "" {
			all = append(all, fmt.Sprintf("the files of host-local on node %s are not known: %s", n.Node, n.Away))
		}
	}
	return all
}

// Directories are where host-local keeps the files of the definitions of a move.
func (f Facts) Directories() (all []Directory) {
	var p Plan
	main, others := p.networks(f)
	for _, n := range append([]network{main}, others...) {
		if n.files != (Directory{}) && !slices.Contains(all, n.files) {
			all = append(all, n.files)
		}
	}
	return all
}

// Freeze returns the first and the last address of each range that the other IPAM must not give, by files or by a
// SpiderReservedIP.
func (p Plan) Freeze() []netip.Addr { return p.freeze.Ends() }

// Holes returns what lacks of this freeze, as clauses.
func (p Plan) Holes() []string { return p.holes }

// HasUnknown reports whether a record is not whole yet. It may be one of an ADD that has just ended.
func (p Plan) HasUnknown() bool {
	return slices.ContainsFunc(p.Records, func(r v1alpha1.MoveRecord) bool {
		return strings.HasPrefix(r.Hold, noPod) || strings.HasPrefix(r.Hold, noEndpoint)
	})
}

// files are the records of host-local. They name no pod, so only network-status does.
func (p *Plan) files(f Facts, networks []network, users map[netip.Addr][]user) (all []found) {
	directories := map[Directory]bool{}
	for _, n := range networks {
		directories[n.files] = true
		for _, r := range n.ranges {
			p.freeze = p.freeze.Plus(r.set)
		}
	}
	if p.freeze.Len() > MaxFiles {
		p.block("the freeze writes a file for each address on each node, and the ranges have more than %d: narrow them by rangeStart and rangeEnd", MaxFiles)
	}
	p.Blocks = append(p.Blocks, f.Away()...)
	others, moved := othersIn(f, networks), poolsIn(f)
	of, addrs := map[netip.Addr][]place{}, []netip.Addr{}
	p.sandboxes = map[sandbox]bool{}
	for _, n := range f.Nodes {
		lacks, foreign := len(directories)*int(p.freeze.Count())-n.Marked, 0
		if n.Marked > 0 {
			p.note("node %s has %d files of a move of this network: unless it is under way, start one, and go back or finish, which removes them", n.Node, n.Marked)
		}
		for _, file := range n.Files {
			at, inRange := place{n.Node, file}, p.freeze.Contains(file.Address)
			if directories[file.Directory] && inRange {
				lacks--
			}
			switch {
			case !directories[file.Directory], !inRange && (file.Old || others[file.Directory].Contains(file.Address)):
			case !inRange && (strings.HasPrefix(file.Container, marks) || moved.Contains(file.Address)):
				foreign++
			case file.Problem != "":
				p.block("%s cannot be read: %s", at, file.Problem)
			case file.Container != "" && !containerID.MatchString(file.Container):
				p.block("%s has no container ID in its first line, but %q", at, cut(file.Container, maxRecord))
			default:
				if len(of[file.Address]) == 0 {
					addrs = append(addrs, file.Address)
				}
				of[file.Address] = append(of[file.Address], at)
				p.sandboxes[sandbox{file.Address.String(), n.Node, file.Container}] = file.Container != ""
			}
		}
		if foreign > 0 {
			p.note("node %s has %d files of addresses outside the ranges, which are of another move or a pool: they stay", n.Node, foreign)
		}
		if n.Away == "" && lacks > 0 {
			p.holes = append(p.holes, fmt.Sprintf("node %s lacks %d files of the move", n.Node, lacks))
		}
	}
	for _, a := range addrs {
		places := of[a]
		slices.SortStableFunc(places, func(x, y place) int { return len(x.against(users[a])) - len(y.against(users[a])) })
		if len(places) > 1 {
			p.note("%s has files on several nodes, since each node gives addresses alone: %s", a, joined(places))
		}
		all = append(all, found{a, places[0].String(), places[0].record(a, users[a])})
	}
	return all
}

// poolsIn returns the addresses of the pools that exist, such as those of networks that have moved.
func poolsIn(f Facts) poolset.Set {
	var sets []poolset.Set
	for i := range f.Pools {
		if set, err := poolset.Addresses(&f.Pools[i]); err == nil && f.Pools[i].Spec.Network == "" {
			sets = append(sets, set)
		}
	}
	return poolset.Union(sets...)
}

// othersIn returns the addresses of the definitions that do not move, by their directories.
func othersIn(f Facts, networks []network) map[Directory]poolset.Set {
	sets := map[Directory]poolset.Set{}
	for _, d := range f.Definitions {
		n, err := f.read(d)
		if err != nil || slices.ContainsFunc(networks, func(o network) bool { return o.Definition == d }) {
			continue
		}
		for _, r := range n.ranges {
			sets[n.files] = sets[n.files].Plus(r.set)
		}
	}
	return sets
}

// place is a file on a node.
type place struct {
	node string
	file File
}

func (p place) String() string {
	return fmt.Sprintf("file %s/%s on node %s", p.file.Directory, p.file.Address, p.node)
}

func joined(places []place) string {
	var all []string
	for _, p := range places {
		all = append(all, fmt.Sprintf("node %s (%s)", p.node, p.file.Container))
	}
	return strings.Join(all, ", ")
}

// noPod begins why the address of a file without a pod is held.
const noPod = "no pod"

// against returns why the file proves no use of its address by a pod, "" if it and network-status agree.
func (p place) against(users []user) string {
	switch {
	case p.file.Container == "":
		return "its file is empty"
	case p.file.Old:
		return "its file is older than the boot of node " + p.node
	case len(users) == 0:
		return fmt.Sprintf("%s of node %s has it by network-status", noPod, p.node)
	case users[0].pod.Node != p.node:
		return fmt.Sprintf("its file is on node %s, and its pod %s on node %s", p.node, users[0].pod, users[0].pod.Node)
	case p.file.Interface != "" && p.file.Interface != users[0].link.Interface:
		return fmt.Sprintf("its file names interface %s, and network-status interface %s", p.file.Interface, users[0].link.Interface)
	}
	return ""
}

// record plans what becomes of an address. It is adopted if the file and its pod agree. A pod that has it, whatever
// the file says, keeps it held until it has gone.
func (p place) record(a netip.Addr, users []user) v1alpha1.MoveRecord {
	r := v1alpha1.MoveRecord{Address: a.String(), Node: p.node, Interface: p.file.Interface}
	if len(users) > 0 {
		r = users[0].record(a)
	}
	r.Record, r.Hold = p.String(), p.against(users)
	if r.Hold == "" {
		r.ContainerID = p.file.Container
	}
	return r
}
