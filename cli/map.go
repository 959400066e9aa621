// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/fields"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/cli/cluster"
	"github.com/fenceline/fenceline/internal/inventory"
	"github.com/fenceline/fenceline/internal/poolset"
)

// place is an address of a map in an answer for programs.
type place struct {
	Address   string          `json:"address"`
	State     inventory.State `json:"state"`
	Reason    string          `json:"reason,omitempty"`
	Node      string          `json:"node,omitempty"`
	Namespace string          `json:"namespace,omitempty"`
	Pod       string          `json:"pod,omitempty"`
	Interface string          `json:"interface,omitempty"`
	MAC       string          `json:"mac,omitempty"`
	Parent    string          `json:"parent,omitempty"`
}

func (s *session) mapOf() *cobra.Command {
	watch, every := false, time.Second
	c := &cobra.Command{
		Use: "map POOL", Short: "Draw the addresses of a pool", Args: cobra.ExactArgs(1),
		Example: "  kubectl fenceline map floor-7\n  kubectl fenceline map floor-7 -w",
		RunE: func(c *cobra.Command, args []string) error {
			cl, err := s.open()
			if err != nil {
				return err
			}
			defer s.sayUnread(cl)
			if watch {
				return s.redraw(c.Context(), cl, args[0], every)
			}
			p, virtual, err := readPool(c.Context(), cl, args[0])
			if err != nil {
				return err
			}
			all := append(places(p), virtual...)
			return s.print(all, func(w paper) {
				s.draw(w.Writer, args[0], p)
				if s.output == "wide" {
					writePlaces(w, all)
				}
			})
		},
	}
	c.Flags().BoolVarP(&watch, "watch", "w", false, "draw the map again and again")
	c.Flags().DurationVar(&every, "every", every, "time between two maps of --watch")
	return c
}

func readPool(ctx context.Context, c *cluster.Cluster, name string) (_ *inventory.Pool, virtual []place, _ error) {
	pool := &v1alpha1.IPPool{}
	if err := c.Get(ctx, client.ObjectKey{Name: name}, pool); err != nil {
		return nil, nil, fmt.Errorf("read pool %s (kubectl get flpool lists all): %w", name, err)
	}
	leases, err := leasesOf(ctx, c, "spec.pool", name)
	if err != nil {
		return nil, nil, err
	}
	reservations, err := readReservations(ctx, c)
	if err != nil {
		return nil, nil, err
	}
	p, err := inventory.Of(pool, leases, reservations)
	if err != nil {
		return nil, nil, fmt.Errorf("pool %s: %w", name, err)
	}
	return p, speakers(p, pool, reservations), nil
}

// readReservations returns the reservations of the cluster, and those of Services, as far as the user may read them.
func readReservations(ctx context.Context, c *cluster.Cluster) ([]v1alpha1.ReservedIP, error) {
	var all v1alpha1.ReservedIPList
	if err := c.MayList(ctx, "ReservedIPs", &all); err != nil {
		return nil, err
	}
	balancers, err := poolset.Balancers(ctx, c)
	return append(all.Items, balancers...), c.MayLack("Services of type LoadBalancer", err)
}

// leasesOf returns the leases with a value in a field that the API server selects by.
func leasesOf(ctx context.Context, c *cluster.Cluster, field, value string) ([]v1alpha1.IPLease, error) {
	var leases v1alpha1.IPLeaseList
	err := c.List(ctx, &leases, client.MatchingFieldsSelector{Selector: fields.OneTermEqualSelector(field, value)})
	if err != nil {
		return nil, fmt.Errorf("list leases with %s %s: %w", field, value, err)
	}
	return leases.Items, nil
}

func places(p *inventory.Pool) []place {
	all := []place{}
	for _, a := range p.Leased() {
		all = append(all, placeOf(p.Lease(a)))
	}
	return all
}

// speakers returns the virtual addresses of a pool's subnet, with the pods that speak for them.
func speakers(of *inventory.Pool, p *v1alpha1.IPPool, reservations []v1alpha1.ReservedIP) (all []place) {
	spoken := map[netip.Addr]bool{}
	for _, s := range inventory.Speakers(p, reservations) {
		spoken[s.Addr] = true
		all = append(all, place{Address: s.Address, State: inventory.Reserved, Reason: "Virtual", Namespace: s.By.Spec.Virtual.Namespace, Pod: s.Pod, MAC: s.MAC, Node: s.Node})
	}
	virtual := inventory.Virtuals(p, reservations)
	for _, addr := range slices.SortedFunc(maps.Keys(virtual), netip.Addr.Compare) {
		if !spoken[addr] && of.Lease(addr) == nil {
			all = append(all, place{Address: addr.String(), State: inventory.Reserved, Reason: "Virtual", Namespace: virtual[addr].Spec.Virtual.Namespace})
		}
	}
	return all
}

func placeOf(l *v1alpha1.IPLease) place {
	at := place{Address: l.Spec.Address, State: inventory.OfLease(l), Reason: string(l.Spec.Reason), Node: l.Spec.NodeName, Parent: l.Spec.Parent}
	if h := l.Spec.Holder; h != nil {
		at.Namespace, at.Pod, at.Interface, at.MAC = h.Namespace, h.Pod, h.Interface, h.MAC
	}
	return at
}

func writePlaces(w paper, all []place) {
	fmt.Fprintln(w)
	var rows [][]string
	for _, at := range all {
		rows = append(rows, []string{at.Address, string(at.State), at.Reason, at.Namespace, at.Pod, at.Interface, at.MAC, at.Node})
	}
	w.table([]string{"ADDRESS", "STATE", "REASON", "NAMESPACE", "POD", "INTERFACE", "MAC", "NODE"}, rows)
}

// draw writes a map with its colours. Names of pools have no control characters.
func (s *session) draw(w io.Writer, name string, p *inventory.Pool) {
	fmt.Fprintf(w, "Pool %s: %s\n\n", name, p.Subnet)
	inventory.Grid{Pool: p, Paint: s.colour}.Write(w)
}

// redraw draws the map until ctx ends. A terminal shows each one in the place of the last one.
func (s *session) redraw(ctx context.Context, c *cluster.Cluster, name string, every time.Duration) error {
	ticker := time.NewTicker(max(every, 100*time.Millisecond))
	defer ticker.Stop()
	for {
		p, _, err := readPool(ctx, c, name)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		var screen bytes.Buffer
		if s.isTerminal() {
			screen.WriteString("\x1b[H\x1b[2J")
		}
		s.draw(&screen, name, p)
		if _, err := screen.WriteTo(s.Out); err != nil {
			return fmt.Errorf("draw the map: %w", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}
