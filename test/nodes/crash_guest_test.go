// SPDX-License-Identifier: Apache-2.0

//go:build kernel && guest

package nodes_test

import (
	"fmt"
	"net/netip"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/test/check"
	"github.com/fenceline/fenceline/test/namespaces"
	"github.com/fenceline/fenceline/test/network"
	"github.com/fenceline/fenceline/test/nodes"
	"github.com/fenceline/fenceline/test/vf"
)

// Like TestNothingIsLostWhereverADDAndDELBreakOff, with one VF for all pods. The agent is killed at
// each step. The VF serves the next pod at once, and no guard is left.
func TestGuestNothingIsLostWhereverAVFBreaksOff(t *testing.T) {
	c := vf.New(t, 1)
	c.Pool("v4", "10.66.0.0/24", "10.66.0.2-10.66.0.9")
	n, card := c.Nodes[0], c.LAN.Hosts[0]
	function := check.Value(card.VFs())(t)[0]
	n.Make = func(pod *corev1.Pod) (*nodes.Sandbox, error) {
		var living []*network.Namespace
		for _, s := range c.Living() {
			living = append(living, s.Namespace)
		}
		if err := card.Collect(living...); err != nil {
			return nil, err
		}
		return c.NewSandbox(1, pod, function, vf.HostDevice, vf.Delegated)
	}
	w := &walk{Cluster: c.Cluster, n: n, host: c.Host(netip.MustParsePrefix("10.66.0.1/24")), once: true}
	killed := faults()[0]
	for _, v := range verbs() {
		for _, s := range v.steps {
			if v.kept {
				continue // its steps differ in the records only
			}
			if !t.Run(v.name+", "+s.name, func(t *testing.T) { w.in(t).play(v, s, killed) }) {
				return // the rows share the node
			}
		}
	}
	check.OK(t, card.Collect())
	check.Eventually(t, nodes.Limit, "the end of all leases and guards", func() error {
		if guards, err := n.Guards(); err != nil || len(guards) > 0 {
			return fmt.Errorf("guards %v are pinned: %w", guards, err)
		}
		return c.LeasesAreLiving(t.Context(), v1alpha1.StateRetained)
	})
	pf := check.Value(card.Links().LinkByName(namespaces.Parent))(t)
	info := pf.Attrs().Vfs[0]
	check.That(t, info.Vlan == 0 && info.LinkState == 0, "the PF restricts the VF still: %+v", info)
}
