// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"net/netip"
	"slices"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/cli/cluster"
	"github.com/fenceline/fenceline/internal/poolset"
)

// anyNetwork stands for all networks. No network can have this name.
const anyNetwork = "*"

// query is the address that a user asks about, on one network or on any.
type query struct {
	addr    netip.Addr
	network string
}

func networkFlag(c *cobra.Command, network *string) {
	c.Flags().StringVar(network, "network", anyNetwork, `network of the address; "" is the network without a name`)
}

// parseQuery reads an address, or the name of a lease, which names a network too.
func parseQuery(asked, network string) (query, error) {
	named, addr, err := v1alpha1.ParseLeaseName(asked)
	if err != nil {
		if addr, err = netip.ParseAddr(asked); err != nil {
			return query{}, fmt.Errorf("%q is neither an address nor the name of a lease", asked)
		}
		if addr.Zone() != "" {
			return query{}, fmt.Errorf("%q has a zone: leases have none, so leave out %%%s", asked, addr.Zone())
		}
	}
	addr = addr.Unmap()
	if named == "" {
		return query{addr, network}, nil
	}
	if network != anyNetwork && network != named {
		return query{}, fmt.Errorf("%s is on network %s, and not on %q as --network says", asked, named, network)
	}
	return query{addr, named}, nil
}

// queryOf returns the address of a lease with its network.
func queryOf(l *v1alpha1.IPLease) query {
	network, addr, _ := v1alpha1.ParseLeaseName(l.Name)
	return query{addr, network}
}

func (q query) String() string {
	if q.network == "" || q.network == anyNetwork {
		return q.addr.String()
	}
	return q.addr.String() + " on network " + q.network
}

// read returns all pools, and the networks of a query.
func (q query) read(ctx context.Context, c *cluster.Cluster) (pools []v1alpha1.IPPool, networks []string, err error) {
	var all v1alpha1.IPPoolList
	if err := c.List(ctx, &all); err != nil {
		return nil, nil, fmt.Errorf("list pools: %w", err)
	}
	return all.Items, q.networks(all.Items), nil
}

// networks returns the network that was asked for, or else each network with the address in a subnet.
// It is not empty.
func (q query) networks(pools []v1alpha1.IPPool) (networks []string) {
	if q.network != anyNetwork {
		return []string{q.network}
	}
	for _, p := range poolsWith(pools, q.addr) {
		networks = append(networks, p.Spec.Network)
	}
	if len(networks) == 0 {
		return []string{""}
	}
	slices.Sort(networks)
	return slices.Compact(networks)
}

// poolsWith returns the pools that have an address in their subnets.
func poolsWith(pools []v1alpha1.IPPool, addr netip.Addr) (with []*v1alpha1.IPPool) {
	for i := range pools {
		if subnet, err := poolset.Subnet(&pools[i]); err == nil && subnet.Contains(addr) {
			with = append(with, &pools[i])
		}
	}
	return with
}

// leaseOn returns the lease of an address on a network, or nil.
func leaseOn(ctx context.Context, c *cluster.Cluster, network string, addr netip.Addr) (*v1alpha1.IPLease, error) {
	name, lease := v1alpha1.LeaseName(network, addr), &v1alpha1.IPLease{}
	err := c.Get(ctx, client.ObjectKey{Name: name}, lease)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read lease %s: %w", name, err)
	}
	return lease, nil
}
