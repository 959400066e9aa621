// SPDX-License-Identifier: Apache-2.0

// Package metrics holds the controller's metrics. Labels are bounded (R13):
// pools, states, reasons and verbs, never an address, MAC or pod.
package metrics

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/internal/owner"
)

// Metrics holds the metrics of the controller. Safe for concurrent use.
type Metrics struct {
	reclaims    *prometheus.CounterVec
	withheld    *prometheus.CounterVec
	enabled     *prometheus.GaugeVec
	quarantined *prometheus.GaugeVec
	addresses   *prometheus.GaugeVec
	free        *prometheus.GaugeVec
	reserved    *prometheus.GaugeVec
	outside     *prometheus.GaugeVec
	hostsOfMany *prometheus.GaugeVec
	leases      *prometheus.GaugeVec
	apiErrors   *prometheus.CounterVec
	unknown     *prometheus.CounterVec
	subnets     subnetGauges
}

// New registers the metrics.
func New(registry prometheus.Registerer) (*Metrics, error) {
	m := &Metrics{
		reclaims: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "fenceline_reclaims_total",
			Help: "Addresses that the controller took from their holders, by reason.",
		}, []string{"reason"}),
		withheld: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "fenceline_reclaims_withheld_total",
			Help: "Leases that were due and not taken because reclaim is switched off, by reason.",
		}, []string{"reason"}),
		enabled: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "fenceline_reclaim_enabled",
			Help: "1 while reclaim is switched on, 0 while it is switched off. Only the leader reports this.",
		}, nil),
		quarantined: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "fenceline_quarantined_addresses",
			Help: "Addresses that are Quarantined until their previous holder is fenced, gone or proven silent.",
		}, []string{"pool", "reason"}),
		addresses: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "fenceline_pool_addresses",
			Help: "Addresses that a pool can hand out.",
		}, []string{"pool"}),
		free: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "fenceline_pool_free_addresses",
			Help: "Addresses of a pool without a lease, or with a Warm one.",
		}, []string{"pool"}),
		reserved: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "fenceline_pool_reserved_addresses",
			Help: "Addresses of a pool that a ReservedIP keeps back.",
		}, []string{"pool"}),
		outside: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "fenceline_pool_outside_leases",
			Help: "Leases of addresses that their pool no longer hands out.",
		}, []string{"pool"}),
		hostsOfMany: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "fenceline_pool_hosts_of_many_addresses",
			Help: "Foreign hosts each of which answers for many addresses of a pool, such as proxies.",
		}, []string{"pool"}),
		leases: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "fenceline_pool_leases",
			Help: "Leases of a pool by state.",
		}, []string{"pool", "state"}),
		apiErrors: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "fenceline_api_errors_total",
			Help: "Failed requests to the Kubernetes API, without conflicts (409) and absent objects (404).",
		}, []string{"verb"}),
		unknown: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "fenceline_unknown_owners_total",
			Help: "Reads of owners that could not tell whether an address is still kept, by reason. The address stays.",
		}, []string{"reason"}),
		subnets: newSubnetGauges(),
	}
	for _, c := range []prometheus.Collector{
		m.reclaims, m.withheld, m.enabled, m.quarantined, m.addresses, m.free, m.reserved, m.outside, m.hostsOfMany, m.leases, m.apiErrors, m.unknown,
	} {
		if err := registry.Register(c); err != nil {
			return nil, fmt.Errorf("register metrics: %w", err)
		}
	}
	for _, gauge := range m.subnets.all() {
		if err := registry.Register(gauge); err != nil {
			return nil, fmt.Errorf("register metrics: %w", err)
		}
	}
	// Each counter starts at 0. Otherwise rate() would miss the first increment.
	for _, reason := range reasons() {
		m.reclaims.WithLabelValues(string(reason))
		m.withheld.WithLabelValues(string(reason))
	}
	m.withheld.WithLabelValues("RetentionEnded") // of kept addresses
	for _, verb := range []string{verbGet, verbCreate, verbUpdate, verbPatch, verbDelete} {
		m.apiErrors.WithLabelValues(verb)
	}
	for _, lack := range owner.Lacks() {
		m.unknown.WithLabelValues(string(lack))
	}
	return m, nil
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

// OwnerUnknown counts a read of an owner that told nothing.
func (m *Metrics) OwnerUnknown(reason string) {
	m.unknown.WithLabelValues(reason).Inc()
}

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
