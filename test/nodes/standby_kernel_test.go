// SPDX-License-Identifier: Apache-2.0

//go:build kernel

package nodes_test

import (
	"errors"
	"fmt"
	"net/netip"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/fenceline/fenceline/internal/owner"
	"github.com/fenceline/fenceline/test/capture"
	"github.com/fenceline/fenceline/test/check"
	"github.com/fenceline/fenceline/test/namespaces"
	"github.com/fenceline/fenceline/test/network"
	"github.com/fenceline/fenceline/test/nodes"
)

// A pool of IPv6 comes between the start of a machine and its migration, so the target gets an IPv6 address of its
// own. It has the MAC of the machine: no frame with it leaves the target's node before the turn of the IPv4 address.
// Then both addresses speak.
func TestATargetWithANewFamilyIsMuteUntilItsTurn(t *testing.T) {
	t.Parallel()
	p := newProjects(t, 2, "Always")
	for _, n := range p.Nodes {
		onABridge(t, n)
	}
	check.OK(t, p.host.AddAddr(namespaces.HostInterface, netip.MustParsePrefix("fd66::1/64")))
	source := p.launch(p.Nodes[0])
	heard := p.hears(source.Addr)
	p.Pool("v6", "fd66::/64", "fd66::20")
	to := p.Nodes[1]
	to.Make = func(pod *corev1.Pod) (*nodes.Sandbox, error) {
		list := fmt.Appendf(nil, `{"cniVersion":"1.0.0","name":"underlay","plugins":[{%s,"ipam":%s}]}`, to.Plugin, to.IPAM())
		s, err := to.NewSandboxOf(pod, list, nil)
		if err == nil {
			s.Dual = true
		}
		return s, err
	}
	target := p.launch(to, func(pod *corev1.Pod) { pod.Labels[owner.LabelMigration] = "m" })
	check.Must(t, target.Addr == source.Addr && target.MAC.String() == source.MAC.String(),
		"the target has %s and %s, the source %s and %s", target.Addr, target.MAC, source.Addr, source.MAC)
	fresh := netip.MustParseAddr("fd66::20")
	check.Value(p.Lease(p.ctx, fresh))(t)
	check.That(t, target.Command(p.ctx, "ping", "-c", "10", "-i", "0.2", "-W", "1", "fd66::1").Run() != nil, "the target reaches a host before its turn")
	heard()
	atTarget := func() (early []capture.Frame) {
		for _, f := range capture.From(p.Frames.Frames(), target.MAC) {
			if f.Port == network.Port(to.Name) {
				early = append(early, f)
			}
		}
		return early
	}
	check.None(t, atTarget(), "with the MAC of the machine, the switch has learned at the target from")

	state := map[string]any{"sourcePod": source.Pod.Name, "targetPod": target.Pod.Name, "mode": "PreCopy", "targetNodeDomainReadyTimestamp": "2030-01-01T12:00:00Z"}
	check.OK(t, unstructured.SetNestedMap(p.instance.Object, state, "status", "migrationState"))
	check.OK(t, p.Update(p.ctx, p.instance))
	p.Eventually(t, "the target has the address", func() error { return p.boundTo(target) })
	p.hears(source.Addr)()
	p.Eventually(t, "the new address is announced", func() error {
		if len(capture.SpokenFor(atTarget(), fresh)) == 0 {
			return errors.New("it is not")
		}
		return nil
	})
	p.hears(fresh)()
	check.OK(t, errors.Join(source.Finish(p.ctx), target.Finish(p.ctx)))
}
