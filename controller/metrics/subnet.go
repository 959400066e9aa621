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

func newSubnetGauges() subnetGauges {
	gauge := func(name, help string) *prometheus.GaugeVec {
		return prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, []string{"subnet"})
	}
	return subnetGauges{
		addresses: gauge("fenceline_subnet_addresses", "Addresses of an IPSubnet that pools may have."),
		free:      gauge("fenceline_subnet_free_addresses", "Addresses of an IPSubnet that no pool has."),
		pools:     gauge("fenceline_subnet_pools", "Pools that the controller made of an IPSubnet."),
		unserved:  gauge("fenceline_subnet_unserved_applications", "Applications that name an IPSubnet and lack addresses."),
	}
}

func (g subnetGauges) all() []*prometheus.GaugeVec {
	return []*prometheus.GaugeVec{g.addresses, g.free, g.pools, g.unserved}
}

// SetSubnet sets the gauges of an IPSubnet.
func (m *Metrics) SetSubnet(subnet string, s Subnet) {
	m.subnets.addresses.WithLabelValues(subnet).Set(float64(s.Status.Total))
	m.subnets.free.WithLabelValues(subnet).Set(float64(s.Status.Free))
	m.subnets.pools.WithLabelValues(subnet).Set(float64(s.Status.PoolCount))
	m.subnets.unserved.WithLabelValues(subnet).Set(float64(s.Unserved))
}

// ForgetSubnet drops the gauges of an IPSubnet that is gone.
func (m *Metrics) ForgetSubnet(subnet string) {
	for _, gauge := range m.subnets.all() {
		gauge.DeleteLabelValues(subnet)
	}
}
