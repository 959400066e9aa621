// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/cli/cluster"
	"github.com/fenceline/fenceline/controller/agents"
	"github.com/fenceline/fenceline/controller/reclaim"
	"github.com/fenceline/fenceline/internal/inventory"
	"github.com/fenceline/fenceline/internal/owner"
	"github.com/fenceline/fenceline/internal/poolset"
	"github.com/fenceline/fenceline/internal/story"
)

// explained is everything that is known of an address on one network.
type explained struct {
	Address string          `json:"address"`
	Network string          `json:"network,omitempty"`
	State   inventory.State `json:"state"`
	// Pool is the pool of the lease, or the pool that would hand the address out.
	Pool  string            `json:"pool,omitempty"`
	Lease *v1alpha1.IPLease `json:"lease,omitempty"`
	End   *end              `json:"end,omitempty"`
	Free  string            `json:"free,omitempty"`
	// Reservation keeps the address back.
	Reservation string   `json:"reservation,omitempty"`
	Past        []moment `json:"history"`
	Logs        *logs    `json:"logs,omitempty"`
	// isOneOf tells that other networks have the address too.
	isOneOf bool
}

func (s *session) explain() *cobra.Command {
	history, allNodes, network := true, false, ""
	c := &cobra.Command{
		Use: "explain ADDRESS", Short: "Tell who has an address, why, and what will end it", Args: cobra.ExactArgs(1),
		Example: "  kubectl fenceline explain 10.0.0.7\n  kubectl fenceline explain 10.0.0.7 --network storage",
		RunE: answers(s, func(ctx context.Context, c *cluster.Cluster, args []string) ([]explained, error) {
			q, err := parseQuery(args[0], network)
			if err != nil {
				return nil, err
			}
			return explain(ctx, c, q, history, allNodes)
		}, writeEach[explained]),
	}
	networkFlag(c, &network)
	c.Flags().BoolVar(&history, "history", true, "read events and the audit lines in the logs of Fenceline's pods")
	c.Flags().BoolVar(&allNodes, "all-nodes", false, "read the logs of the agents of all nodes, not only of those that the lease names")
	return c
}

// explain returns the stories of an address: one for each network that has it.
func explain(ctx context.Context, c *cluster.Cluster, q query, history, allNodes bool) ([]explained, error) {
	pools, networks, err := q.read(ctx, c)
	if err != nil {
		return nil, err
	}
	var stories []explained
	for _, n := range networks {
		st, err := tell(ctx, c, pools, n, q.addr)
		if err != nil {
			return nil, err
		}
		st.isOneOf = len(networks) > 1
		if history {
			if st.Past, st.Logs, err = readHistory(ctx, c, n, q.addr, st.Lease, st.Reservation, allNodes); err != nil {
				return nil, err
			}
		}
		stories = append(stories, st)
	}
	return stories, nil
}

func tell(ctx context.Context, c *cluster.Cluster, pools []v1alpha1.IPPool, network string, addr netip.Addr) (explained, error) {
	st := explained{Address: addr.String(), Network: network}
	lease, err := leaseOn(ctx, c, network, addr)
	if err != nil {
		return st, err
	}
	if lease == nil {
		return st, st.unleased(ctx, c, pools, addr)
	}
	lease.ManagedFields = nil
	st.Lease, st.Pool, st.State = lease, lease.Spec.Pool, inventory.OfLease(lease)
	st.End, err = endOf(ctx, c, lease)
	return st, err
}

// unleased tells why an address has no lease. Pools of a network may share the address.
func (st *explained) unleased(ctx context.Context, c *cluster.Cluster, pools []v1alpha1.IPPool, addr netip.Addr) error {
	reservations, err := readReservations(ctx, c)
	if err != nil {
		return err
	}
	st.State, st.Free = inventory.Outside, "No pool of this network has it in its subnet."
	var states []inventory.State // that are told of
	for i := range pools {
		if pools[i].Spec.Network != st.Network {
			continue
		}
		p, err := inventory.Of(&pools[i], nil, reservations)
		if _, invalid := errors.AsType[*poolset.SpecError](err); invalid || err == nil && !p.Subnet.Contains(addr) {
			continue
		}
		if err != nil {
			return fmt.Errorf("pool %s: %w", pools[i].Name, err)
		}
		state := p.State(addr)
		reservation, kept, virtual := reservedBy(reservations, addr)
		if virtual && state == inventory.Outside { // it need not be among the ips of the pool
			state = inventory.Reserved
		}
		if state == inventory.Reserved {
			st.Reservation = reservation
		}
		said := sentence(state, pools[i].Name, kept)
		switch {
		case len(states) == 0 || st.State == inventory.Outside:
			st.Pool, st.State, st.Free = pools[i].Name, state, said
		case state == inventory.Outside || slices.Contains(states, state):
			continue // many pools may share the gateway
		default:
			st.Free += " " + said
			if st.State == inventory.Withheld {
				st.Pool, st.State = pools[i].Name, state
			}
		}
		states = append(states, state)
	}
	return nil
}

