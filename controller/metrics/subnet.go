// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/fenceline/fenceline/apis/v1alpha1"
)

// Subnet holds the values of the gauges of an IPSubnet.
type Subnet struct {
	Status v1alpha1.IPSubnetStatus
	// Unserved counts the applications that lack addresses.
	Unserved int
}

// subnetGauges are the gauges of IPSubnets.
type subnetGauges struct{ addresses, free, pools, unserved *prometheus.GaugeVec }

// SetSubnet sets the gauges of an IPSubnet.
func (m *Metrics) SetSubnet(subnet string, s Subnet) {
	m.subnets.addresses.WithLabelValues(subnet).Set(float64(s.Status.Total))
	m.subnets.free.WithLabelValues(subnet).Set(float64(s.Status.Free))
	m.subnets.pools.WithLabelValues(subnet).Set(float64(s.Status.PoolCount))
	m.subnets.unserved.WithLabelValues(subnet).Set(float64(s.Unserved))
}

// ForgetSubnet drops the gauges of an IPSubnet that is gone.
func (m *Metrics) ForgetSubnet(subnet string) {
	for _, gauge := range []*prometheus.GaugeVec{m.subnets.addresses, m.subnets.free, m.subnets.pools, m.subnets.unserved} {
		gauge.DeleteLabelValues(subnet)
	}
}
