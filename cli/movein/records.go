// SPDX-License-Identifier: Apache-2.0

package movein

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/internal/poolset"
)

// The greatest lengths of texts in a MoveRecord.
const maxRecord, maxHold = 128, 160

// noRecord is why an address in use is not adopted or given back.
const noRecord = "the old IPAM has no record of it"

func cut(text string, most int) string {
	if len(text) <= most {
		return text
	}
	return text[:most-3] + "..."
}

// user is an interface of a pod that has an address, by network-status.
type user struct {
	pod  Pod
	link Interface
}

// found is a record of the other IPAM, and what becomes of its address. said names it for people.
type found struct {
	addr   netip.Addr
	said   string
	record v1alpha1.MoveRecord
}

// records plans what becomes of each address in use: those with a record of the other IPAM, and those of pods
// without one.
func (p *Plan) records(f Facts, networks []network) {
	var sets []poolset.Set
	for i := range p.Pools {
		set, _ := poolset.Addresses(&p.Pools[i])
		sets = append(sets, set)
	}
	set := poolset.Union(sets...)
	users := map[netip.Addr][]user{}
	for _, pod := range f.Pods {
		for _, link := range pod.Interfaces {
			for _, a := range link.IPs {
				if !pod.Finished && set.Contains(a) {
					users[a] = append(users[a], user{pod, link})
				}
			}
		}
	}
	recorded := map[v1alpha1.MoveSource]func(Facts, []network, map[netip.Addr][]user) []found{
		v1alpha1.MoveWhereabouts: p.allocations, v1alpha1.MoveHostLocal: p.files, v1alpha1.MoveSpiderpool: p.allocated,
	}[f.From]
	seen := map[netip.Addr]string{}
	for _, one := range recorded(f, networks, users) {
		if other, twice := seen[one.addr]; twice {
			p.block("%s has two records: %s, and %s", one.addr, other, one.said)
			continue
		}
		seen[one.addr] = one.said
		if !set.Contains(one.addr) {
			if !f.isBecoming { // those of the other IPAM are none of a move out
				p.block("%s (%s) lies outside the addresses of the definition: extend its range until the pod has gone", one.addr, one.said)
			}
			continue
		}
		r := one.record
		r.Record, r.Hold = cut(r.Record, maxRecord), cut(r.Hold, maxHold)
		p.Records = append(p.Records, r)
	}
	for a, all := range users {
		if len(all) > 1 {
			p.block("%s has two pods: %s and %s", a, all[0].pod, all[1].pod)
		} else if seen[a] == "" {
			r := all[0].record(a)
			r.Hold = noRecord
			p.Records = append(p.Records, r)
		}
	}
	slices.SortFunc(p.Records, func(a, b v1alpha1.MoveRecord) int {
		return netip.MustParseAddr(a.Address).Compare(netip.MustParseAddr(b.Address))
	})
	slices.Sort(p.Blocks)
	if n := len(p.Records); n > v1alpha1.MaxMoveRecords && !f.isBecoming { // a move out stores leases
		p.block("%d addresses are in use, and a move has at most %d: split the network", n, v1alpha1.MaxMoveRecords)
	}
}

func (u user) record(a netip.Addr) v1alpha1.MoveRecord {
	return v1alpha1.MoveRecord{
		Address: a.String(), Node: u.pod.Node, Namespace: u.pod.Namespace, Pod: u.pod.Name, PodUID: u.pod.UID,
		Interface: u.link.Interface, MAC: strings.ToLower(u.link.MAC),
	}
}

// allocations are the records of whereabouts.
func (p *Plan) allocations(f Facts, networks []network, users map[netip.Addr][]user) (all []found) {
	pods, names := map[string]Pod{}, map[string]bool{}
	for _, pod := range f.Pods {
		pods[pod.String()] = pod
	}
	for _, n := range networks {
		for _, r := range n.ranges {
			names[r.records] = true
			for _, s := range r.slices {
				names[s.records] = true
			}
		}
	}
	var taken []netip.Addr
	defer func() { freezeSlices(p, f, networks, taken) }()
	for _, of := range f.Records {
		if !names[of.Name] {
			continue
		}
		for offset, record := range of.Allocations {
			a, err := of.addressOf(offset)
			if err != nil {
				p.block("%v", err)
				continue
			}
			if taken = append(taken, a); record.ID == Mark(f.Network) {
				continue
			}
			said := fmt.Sprintf("%s offset %s of %s", of.Name, offset, cmp.Or(record.PodRef, "no pod"))
			pod, exists := pods[record.PodRef]
			all = append(all, found{a, said, recordOf(a, record, said, pod, exists, users[a])})
		}
	}
	return all
}

// recordOf plans what becomes of an address with a record. It is adopted if the record and its pod agree.
func recordOf(a netip.Addr, record Allocation, said string, pod Pod, exists bool, users []user) v1alpha1.MoveRecord {
	namespace, name, _ := strings.Cut(record.PodRef, "/")
	held := v1alpha1.MoveRecord{Address: a.String(), Namespace: namespace, Pod: name, Interface: record.IfName, Record: said}
	if held.Node = pod.Node; exists { // the record of a virtual machine names the machine
		held.Namespace, held.Pod = pod.Namespace, pod.Name
	}
	switch {
	case record.PodRef == "":
		held.Hold = "its record names no pod"
	case !exists:
		held.Hold = fmt.Sprintf("pod %s of its record does not exist", record.PodRef)
	case pod.Finished:
		held.Hold = fmt.Sprintf("pod %s of its record has finished", pod)
	case len(users) == 0: // Multus has not written network-status yet, so the agent decides
		held.PodUID, held.ContainerID = pod.UID, record.ID
	case users[0].pod.UID != pod.UID:
		held.Hold = fmt.Sprintf("its record names pod %s, and network-status names it for pod %s", pod, users[0].pod)
	case record.IfName != "" && record.IfName != users[0].link.Interface:
		held.Hold = fmt.Sprintf("its record names interface %s, and network-status interface %s", record.IfName, users[0].link.Interface)
	default:
		r := users[0].record(a)
		r.ContainerID, r.Record = record.ID, said
		return r
	}
	return held
}