// reservedBy returns the name of the ReservedIP of an address, what it says of the address, and whether that is virtual.
func reservedBy(reservations []v1alpha1.ReservedIP, addr netip.Addr) (name, said string, virtual bool) {
	for i := range reservations {
		r := &reservations[i]
		set, _ := poolset.ReservedBy(r)
		title := poolset.Title(r)
		if name = r.Name; poolset.IsService(r) {
			name = ""
		}
		switch {
		case !set.Contains(addr):
			continue
		case r.Spec.For != nil:
			said := title + " keeps it for " + r.Spec.For.String() + ". " + story.Speaker(r, addr.String(), time.Now())
			return name, strings.TrimSpace(said), false
		case r.Spec.Virtual != nil:
			said := fmt.Sprintf("%s makes it a virtual address of the pods with %s in namespace %s. ", title, labels.FormatLabels(r.Spec.Virtual.MatchLabels), r.Spec.Virtual.Namespace)
			return name, said + cmp.Or(story.Speaker(r, addr.String(), time.Now()), "None of them has announced it."), true
		}
		return name, title + " keeps it back from every pool.", false
	}
	return "", "", false
}

// sentence says why an address without a lease is in a state.
func sentence(s inventory.State, pool, reservation string) string {
	switch s {
	case inventory.Gateway:
		return "It is the gateway of pool " + pool + "."
	case inventory.Reserved:
		return reservation
	case inventory.Withheld:
		return "Another pool of the subnet hands it out (status.withheld of pool " + pool + ")."
	case inventory.CoolingDown:
		return "Pool " + pool + " got it back a moment ago, and hands it out again after its cooldown (spec.reclaim.cooldown)."
	case inventory.Free:
		return "Nobody has it. Pool " + pool + " may hand it out."
	}
	return "It is in the subnet of pool " + pool + ", but the pool does not hand it out (spec.ips, spec.excludeIPs, spec.sourceGuardAllow.cidrs)."
}

func (st explained) write(w paper) {
	head := st.Address
	switch {
	case st.Network != "":
		head += " on network " + st.Network
	case st.isOneOf: // this network has no name
		head += " of pool " + st.Pool
	}
	if st.Lease == nil {
		w.say("", 2, head+" has no lease. "+st.Free)
	} else {
		for i, sentence := range story.Of(head, &st.Lease.Spec, time.Now()) {
			w.say(strings.Repeat("  ", min(i, 1)), 4, sentence)
		}
	}
	if st.End != nil {
		w.say("  ", 4, st.End.sentence)
	}
	st.writePast(w)
}

func (st explained) writePast(w paper) {
	if len(st.Past) > 0 {
		fmt.Fprintln(w, "\nHistory (events, and audit lines of the logs that are still there):")
		var rows [][]string
		for _, m := range st.Past {
			rows = append(rows, []string{"  " + m.Time.UTC().Format(time.RFC3339), m.Kind, m.Source, m.Text})
		}
		w.table([]string{"  TIME", "WHAT", "BY", "DETAILS"}, rows)
	}
	if st.Logs != nil && len(st.Logs.Read)+len(st.Logs.Unread) > 0 {
		w.say("\n", 0, st.Logs.sentence())
	}
}

// unknown is the decision for a reader who may not read the facts that it depends on.
const unknown reclaim.Kind = "Unknown"

// end is the controller's decision about a lease.
type end struct {
	Decision reclaim.Kind `json:"decision"`
	// At is the time of the next decision.
	At  *time.Time `json:"at,omitempty"`
	Why string     `json:"why"`

	// sentence says what the controller does next.
	sentence string
}

// endOf asks the controller's own rules what will end a lease.
func endOf(ctx context.Context, c *cluster.Cluster, lease *v1alpha1.IPLease) (*end, error) {
	policy, err := policyOf(ctx, c)
	if err != nil {
		return nil, err
	}
	rules := reclaim.Reader{
		Cache: c, Live: c, Clock: clock.RealClock{}, Namespace: c.Namespace, Defaults: policy,
		Owners: owner.Asker{Live: c, Scales: c, Mapper: c.RESTMapper()},
	}
	a, err := rules.Explain(ctx, lease)
	if lack, ok := errors.AsType[*apierrors.StatusError](err); ok && apierrors.IsForbidden(lack) {
		return &end{Decision: unknown, Why: lack.Error(), sentence: "Its end is unknown, because you may not read what decides it: " + lack.Error()}, c.MayLack("what decides about the end of lease "+lease.Name, err)
	}
	if err != nil {
		return nil, err
	}
	e := &end{Decision: a.Kind, Why: a.Why, sentence: a.Sentence(time.Now())}
	if a.Kind == reclaim.Wait {
		e.At = &a.Until
	}
	return e, nil
}

// policyOf returns the policy of the running controller, whose flags stand in its Deployment.
func policyOf(ctx context.Context, c *cluster.Cluster) (reclaim.Policy, error) {
	var policy reclaim.Policy
	known := flag.NewFlagSet("", flag.ContinueOnError)
	policy.AddFlags(known)
	var all appsv1.DeploymentList
	err := c.MayList(ctx, "Deployments of namespace "+c.Namespace, &all, client.InNamespace(c.Namespace), agents.Labels("controller"))
	if err != nil {
		return policy, fmt.Errorf("read the flags of the controller: %w", err)
	}
	flags := pflag.NewFlagSet("", pflag.ContinueOnError)
	flags.ParseErrorsAllowlist.UnknownFlags = true
	flags.AddGoFlagSet(known)
	for i := range all.Items {
		for _, container := range all.Items[i].Spec.Template.Spec.Containers {
			if err := flags.Parse(container.Args); err != nil {
				return policy, fmt.Errorf("read the flags of the controller: %w", err)
			}
		}
	}
	return policy, nil
}
