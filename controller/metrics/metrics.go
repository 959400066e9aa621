// Package metrics holds the controller's metrics. Labels are bounded (R13):
// pools, states, reasons and verbs, never an address, MAC or pod.
package metrics

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fenceline/fenceline/apis/v1alpha1"
)

// Metrics of the controller. Safe for concurrent use.
type Metrics struct {
	reclaims    *prometheus.CounterVec
	withheld    *prometheus.CounterVec
	enabled     *prometheus.GaugeVec
	quarantined *prometheus.GaugeVec
	addresses   *prometheus.GaugeVec
	free        *prometheus.GaugeVec
	reserved    *prometheus.GaugeVec
	outside     *prometheus.GaugeVec
	leases      *prometheus.GaugeVec
	apiErrors   *prometheus.CounterVec
}

// New registers the metrics.
func New(registry prometheus.Registerer) (*Metrics, error) {
	m := &Metrics{
		reclaims: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "fenceline_reclaims_total",
			Help: "Addresses taken from holders that did not give them back, by reason.",
		}, []string{"reason"}),
		withheld: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "fenceline_reclaims_withheld_total",
			Help: "Leases that were due and left as they are because reclaim is switched off, by reason.",
		}, []string{"reason"}),
		enabled: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "fenceline_reclaim_enabled",
			Help: "1 while addresses are taken back, 0 while reclaim is switched off.",
		}, nil),
		quarantined: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "fenceline_quarantined_addresses",
			Help: "Addresses set aside until their last holder is fenced, gone or proven silent.",
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
			Help: "Leases of addresses that their pool does not hand out any more.",
		}, []string{"pool"}),
		leases: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "fenceline_pool_leases",
			Help: "Leases of a pool by state.",
		}, []string{"pool", "state"}),
		apiErrors: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "fenceline_api_errors_total",
			Help: "Requests to the Kubernetes API that failed, without lost races (409) and absent objects (404).",
		}, []string{"verb"}),
	}
	for _, c := range []prometheus.Collector{
		m.reclaims, m.withheld, m.enabled, m.quarantined, m.addresses, m.free, m.reserved, m.outside, m.leases, m.apiErrors,
	} {
		if err := registry.Register(c); err != nil {
			return nil, fmt.Errorf("register metrics: %w", err)
		}
	}
	// A counter that appears with its first event hides that event from rate().
	for _, reason := range reasons() {
		m.reclaims.WithLabelValues(string(reason))
	}
	for _, verb := range []string{verbGet, verbCreate, verbUpdate, verbPatch, verbDelete} {
		m.apiErrors.WithLabelValues(verb)
	}
	return m, nil
}

// reasons are all for which a lease is Quarantined.
func reasons() []v1alpha1.LeaseReason {
	return []v1alpha1.LeaseReason{
		v1alpha1.ReasonConflict, v1alpha1.ReasonPodTerminating, v1alpha1.ReasonPodDeleted, v1alpha1.ReasonPodGone,
		v1alpha1.ReasonPodReplaced, v1alpha1.ReasonPodFinished, v1alpha1.ReasonNodeUnreachable, v1alpha1.ReasonNodeGone,
		v1alpha1.ReasonOutOfService, v1alpha1.ReasonAgentGone, v1alpha1.ReasonUnverified,
	}
}

// Reclaimed counts an address taken from its holder.
func (m *Metrics) Reclaimed(reason v1alpha1.LeaseReason) {
	m.reclaims.WithLabelValues(string(reason)).Inc()
}

// Withheld counts a lease that was due while reclaim was switched off.
func (m *Metrics) Withheld(reason v1alpha1.LeaseReason) {
	m.withheld.WithLabelValues(string(reason)).Inc()
}

// SetReclaimEnabled tells whether addresses are taken back. Who does not lead has
// nothing to tell: 0 would say that somebody has switched reclaim off.
func (m *Metrics) SetReclaimEnabled(enabled bool) {
	value := 0.0
	if enabled {
		value = 1
	}
	m.enabled.WithLabelValues().Set(value)
}
