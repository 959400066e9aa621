// SPDX-License-Identifier: Apache-2.0

package scenario

import "github.com/fenceline/fenceline/test/cluster"

// All returns every scenario, in the order of the story.
func All() []Scenario {
	all := []Scenario{
		{Name: "whole", Promise: "A pod is a whole Kubernetes pod: probes, Services, DNS, its node, other nodes and the outside reach it, and it reaches them, in both families", play: playWhole},
		{Name: "steady", Promise: "Connections and pings outlive agent, kubelet and containerd, and a booted node has nothing of before", play: playSteady},
		{Name: "readme", Promise: "docs/start.md is true word for word, from its first pool to its end, on the cluster of make cluster-up", play: playReadme},
		{Name: "conflict", Promise: "An address that a foreign host uses is not given to a pod, and does not keep a pool from its deletion", play: playConflict},
		{Name: "multus", Promise: "Each interface of a pod gets its own address, from a pool that serves it", play: playMultus},
		{
			Name: "secondary", Promise: "Beside another network, interfaces on the underlay are reached, and answer, by the underlay alone, with the thin plugin of Multus",
			play: secondaryBy(cluster.Multus{Routed: true}),
		},
		{Name: "secondary-thick", Promise: "The same with the thick plugin of Multus", ByHand: true, play: secondaryBy(cluster.Multus{Routed: true, Thick: true})},
		{Name: "latecomer", Promise: "A pod defends its address against a foreign host. After the pod, no pod gets the address until that host has left, and then the next one does", play: badDay(playLatecomer)},
		{Name: "attacks", Promise: "Of a pod with NET_RAW that pretends to be somebody else, nobody hears a frame, each of them is counted under its reason, and other pods lose nothing", play: playAttacks},
		{Name: "exhausted", Promise: "Each pod gets its own address. Pods that find a pool full learn why, and get the addresses that other pods release", play: playExhausted},
		{Name: "shapes", Promise: "DaemonSets, Deployments and Jobs come through with one spare address, also in updates that start the new pod first", play: badDay(playShapes)},
		{Name: "subnets", Promise: "A Deployment, a DaemonSet and a Job get pools of their own of an IPSubnet. A rollout that starts the new pod first needs one address more, and the pools end with the applications", play: playSubnets},
		{Name: "zombie", Promise: "The address of a pod on a cut-off node serves a new pod, that of a pod of a StatefulSet goes with its name to another node, and the zombies are silent", play: badDay(playZombie)},
		{Name: "dead-agent", Promise: "The same with the agent of the cut-off node killed", play: badDay(playDeadAgent)},
		{Name: "split", Promise: "After a split of the underlay, two owners of an address become one as soon as they hear each other", play: badDay(playSplit)},
		{Name: "flapping", Promise: "An unstable management network takes no address from a pod that stays", play: badDay(playFlapping)},
		{Name: "restarts", Promise: "While any part of the cluster restarts under load, no address is lost or has two speakers", play: badDay(playRestarts)},
		{Name: "absent", Promise: "A node without its agent stays Ready at first, and reports later what is missing. Its pods are not disturbed", play: badDay(playAbsent)},
		{Name: "lossy", Promise: "On cables that lose frames, an address still has one speaker at a time", play: badDay(playLossy)},
		{Name: "stuck", Promise: "The address of a pod that outlives its deletion serves a new pod: it is frozen, its containerd-shim hangs, or it was deleted by force. After an ordinary deletion, a pod sends no frame once its lease is gone", play: badDay(playStuck)},
		{Name: "uninstall", Promise: "helm refuses to uninstall Fenceline while leases exist. By force, it leaves no lease and nothing on the nodes", play: playUninstall},
	}
	for i := range all {
		all[i].number = i + 1
	}
	return all
}
