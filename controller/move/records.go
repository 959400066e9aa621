// SPDX-License-Identifier: Apache-2.0

package move

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/internal/poolset"
)

// records are those of whereabouts for a range (IPPool of whereabouts.cni.cncf.io/v1alpha1).
type records struct {
	Metadata struct{ Name string }
	Spec     struct {
		Range       string
		Allocations map[string]struct{ ID, PodRef string }
	}
}

// ipam is what a move reads of an ipam.
type ipam struct {
	Type          string
	NetworkName   string `json:"network_name"`
	NodeSliceSize string `json:"node_slice_size"`
}

// ipams returns those of a configuration.
func ipams(config string) (all []ipam) {
	type plugin struct{ IPAM ipam }
	var c struct {
		plugin
		Plugins []plugin
	}
	_ = json.Unmarshal([]byte(config), &c) // what cannot be read has none
	for _, p := range append(c.Plugins, c.plugin) {
		all = append(all, p.IPAM)
	}
	return all
}

// names reports whether whereabouts names records by an ipam: by network_name, the node if it has a slice, and the
// range. Others are of another segment. start is the name without the range, and node is "" for records of no slice.
func (i ipam) names(start string) (node string, is bool) {
	network := strings.TrimPrefix(i.NetworkName+"-", "-")
	node, is = strings.CutPrefix(start, network)
	return strings.TrimSuffix(node, "-"), is && (node == "" || i.NodeSliceSize != "")
}

// given returns the addresses of pools that whereabouts has given since the start of a move in, with their pods. The
// records of a slice stay when its node goes, and a command reads only those of nodes with a slice: isOn tells whether a
// pod is on the node of a slice.
func given(s *v1alpha1.MoveSpec, gives poolset.Set, is []records, isOn func(pod, node string) bool) (all []string) {
	known, before := map[string]v1alpha1.MoveRecord{}, []ipam{}
	for _, r := range s.Records {
		known[r.Address] = r
	}
	for _, d := range s.Definitions {
		before = append(before, ipams(d.Config)...)
	}
	for _, r := range is {
		set, err := poolset.Parse([]string{r.Spec.Range})
		name, isRange := strings.CutSuffix(r.Metadata.Name, strings.NewReplacer(":", "-", "/", "-").Replace(r.Spec.Range))
		if err != nil || !isRange {
			continue
		}
		isOf := func(pod string) bool {
			return slices.ContainsFunc(before, func(i ipam) bool {
				node, names := i.names(name)
				return i.Type == string(s.From) && names && (node == "" || isOn(pod, node))
			})
		}
		for offset, a := range r.Spec.Allocations {
			n, err := strconv.ParseUint(offset, 10, 64)
			if err != nil || n >= set.Len() || a.PodRef == "" || !gives.Contains(set.At(n)) {
				continue
			}
			k := known[set.At(n).String()]
			isNew := k.Namespace+"/"+k.Pod != a.PodRef || k.ContainerID != "" && k.ContainerID != a.ID
			if isNew && isOf(a.PodRef) {
				all = append(all, fmt.Sprintf("%s to pod %s", set.At(n), a.PodRef))
			}
		}
	}
	slices.Sort(all)
	return all
}
