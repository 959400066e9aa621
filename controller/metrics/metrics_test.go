// SPDX-License-Identifier: Apache-2.0

package metrics_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/controller/metrics"
	"github.com/fenceline/fenceline/test/check"
)

func TestPoolGaugesEndWithThePool(t *testing.T) {
	registry := prometheus.NewPedanticRegistry()
	m := metrics.New(registry)
	m.SetPool("blue", metrics.Pool{
		Status: v1alpha1.IPPoolStatus{Total: 10, Bound: 3, Quarantined: 1}, Subnet: "floor",
		Quarantined: map[v1alpha1.LeaseReason]int64{v1alpha1.ReasonPodGone: 1},
	})
	m.SetPool("blue", metrics.Pool{Status: v1alpha1.IPPoolStatus{Total: 10, Bound: 2, Reserved: 4}, Subnet: "floor", Outside: 1, Free: 9, HostsOfMany: 1})

	got := series(t, registry)
	for name, want := range map[string]float64{
		"fenceline_pool_addresses pool=blue subnet=floor":             10,
		"fenceline_pool_free_addresses pool=blue":                     9,
		"fenceline_pool_reserved_addresses pool=blue":                 4,
		"fenceline_pool_outside_leases pool=blue":                     1,
		"fenceline_pool_hosts_of_many_addresses pool=blue":            1,
		"fenceline_pool_leases pool=blue state=Bound":                 2,
		"fenceline_pool_leases pool=blue state=Quarantined":           0,
		"fenceline_quarantined_addresses pool=blue reason=PodGone":    0,
		"fenceline_quarantined_addresses pool=blue reason=Conflict":   0,
		"fenceline_quarantined_addresses pool=blue reason=Unverified": 0,
	} {
		value, ok := got[name]
		check.That(t, ok && value == want, "%s is %v (present: %v), want %v", name, value, ok, want)
	}
	m.ForgetPool("blue")
	for name := range series(t, registry) {
		check.That(t, !strings.Contains(name, "pool=blue"), "series of a pool that is gone: %s", name)
	}
}

func TestCountersOfReclaimStartAtZero(t *testing.T) {
	registry := prometheus.NewPedanticRegistry()
	metrics.New(registry)
	got := series(t, registry)
	for _, name := range []string{
		"fenceline_reclaims_total reason=PodGone", "fenceline_reclaims_withheld_total reason=PodGone", "fenceline_reclaims_withheld_total reason=RetentionEnded",
	} {
		value, there := got[name]
		check.That(t, there && value == 0, "%s is %v (present: %v): rate() misses its first increment", name, value, there)
	}
}

func TestOnlyTheLeaderTellsWhetherReclaimIsOn(t *testing.T) {
	const name = "fenceline_reclaim_enabled"
	registry := prometheus.NewPedanticRegistry()
	m := metrics.New(registry)
	value, there := series(t, registry)[name]
	check.That(t, !there, "a controller that stands by exports %v", value)
	for enabled, want := range map[bool]float64{false: 0, true: 1} {
		m.SetReclaimEnabled(enabled)
		value, there := series(t, registry)[name]
		check.That(t, there && value == want, "enabled %v: %v (present: %v)", enabled, value, there)
	}
}

// series returns the values of all series, keyed "name label=value label=value".
func series(t *testing.T, registry *prometheus.Registry) map[string]float64 {
	t.Helper()
	families := check.Value(registry.Gather())(t)
	all := map[string]float64{}
	for _, f := range families {
		for _, metric := range f.Metric {
			key := f.GetName()
			for _, l := range metric.Label {
				key += " " + l.GetName() + "=" + l.GetValue()
			}
			all[key] = metric.GetGauge().GetValue() + metric.GetCounter().GetValue()
		}
	}
	return all
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func TestAPIErrors(t *testing.T) {
	refused := errors.New("connection refused")
	given, giveUp := context.WithCancel(context.Background())
	giveUp()
	for _, row := range []struct {
		name   string
		ctx    context.Context
		method string
		code   int
		err    error
		want   float64
	}{
		{"success", context.Background(), http.MethodGet, 200, nil, 0},
		{"a lost race is no error", context.Background(), http.MethodPut, 409, nil, 0},
		{"an absent object is no error", context.Background(), http.MethodDelete, 404, nil, 0},
		{"a refusal is one", context.Background(), http.MethodPost, 403, nil, 1},
		{"a server's failure is one", context.Background(), http.MethodPatch, 500, nil, 1},
		{"a request without answer is one", context.Background(), http.MethodGet, 0, refused, 1},
		{"a request that was given up is none", given, http.MethodGet, 0, context.Canceled, 0},
	} {
		t.Run(row.name, func(t *testing.T) {
			registry := prometheus.NewRegistry()
			tripper := metrics.New(registry).Transport(roundTrip(func(*http.Request) (*http.Response, error) {
				if row.err != nil {
					return nil, row.err
				}
				return &http.Response{StatusCode: row.code, Body: http.NoBody}, nil
			}))
			request := check.Value(http.NewRequestWithContext(row.ctx, row.method, "http://api", nil))(t)
			response, err := tripper.RoundTrip(request)
			if err == nil {
				response.Body.Close()
			}
			var got float64
			for _, value := range series(t, registry) {
				got += value
			}
			check.That(t, got == row.want, "counted %v errors, want %v", got, row.want)
		})
	}
}
