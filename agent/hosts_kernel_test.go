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
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/cni/agentapi"
	"github.com/fenceline/fenceline/internal/frames"
	"github.com/fenceline/fenceline/test/capture"
	"github.com/fenceline/fenceline/test/check"
)

// proxies shows the limits of agent/segment with real frames, and an API server that knows the
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

// warmAddresses are the Warm leases of the agent, from the first ADD of a pool on. test/nodes has pods
// that get them, and the pool that asks for them.
func (m *machine) warmAddresses(t *testing.T) {
	ctx := t.Context()
	pool := &v1alpha1.IPPool{ObjectMeta: metav1.ObjectMeta{Name: "warm"}, Spec: v1alpha1.IPPoolSpec{
		Subnet: "10.68.0.0/24", Warm: new(int64(2)),
	}}
	check.OK(t, m.Create(ctx, pool))
	pool.Status.Total, pool.Status.Free, pool.Status.Agents, pool.Status.Served = 254, 254, 1, 1
	check.OK(t, m.Status().Update(ctx, pool))
	first := m.sandbox()
	first.Network.DefaultIPv4IPPool = []string{pool.Name}
	m.eventually("the agent serves the pool", seen, func() bool {
		_, err := m.agent.Add(ctx, first)
		return err == nil
	})

	t.Run("throws one out for which a foreign host speaks", func(t *testing.T) {
		for name := range m.ready(pool) {
			mac := m.speak(netip.MustParseAddr(name))
			m.eventually("the lease is set aside", seen, func() bool {
				l := m.lease(netip.MustParseAddr(name))
				if l == nil {
					return false
				}
				s := l.Spec
				return s.State == v1alpha1.StateQuarantined && s.Reason == v1alpha1.ReasonConflict && s.Conflict.MAC == mac.String()
			})
			_, ready := m.ready(pool)[name]
			check.That(t, !ready, "it is ready again")
			return
		}
	})

	t.Run("gives all up when the node is cordoned", func(t *testing.T) {
		m.ready(pool)
		m.cordon(true)
		m.eventually("the pool has them back", seen, func() bool { return len(m.warmLeases(pool)) == 0 })
		m.cordon(false)
	})
}

// ready waits until as many leases are ready as the pool wants, and returns them.
func (m *machine) ready(pool *v1alpha1.IPPool) map[string]v1alpha1.IPLease {
	m.t.Helper()
	var leases map[string]v1alpha1.IPLease
	m.eventually("the pool's addresses are ready", seen, func() bool {
		leases = m.warmLeases(pool)
		return int64(len(leases)) == *pool.Spec.Warm && gauge(m.t, pool.Name, "ready") == float64(*pool.Spec.Warm)
	})
	return leases
}

func (m *machine) warmLeases(pool *v1alpha1.IPPool) map[string]v1alpha1.IPLease {
	m.t.Helper()
	list := &v1alpha1.IPLeaseList{}
	check.OK(m.t, m.List(m.t.Context(), list, client.MatchingFields{"spec.pool": pool.Name, "spec.state": string(v1alpha1.StateWarm)}))
	leases := map[string]v1alpha1.IPLease{}
	for _, l := range list.Items {
		leases[l.Name] = l
	}
	return leases
}

// gauge reads fenceline_warm_leases.
func gauge(t *testing.T, pool, condition string) float64 {
	t.Helper()
	families := check.Value(ctrlmetrics.Registry.Gather())(t)
	for _, f := range families {
		if f.GetName() != "fenceline_warm_leases" {
			continue
		}
		for _, metric := range f.GetMetric() {
			labels := map[string]string{}
			for _, l := range metric.GetLabel() {
				labels[l.GetName()] = l.GetValue()
			}
			if labels["pool"] == pool && labels["condition"] == condition {
				return metric.GetGauge().GetValue()
			}
		}
	}
	return 0
}

// speak is a foreign host on the other end of the parent, which announces an address (RFC 5227 section 3).
func (m *machine) speak(addr netip.Addr) net.HardwareAddr {
	t := m.t
	t.Helper()
	host := check.Value(net.InterfaceByName(m.parent + "p"))(t)
	conn := check.Value(packet.Listen(host, packet.Raw, 0, nil))(t)
	defer conn.Close()
	check.OK(t, broadcast(conn, check.Value(frames.Announce(host.HardwareAddr, addr))(t)[0]))
	return host.HardwareAddr
}

func (m *machine) cordon(cordoned bool) {
	m.t.Helper()
	node := &corev1.Node{}
	check.OK(m.t, m.Get(m.t.Context(), client.ObjectKeyFromObject(m.node), node))
	node.Spec.Unschedulable = cordoned
	check.OK(m.t, m.Update(m.t.Context(), node))
}
