// SPDX-License-Identifier: Apache-2.0

// Package metrics counts the agent's work on addresses. Labels are bounded: pool,
// source, verdict, verb, condition, result, family and reason, never MAC or pod (R13).
package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/fenceline/fenceline/agent/segment"
)

// Agent holds the agent's counters. Safe for concurrent use.
type Agent struct {
	conflicts         *prometheus.CounterVec
	verifications     *prometheus.CounterVec
	renewals          *prometheus.CounterVec
	gatewayUnanswered *prometheus.CounterVec
	apiErrors         *prometheus.CounterVec
	pinFailures       prometheus.Counter
	guardsRestored    prometheus.Counter
	tokensAhead       prometheus.Gauge
	warmLeases        *prometheus.GaugeVec
	warmTaken         *prometheus.CounterVec
	warmLost          *prometheus.CounterVec
	waiting           *prometheus.GaugeVec
	waits             *prometheus.HistogramVec
	steps             *prometheus.SummaryVec
	linkFaults        *prometheus.GaugeVec
	keyFaults         *prometheus.GaugeVec
	keyRevision       prometheus.Gauge
	networksFull      prometheus.Gauge
	vfWalls           *prometheus.GaugeVec
	interfacesGone    *prometheus.GaugeVec
	parentHazards     *prometheus.GaugeVec
	subinterfaces     prometheus.Gauge
	podCIDRs          prometheus.Gauge
	impostors         *prometheus.CounterVec
}

// New registers the counters.
func New(r prometheus.Registerer) *Agent {
	auto := promauto.With(r)
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return auto.NewCounterVec(prometheus.CounterOpts{Namespace: "fenceline", Name: name, Help: help}, labels)
	}
	gauge := func(name, help string, labels ...string) *prometheus.GaugeVec {
		return auto.NewGaugeVec(prometheus.GaugeOpts{Namespace: "fenceline", Name: name, Help: help}, labels)
	}
	a := &Agent{
		conflicts:         counter("conflicts_total", "Second speakers for an address, by pool and by the part that detected them.", "pool", "source"),
		verifications:     counter("verifications_total", "Verifications of addresses taken by force, by verdict.", "verdict"),
		renewals:          counter("fence_renewals_total", "Renewals of addresses that were fenced although the pod's lease was its own, by verdict.", "verdict"),
		gatewayUnanswered: counter("gateway_unanswered_total", "Times that an ADD has passed over the pool because its gateway did not answer (spec.gatewayCheck), by pool.", "pool"),
		apiErrors:         counter("api_errors_total", "Calls to the API server that failed, by verb.", "verb"),
		pinFailures:       counter("guard_pin_failures_total", "Guards that enforce but could not be pinned, so a process in their pod could remove them. Each is tried again.").WithLabelValues(),
		guardsRestored:    counter("guards_restored_total", "Guards that were removed from interfaces of pods and put back.").WithLabelValues(),
		tokensAhead:       gauge("store_went_back_addresses", "Addresses of this node whose tokens the API server's store has not reached since it went back.").WithLabelValues(),
		warmLeases:        gauge("warm_leases", "Warm leases of this node, by pool and by condition. An ADD can bind a ready lease at once.", "pool", "condition"),
		warmTaken:         counter("warm_adds_total", "ADDs that a Warm lease could have served, by pool and result.", "pool", "result"),
		warmLost:          counter("warm_lost_total", "Warm leases that had to be proven again or were released, by pool and reason.", "pool", "reason"),
		waiting:           gauge("waiting_adds", "ADDs of this node that wait for an address of a full pool, by pool.", "pool"),
		waits: auto.NewHistogramVec(prometheus.HistogramOpts{
			Namespace: "fenceline", Name: "add_wait_seconds",
			Help:    "Time for which ADDs waited for an address of a full pool, by result: served or ended.",
			Buckets: []float64{.1, .2, .5, 1, 2, 5, 10, 20, 30, 45, 60, 90},
		}, []string{"result"}),
		steps: auto.NewSummaryVec(prometheus.SummaryOpts{
			Namespace: "fenceline", Name: "add_step_seconds", Help: "Time that the agent took for the steps of ADDs.",
		}, []string{"step"}),
		linkFaults:     gauge("host_link_fault", "1: the node lacks something that its host links need, by family of addresses and by reason: rules, forwarding, services or reach.", "family", "reason"),
		keyFaults:      gauge("claim_key_fault", "1: the Secret of the claim key cannot be used, by reason: missing or malformed.", "reason"),
		keyRevision:    gauge("claim_key_revision", "resourceVersion of the Secret whose claim keys this node uses; 0: none yet.").WithLabelValues(),
		networksFull:   gauge("networks_full", "1: there are more networks (spec.network of pools) than the kernel can obey claims of, so addresses of some cannot be fenced here.").WithLabelValues(),
		vfWalls:        gauge("vf_walls_missing", "Virtual functions of pods that their PF does not restrict beside the guard, by wall: off, spoof_check, mac or distrust.", "wall"),
		impostors:      counter("impostors_removed_total", "Pod interfaces of this node that were removed because they got frames of others, by reason: mac or source.", "reason"),
		interfacesGone: gauge("interfaces_gone", "Interfaces that running pods of this node have lost, by parent.", "parent"),
		parentHazards:  gauge("parent_hazard", "1: something else works on the frames of the parent, by kind: xdp, l2-fwd-offload, balance-alb, filters or programs.", "parent", "kind"),
		subinterfaces:  gauge("subinterface_faults", "VLAN subinterfaces that networks name and that the agent cannot make, set up or remove.").WithLabelValues(),
		podCIDRs:       gauge("pod_cidrs_unknown", "1: pods whose default routes are on the underlay lack routes to pods of other networks, because pod CIDRs are unknown.").WithLabelValues(),
	}
	for _, reason := range []string{"mac", "source"} {
		a.impostors.WithLabelValues(reason)
	}
	for _, result := range []string{"served", "ended"} {
		a.waits.WithLabelValues(result)
	}
	// If a series begins with its first event, a rate over it misses that event.
	for _, v := range []segment.Verdict{segment.Fenced, segment.Silent, segment.Answered, segment.Unknown} {
		a.verifications.WithLabelValues(string(v))
		a.renewals.WithLabelValues(string(v))
	}
	a.renewals.WithLabelValues(string(segment.Unverified))
	for _, verb := range []string{"create", "update", "delete", "get", "list"} {
		a.apiErrors.WithLabelValues(verb)
	}
	return a
}

