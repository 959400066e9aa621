// SPDX-License-Identifier: Apache-2.0

package movein

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/fenceline/fenceline/apis/v1alpha1"
)

// coordinator is the chained plugin of Spiderpool. ofCoordinator has Fenceline's names of its fields.
const coordinator = "coordinator"

var ofCoordinator = map[string]string{"mode": "mode", "hijackCIDR": "hostLinkCIDRs", "txQueueLen": "txQueueLen"}

// switched returns the configuration of a definition that Fenceline serves.
func switched(n network, pools []v1alpha1.IPPool) (string, error) {
	var whole map[string]any
	if err := json.Unmarshal([]byte(n.Config), &whole); err != nil {
		return "", err
	}
	for _, plugin := range ipamsIn(n.from, whole) {
		plugin["ipam"] = ipamOf(n.from, plugin["ipam"].(map[string]any), pools)
	}
	out, err := json.MarshalIndent(chained(n, whole), "", "  ")
	return string(out), err
}

// ipamOf returns the ipam of Fenceline, in which the fields of both keep their effect.
func ipamOf(from v1alpha1.MoveSource, old map[string]any, pools []v1alpha1.IPPool) map[string]any {
	ipam, both := map[string]any{"type": "fenceline"}, []string{"routes"}
	if from == v1alpha1.MoveSpiderpool {
		both, pools = append(both, "clean_gateway", poolsKey4, poolsKey6), nil // it may name none, and leave that to pods
	}
	for _, key := range both {
		if value, ok := old[key]; ok {
			ipam[key] = value
		}
	}
	for _, pool := range pools {
		key := poolsKey4
		if strings.Contains(pool.Spec.Subnet, ":") {
			key = poolsKey6
		}
		names, _ := ipam[key].([]string)
		ipam[key] = append(names, pool.Name)
	}
	return ipam
}

// The keys of pools in an ipam of Spiderpool and of Fenceline.
const poolsKey4, poolsKey6 = "default_ipv4_ippool", "default_ipv6_ippool"

// chained returns a list of plugins with Fenceline at its end, which takes the place of Spiderpool's coordinator.
func chained(n network, whole map[string]any) map[string]any {
	last := map[string]any{"type": "fenceline"}
	if plugins, isList := whole["plugins"].([]any); isList {
		plugins = slices.DeleteFunc(plugins, func(each any) bool {
			plugin, _ := each.(map[string]any)
			isCoordinator := n.from == v1alpha1.MoveSpiderpool && plugin["type"] == coordinator
			for key, value := range plugin {
				if to := ofCoordinator[key]; isCoordinator && to != "" {
					last[to] = value
				}
			}
			return isCoordinator
		})
		if last["mode"] == "disable" {
			last["mode"] = "off"
		}
		whole["plugins"] = append(plugins, last)
		return whole
	}
	list := map[string]any{"cniVersion": "1.0.0", "name": n.Definition.Name}
	for _, key := range []string{"cniVersion", "name"} {
		if value, ok := whole[key]; ok {
			list[key] = value
			delete(whole, key)
		}
	}
	list["plugins"] = []any{whole, last}
	return list
}
