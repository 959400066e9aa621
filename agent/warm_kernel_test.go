// SPDX-License-Identifier: Apache-2.0

//go:build kernel

package main

import (
	"net"
	"net/netip"
	"testing"

	"github.com/mdlayher/packet"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/internal/frames"
	"github.com/fenceline/fenceline/test/check"
)

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
				s := m.lease(netip.MustParseAddr(name)).Spec
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

// speak is a foreign host on the other end of the parent, which announces an
// address (RFC 5227 section 3).
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
