// SPDX-License-Identifier: Apache-2.0

//go:build kernel

package main

import (
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mdlayher/packet"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/cni/agentapi"
	"github.com/fenceline/fenceline/internal/frames"
	"github.com/fenceline/fenceline/test/capture"
	"github.com/fenceline/fenceline/test/check"
)

// proxies shows the limits of agent/segment/foreign with real frames, and an API server that knows the
// selectors.
func (m *machine) proxies(t *testing.T) {
	for name, subnet := range map[string]string{"proxy-v4": "10.74.0.0/24", "proxy-v6": "fd00:74::/120"} {
		t.Run(name, func(t *testing.T) { m.proxied(t, name, netip.MustParsePrefix(subnet)) })
	}
}

func (m *machine) proxied(t *testing.T, name string, subnet netip.Prefix) {
	ctx := t.Context()
	pool := &v1alpha1.IPPool{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.IPPoolSpec{Subnet: subnet.String()}}
	check.OK(t, m.Create(ctx, pool))
	pool.Status.Agents = 1
	check.OK(t, m.Status().Update(ctx, pool))
	request := func() agentapi.AddRequest {
		r := m.sandbox()
		if r.Network.DefaultIPv4IPPool = []string{name}; subnet.Addr().Is6() {
			r.Network.DefaultIPv4IPPool, r.Network.DefaultIPv6IPPool = nil, []string{name}
		}
		return r
	}
	first := request()
	m.eventually("the agent serves the pool", seen, func() bool {
		_, err := m.agent.Add(ctx, first)
		return err == nil
	})

	proxy := m.answerAll(t, subnet)
	for range 3 {
		err := m.addError(request())
		wantCode(t, agentapi.CodeTryAgainLater, err)
		why := proxy.String() + " answers for more than 10 addresses on parent " + m.parent
		check.That(t, strings.Contains(err.Error(), why), "the refusal does not say %q", why)
	}
	leases := func() (states map[v1alpha1.LeaseState]int) {
		list := &v1alpha1.IPLeaseList{}
		check.OK(t, m.List(ctx, list, client.MatchingFields{"spec.pool": name}))
		states = map[v1alpha1.LeaseState]int{}
		for _, l := range list.Items {
			states[l.Spec.State]++
		}
		return states
	}
	got := leases()
	check.That(t, got[v1alpha1.StateQuarantined] == v1alpha1.ManyAddresses && got[v1alpha1.StateBound] == 1, "leases %v", got)

	check.OK(t, m.Get(ctx, client.ObjectKeyFromObject(pool), pool))
	pool.Spec.ConflictDetection = &v1alpha1.ConflictDetection{IgnoreMACs: []string{proxy.String()}}
	check.OK(t, m.Update(ctx, pool))
	named := time.Now()
	m.eventually("the addresses are back at once", 5*time.Second, func() bool { return leases()[v1alpha1.StateQuarantined] == 0 })
	t.Logf("%s after the pool names the proxy", time.Since(named))
	check.Value(m.agent.Add(ctx, request()))(t)
	if got := leases(); got[v1alpha1.StateBound] != 2 {
		t.Errorf("leases %v", got)
	}
}

// answerAll is a host on the other end of the parent that answers every probe for an address of a
// subnet, until the test ends.
func (m *machine) answerAll(t *testing.T, subnet netip.Prefix) net.HardwareAddr {
	t.Helper()
	host := check.Value(net.InterfaceByName(m.parent + "p"))(t)
	const everything = 0x0003 // ETH_P_ALL
	conn := check.Value(packet.Listen(host, packet.Raw, everything, nil))(t)
	check.OK(t, conn.SetPromiscuous(true))
	// Each family has a proxy of its own, because the limit of a MAC holds for all pools of a parent.
	mac := net.HardwareAddr{0x02, 0xbd, 0, 0, 0x74, byte(subnet.Bits())}
	done := make(chan struct{})
	go func() {
		defer close(done)
		frame := make([]byte, 2048)
		for {
			n, _, err := conn.ReadFrom(frame)
			if err != nil {
				return
			}
			f := capture.Decode(frame[:n])
			asks := slices.Contains([]string{"ARP request", "ARP probe", "neighbour solicitation"}, f.Kind)
			if !asks || !subnet.Contains(f.Target) {
				continue
			}
			answers, err := frames.Announce(mac, f.Target)
			if err != nil {
				continue
			}
			// An error shows as an ADD that succeeds.
			_ = broadcast(conn, answers[0])
		}
	}()
	t.Cleanup(func() {
		check.OK(t, conn.Close())
		<-done
	})
	return mac
}