// TCX returns the metric that says where the programs are in the kernel.
func TCX(has func() bool) prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Namespace: "fenceline", Name: "tcx",
		Help: "1: guards and observers are pinned links in tcx. 0: the kernel has no tcx, and they are filters of clsact.",
	}, func() float64 { return oneIf(has()) })
}

// SocketGuard returns the metric that says whether pods get no sockets that skip their guard.
func SocketGuard(runs func() bool) prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Namespace: "fenceline", Name: "socket_guard",
		Help: "1: pods get no sockets that skip their guard. 0: the node cannot refuse them, or agent.socketGuard is false.",
	}, func() float64 { return oneIf(runs()) })
}

// Moves returns the metrics of the addresses that have moved to the next sandbox of their pod, and whose
// leases do not record that yet. of returns their number, and the age of the oldest.
func Moves(of func() (n int, oldest time.Duration)) []prometheus.Collector {
	return []prometheus.Collector{
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Namespace: "fenceline", Name: "moves_unrecorded",
			Help: "Addresses that have moved to the next sandbox of their pod while the API server was away, and whose leases do not record that yet.",
		}, func() float64 { n, _ := of(); return float64(n) }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Namespace: "fenceline", Name: "moves_unrecorded_age_seconds",
			Help: "Age of the oldest such move. 0: there is none.",
		}, func() float64 { _, oldest := of(); return oldest.Seconds() }),
	}
}

// HintUnanswered returns the metric of the question for the leases of this node.
func HintUnanswered(since func() time.Duration) prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Namespace: "fenceline", Name: "hint_unanswered_seconds",
		Help: "Time for which the controller has not answered which leases this node has. 0: it has answered.",
	}, func() float64 { return since().Seconds() })
}

// Conflict counts a second speaker.
func (a *Agent) Conflict(pool string, source segment.Source) {
	a.conflicts.WithLabelValues(pool, string(source)).Inc()
}

// Verification counts a verdict.
func (a *Agent) Verification(v segment.Verdict) { a.verifications.WithLabelValues(string(v)).Inc() }

// Renewal counts a renewal by the verdict that decided whether the pod speaks again.
func (a *Agent) Renewal(v segment.Verdict) { a.renewals.WithLabelValues(string(v)).Inc() }

// NetworksFull sets whether the kernel knows the networks of all pools.
func (a *Agent) NetworksFull(full bool) { a.networksFull.Set(oneIf(full)) }

// InterfacesGone sets the interfaces that running pods have lost, by parent. Others have no series.
func (a *Agent) InterfacesGone(byParent map[string]int) {
	a.interfacesGone.Reset()
	for parent, n := range byParent {
		a.interfacesGone.WithLabelValues(parent).Set(float64(n))
	}
}

