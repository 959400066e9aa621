// SPDX-License-Identifier: Apache-2.0

//go:build kernel

package nodes_test

import (
	"context"
	"net/netip"
	"strings"
	"testing"
	"time"

	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/test/check"
	"github.com/fenceline/fenceline/test/nodes"
)

// A foreign host has one of two IPv6 addresses. The whole chain takes part: the reference macvlan plugin
// with the kernel's own duplicate address detection, the agent and the API server. The pod gets the
// other address. A second pod is refused for the foreign host, and gets its address once the host has
// left.
func TestAnIPv6ConflictIsFoundByAWholeADD(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), nodes.Limit)
	defer cancel()
	c := nodes.New(t, 1)
	n := c.Nodes[0]
	taken, free := netip.MustParseAddr("fd66::2"), netip.MustParseAddr("fd66::3")
	pool := c.Pool("v6", "fd66::/64", "fd66::2-fd66::3")
	// With a gateway, the macvlan plugin waits for the kernel's duplicate address detection.
	pool.Spec.Gateway = ptr.To("fd66::1")
	change(ctx, t, c, pool)
	host := c.Host(netip.PrefixFrom(taken, 64))

	first, err := n.NewPod(ctx, "first", nil)
	check.OK(t, err)
	pod, err := n.NewSandbox(first)
	check.OK(t, err)
	check.OK(t, pod.Add(ctx))
	if pod.Addr != free {
		t.Fatalf("the pod has %s, want %s", pod.Addr, free)
	}
	ping := host.Command(ctx, "ping", "-6", "-q", "-c", "3", "-i", "0.2", "-w", "30", pod.Addr.String())
	if out, err := ping.CombinedOutput(); err != nil {
		t.Errorf("the foreign host does not reach the pod: %v\n%s", err, out)
	}

	second, err := n.NewPod(ctx, "second", nil)
	check.OK(t, err)
	late, err := n.NewSandbox(second)
	check.OK(t, err)
	refused := late.Add(ctx)
	if refused == nil || !strings.Contains(refused.Error(), "pool v6: it is exhausted") {
		t.Fatalf("the second pod was answered %v", refused)
	}
	check.OK(t, late.End(ctx))
	conflict := &v1alpha1.IPLease{}
	check.OK(t, c.Get(ctx, client.ObjectKey{Name: v1alpha1.LeaseName("", taken)}, conflict))
	if s := conflict.Spec; s.Reason != v1alpha1.ReasonConflict || s.Conflict == nil || s.Conflict.MAC != host.MAC.String() {
		t.Errorf("the lease of the foreign host's address is %+v, want its MAC %s", s, host.MAC)
	}

	check.OK(t, host.Unplug())
	began := time.Now()
	got, err := n.Begin(ctx, second)
	check.OK(t, err)
	t.Logf("the address of the foreign host served a pod %s after the host had left", time.Since(began).Round(time.Millisecond))
	if got.Addr != taken {
		t.Errorf("the second pod has %s, want %s", got.Addr, taken)
	}
	for _, s := range []*nodes.Sandbox{pod, got} {
		check.OK(t, s.End(ctx))
		check.OK(t, c.ForgetPod(ctx, s.Pod))
	}
	c.Eventually(t, "all is given back", func() error { return c.LeasesAreLiving(ctx) })
	check.OK(t, c.SpeakersAreHolders())
}
