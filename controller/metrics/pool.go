// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/fenceline/fenceline/apis/v1alpha1"
)

// Pool holds the values of a pool's gauges.
type Pool struct {
	Status v1alpha1.IPPoolStatus
	// Quarantined counts the Quarantined leases by reason.
	Quarantined map[v1alpha1.LeaseReason]int64
	// Outside counts the leases of addresses that the pool no longer hands out.
	Outside int64
	// Free counts the addresses without a lease, or with a Warm one.
	Free int64
	// HostsOfMany counts the foreign hosts that answer for many addresses.
	HostsOfMany int
}

// SetPool sets the gauges of a pool.
func (m *Metrics) SetPool(pool string, p Pool) {
	m.addresses.WithLabelValues(pool).Set(float64(p.Status.Total))
	m.free.WithLabelValues(pool).Set(float64(p.Free))
	m.reserved.WithLabelValues(pool).Set(float64(p.Status.Reserved))
	m.outside.WithLabelValues(pool).Set(float64(p.Outside))
	m.hostsOfMany.WithLabelValues(pool).Set(float64(p.HostsOfMany))
	for state, n := range map[v1alpha1.LeaseState]int64{
		v1alpha1.StateBound:       p.Status.Bound,
		v1alpha1.StateWarm:        p.Status.Warm,
		v1alpha1.StateQuarantined: p.Status.Quarantined,
		v1alpha1.StateRetained:    p.Status.Retained,
	} {
		m.leases.WithLabelValues(pool, string(state)).Set(float64(n))
	}
	// A reason without leases keeps its series at 0, so that an alert ends with a sample, not with a gap.
	for _, reason := range reasons() {
		m.quarantined.WithLabelValues(pool, string(reason)).Set(float64(p.Quarantined[reason]))
	}
}

// ForgetPool drops the gauges of a pool that is gone.
func (m *Metrics) ForgetPool(pool string) {
	for _, gauge := range []*prometheus.GaugeVec{m.addresses, m.free, m.reserved, m.outside, m.hostsOfMany, m.leases, m.quarantined} {
		gauge.DeletePartialMatch(prometheus.Labels{"pool": pool})
	}
}
