// SPDX-License-Identifier: Apache-2.0

// Package metrics holds the controller's metrics. Labels are bounded (R13): pools, states, reasons
// and verbs, never an address, MAC or pod.
package metrics

import (
	"cmp"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/internal/owner"
)

// Metrics holds the metrics of the controller. Safe for concurrent use.
type Metrics struct {
	reclaims, withheld, apiErrors, unknown                                                 *prometheus.CounterVec
	enabled, waiting, quarantined, addresses, free, reserved, outside, hostsOfMany, leases *prometheus.GaugeVec

	subnetAddresses, subnetFree, subnetPools, subnetUnserved *prometheus.GaugeVec
}

// New registers the metrics.
func New(registry prometheus.Registerer) *Metrics {
	to := promauto.With(registry)
	counter := func(name, help, label string) *prometheus.CounterVec {
		return to.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, []string{label})
	}
	gauge := func(name, help string, labels ...string) *prometheus.GaugeVec {
		return to.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, labels)
	}
	m := &Metrics{
		reclaims:    counter("fenceline_reclaims_total", "Addresses that the controller took from their holders, by reason.", "reason"),
		withheld:    counter("fenceline_reclaims_withheld_total", "Leases that were due and not taken because reclaim is switched off, by reason.", "reason"),
		enabled:     gauge("fenceline_reclaim_enabled", "1 while reclaim is switched on, 0 while it is switched off. Only the leader reports this."),
		waiting:     gauge("fenceline_reclaims_waiting", "Addresses that are due, and wait until others were taken from their holders. Only the leader reports this."),
		quarantined: gauge("fenceline_quarantined_addresses", "Addresses that are Quarantined until their previous holder is fenced, gone or proven silent.", "pool", "reason"),
		addresses:   gauge("fenceline_pool_addresses", "Addresses that a pool can hand out, and the IPSubnet that it is of.", "pool", "subnet"),
		free:        gauge("fenceline_pool_free_addresses", "Addresses of a pool without a lease, or with a Warm one.", "pool"),
		reserved:    gauge("fenceline_pool_reserved_addresses", "Addresses of a pool that a ReservedIP or a load balancer keeps back.", "pool"),
		outside:     gauge("fenceline_pool_outside_leases", "Leases of addresses that their pool no longer hands out.", "pool"),
		hostsOfMany: gauge("fenceline_pool_hosts_of_many_addresses", "Foreign hosts each of which answers for many addresses of a pool, such as proxies.", "pool"),
		leases:      gauge("fenceline_pool_leases", "Leases of a pool by state.", "pool", "state"),
		apiErrors:   counter("fenceline_api_errors_total", "Failed requests to the Kubernetes API, without conflicts (409) and absent objects (404).", "verb"),
		unknown:     counter("fenceline_unknown_owners_total", "Reads of owners that could not tell whether an address is still kept, by reason. The address stays.", "reason"),

		subnetAddresses: gauge("fenceline_subnet_addresses", "Addresses of an IPSubnet that pools may have.", "subnet"),
		subnetFree:      gauge("fenceline_subnet_free_addresses", "Addresses of an IPSubnet that no pool has.", "subnet"),
		subnetPools:     gauge("fenceline_subnet_pools", "Pools that the controller made of an IPSubnet.", "subnet"),
		subnetUnserved:  gauge("fenceline_subnet_unserved_applications", "Applications that name an IPSubnet and lack addresses.", "subnet"),
	}
	// Each counter starts at 0. Otherwise rate() would miss the first increment.
	for _, reason := range reasons() {
		m.reclaims.WithLabelValues(string(reason))
		m.withheld.WithLabelValues(string(reason))
	}
	m.withheld.WithLabelValues("RetentionEnded") // of kept addresses
	for _, verb := range verbs() {
		m.apiErrors.WithLabelValues(verb)
	}
	for _, lack := range owner.Lacks() {
		m.unknown.WithLabelValues(string(lack))
	}
	return m
}