// ParentHazard sets whether something else works on the frames of a parent.
func (a *Agent) ParentHazard(parent, kind string, present bool) {
	a.parentHazards.WithLabelValues(parent, kind).Set(oneIf(present))
}

// SubinterfaceFaults sets the number of VLAN subinterfaces that are not as the networks need them.
func (a *Agent) SubinterfaceFaults(n int) { a.subinterfaces.Set(float64(n)) }

// PodCIDRsUnknown sets whether pods lack routes to pods of other networks.
func (a *Agent) PodCIDRsUnknown(unknown bool) { a.podCIDRs.Set(oneIf(unknown)) }

// ParentGone deletes the series of a parent.
func (a *Agent) ParentGone(parent string) {
	a.parentHazards.DeletePartialMatch(prometheus.Labels{"parent": parent})
}

// ImpostorRemoved counts an interface that was removed because it got frames of others.
func (a *Agent) ImpostorRemoved(reason string) { a.impostors.WithLabelValues(reason).Inc() }

// GatewayUnanswered counts a pool that an ADD has passed over because its gateway did not answer.
func (a *Agent) GatewayUnanswered(pool string) { a.gatewayUnanswered.WithLabelValues(pool).Inc() }

// APIError counts a failed call.
func (a *Agent) APIError(verb string, _ error) { a.apiErrors.WithLabelValues(verb).Inc() }

// PinFailed counts a guard that could not be pinned, at each try.
func (a *Agent) PinFailed() { a.pinFailures.Inc() }

// GuardRestored counts a guard that was removed and put back.
func (a *Agent) GuardRestored() { a.guardsRestored.Inc() }

// TokensAhead sets the number of addresses whose tokens the store has not reached.
func (a *Agent) TokensAhead(addresses int) { a.tokensAhead.Set(float64(addresses)) }

// WarmLeases sets the number of Warm leases of a pool. The series of a pool without any is deleted.
func (a *Agent) WarmLeases(pool string, ready, unproven int) {
	if ready+unproven == 0 {
		a.warmLeases.DeletePartialMatch(prometheus.Labels{"pool": pool})
		return
	}
	a.warmLeases.WithLabelValues(pool, "ready").Set(float64(ready))
	a.warmLeases.WithLabelValues(pool, "unproven").Set(float64(unproven))
}

// WarmTaken counts an ADD that asked for a Warm lease.
func (a *Agent) WarmTaken(pool string, got bool) {
	result := "miss"
	if got {
		result = "hit"
	}
	a.warmTaken.WithLabelValues(pool, result).Inc()
}

// WarmLost counts a Warm lease that is no longer ready, other than taken by an ADD.
func (a *Agent) WarmLost(pool, reason string) { a.warmLost.WithLabelValues(pool, reason).Inc() }

// Waiting sets the number of ADDs that wait for an address of a pool. With 0 there is no series.
func (a *Agent) Waiting(pool string, adds int) {
	if adds == 0 {
		a.waiting.DeleteLabelValues(pool)
		return
	}
	a.waiting.WithLabelValues(pool).Set(float64(adds))
}

// HostLinkFault sets whether the node lacks something that host links of a family need.
func (a *Agent) HostLinkFault(family, reason string, present bool) {
	a.linkFaults.WithLabelValues(family, reason).Set(oneIf(present))
}

// ClaimKeyFault sets whether the Secret of the claim key has a fault.
func (a *Agent) ClaimKeyFault(reason string, present bool) {
	a.keyFaults.WithLabelValues(reason).Set(oneIf(present))
}

// ClaimKeysUsed sets the revision of the Secret whose keys are in use.
func (a *Agent) ClaimKeysUsed(revision uint64) { a.keyRevision.Set(float64(revision)) }

// VFWallMissing sets the number of virtual functions that lack a wall.
func (a *Agent) VFWallMissing(wall string, vfs int) {
	a.vfWalls.WithLabelValues(wall).Set(float64(vfs))
}

func oneIf(present bool) float64 {
	if present {
		return 1
	}
	return 0
}

// Step counts a step of an ADD.
func (a *Agent) Step(step string, took time.Duration) {
	a.steps.WithLabelValues(step).Observe(took.Seconds())
}

// Waited counts the end of a wait.
func (a *Agent) Waited(d time.Duration, served bool) {
	result := "ended"
	if served {
		result = "served"
	}
	a.waits.WithLabelValues(result).Observe(d.Seconds())
}

// LateSpeakers counts frames of pods that have lost a virtual address.
func LateSpeakers() *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{
		Namespace: "fenceline", Name: "virtual_late_frames_total",
		Help: "ARP and ND frames of pods of this node for a virtual address for which another pod speaks now, by pool. At most nine in 100 ms count for an address.",
	}, []string{"pool"})
}
