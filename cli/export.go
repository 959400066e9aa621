// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"encoding/csv"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/cli/cluster"
)

// record is a lease in the inventory.
type record struct {
	place
	addr    netip.Addr
	Network string    `json:"network"`
	Pool    string    `json:"pool"`
	Since   time.Time `json:"since"`
	Owner   string    `json:"owner"`
	Message string    `json:"message"`
}

func (s *session) export() *cobra.Command {
	c := &cobra.Command{
		Use: "export", Short: "Write the inventory of all addresses in use, as CSV or with -o json", Args: cobra.NoArgs,
		RunE: answers(s, func(ctx context.Context, c *cluster.Cluster, _ []string) ([]record, error) {
			var leases v1alpha1.IPLeaseList
			if err := c.List(ctx, &leases); err != nil {
				return nil, fmt.Errorf("list leases: %w", err)
			}
			return recordsOf(leases.Items)
		}, writeCSV),
	}
	c.AddCommand(s.exportReservations())
	return c
}

// recordsOf returns the inventory, in the order of networks and addresses.
func recordsOf(leases []v1alpha1.IPLease) ([]record, error) {
	records := make([]record, 0, len(leases))
	for i := range leases {
		l := &leases[i]
		network, addr, err := v1alpha1.ParseLeaseName(l.Name)
		if err != nil {
			return nil, err
		}
		r := record{place: placeOf(l), addr: addr, Network: network, Pool: l.Spec.Pool, Since: l.Spec.Since.Time, Message: l.Spec.Message}
		if h := l.Spec.Holder; h != nil && h.OwnerKind != "" {
			r.Owner = h.OwnerKind + " " + h.OwnerName
		}
		records = append(records, r)
	}
	slices.SortFunc(records, func(a, b record) int {
		return cmp.Or(cmp.Compare(a.Network, b.Network), a.addr.Compare(b.addr))
	})
	return records, nil
}

func writeCSV(w paper, records []record) {
	rows := [][]string{{"address", "network", "state", "reason", "pool", "namespace", "pod", "interface", "mac", "owner", "node", "parent", "since", "message"}}
	for _, r := range records {
		rows = append(rows, []string{
			r.Address, r.Network, string(r.State), r.Reason, r.Pool, r.Namespace, r.Pod, r.Interface, r.MAC, r.Owner, r.Node, r.Parent,
			r.Since.UTC().Format(time.RFC3339), r.Message,
		})
	}
	writeRows(w, rows)
}

func writeRows(w paper, rows [][]string) {
	var all strings.Builder // csv writes parts of characters
	_ = csv.NewWriter(&all).WriteAll(rows)
	fmt.Fprint(w, all.String())
}