// reasons returns all reasons of a Quarantined lease.
func reasons() []v1alpha1.LeaseReason {
	return []v1alpha1.LeaseReason{
		v1alpha1.ReasonConflict, v1alpha1.ReasonPodTerminating, v1alpha1.ReasonPodDeleted, v1alpha1.ReasonPodGone,
		v1alpha1.ReasonPodReplaced, v1alpha1.ReasonPodFinished, v1alpha1.ReasonNodeUnreachable, v1alpha1.ReasonNodeGone,
		v1alpha1.ReasonOutOfService, v1alpha1.ReasonAgentGone, v1alpha1.ReasonNodeRestarted, v1alpha1.ReasonUnverified,
		v1alpha1.ReasonMigrated,
	}
}

// Reclaimed counts an address taken from its holder.
func (m *Metrics) Reclaimed(reason v1alpha1.LeaseReason) {
	m.reclaims.WithLabelValues(string(reason)).Inc()
}

// OwnerUnknown counts a failed read of an owner, by a reason that lasts until a person acts.
func (m *Metrics) OwnerUnknown(reason string) { m.unknown.WithLabelValues(reason).Inc() }

// Withheld counts a lease that was due while reclaim was switched off.
func (m *Metrics) Withheld(reason v1alpha1.LeaseReason) {
	m.withheld.WithLabelValues(string(reason)).Inc()
}

// SetReclaimEnabled sets whether reclaim is switched on. Only the leader reports this: a 0 of another
// replica would mean that reclaim is switched off.
func (m *Metrics) SetReclaimEnabled(enabled bool) {
	value := 0.0
	if enabled {
		value = 1
	}
	m.enabled.WithLabelValues().Set(value)
}

// SetReclaimsWaiting sets how many addresses wait to be taken.
func (m *Metrics) SetReclaimsWaiting(n int) { m.waiting.WithLabelValues().Set(float64(n)) }

// Pool holds the values of a pool's gauges.
type Pool struct {
	Status v1alpha1.IPPoolStatus
	// Subnet is the IPSubnet that the pool is of, if any.
	Subnet string
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
	m.addresses.WithLabelValues(pool, p.Subnet).Set(float64(p.Status.Total))
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

// SetSubnet sets the gauges of an IPSubnet. unserved counts the applications that lack addresses.
func (m *Metrics) SetSubnet(subnet string, s v1alpha1.IPSubnetStatus, unserved int) {
	m.subnetAddresses.WithLabelValues(subnet).Set(float64(s.Total))
	m.subnetFree.WithLabelValues(subnet).Set(float64(s.Free))
	m.subnetPools.WithLabelValues(subnet).Set(float64(s.PoolCount))
	m.subnetUnserved.WithLabelValues(subnet).Set(float64(unserved))
}

// ForgetSubnet drops the gauges of an IPSubnet that is gone.
func (m *Metrics) ForgetSubnet(subnet string) {
	for _, gauge := range []*prometheus.GaugeVec{m.subnetAddresses, m.subnetFree, m.subnetPools, m.subnetUnserved} {
		gauge.DeleteLabelValues(subnet)
	}
}

// verbs returns the label verb of each method. Lists and watches count as get.
func verbs() map[string]string {
	return map[string]string{
		http.MethodGet: "get", http.MethodPost: "create", http.MethodPut: "update", http.MethodPatch: "patch", http.MethodDelete: "delete",
	}
}

// Transport wraps a round tripper so that failed requests are counted by verb.
func (m *Metrics) Transport(next http.RoundTripper) http.RoundTripper {
	return promhttp.RoundTripperFunc(func(r *http.Request) (*http.Response, error) {
		response, err := next.RoundTrip(r)
		// A request that its caller cancelled, as at the end of a watch, did not fail.
		if (err != nil && r.Context().Err() == nil) || (err == nil && failed(response.StatusCode)) {
			m.apiErrors.WithLabelValues(cmp.Or(verbs()[r.Method], "other")).Inc()
		}
		return response, err
	})
}

// failed reports whether a status code is an error. A conflict, an absent object and an expired
// watch are normal.
func failed(code int) bool {
	isNormal := code == http.StatusConflict || code == http.StatusNotFound || code == http.StatusGone
	return code >= http.StatusBadRequest && !isNormal
}
