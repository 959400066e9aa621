// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/fields"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/cli/cluster"
	"github.com/fenceline/fenceline/cli/fault"
	"github.com/fenceline/fenceline/controller/agents"
	"github.com/fenceline/fenceline/controller/condition"
	"github.com/fenceline/fenceline/controller/podview"
	"github.com/fenceline/fenceline/internal/inventory"
)

// recent is the age up to which a warning is shown.
const recent = time.Hour

// state is the answer of status.
type state struct {
	Pools  []poolLine              `json:"pools"`
	Leases map[inventory.State]int `json:"leases"`
	// Faults are about nodes, programs and addresses in use. Waits are for an address or a proof.
	Faults []trouble `json:"faults"`
	Waits  []trouble `json:"waits"`
	// Moves are the addresses that moved to the next sandboxes of their pods while the API server was away.
	Moves moves `json:"moves"`
}

// moves counts the addresses that moved in the last hour, and names the time of the last record.
type moves struct {
	Addresses int       `json:"addresses"`
	Last      time.Time `json:"last,omitzero"`
}

type poolLine struct {
	Name        string   `json:"name"`
	Subnet      string   `json:"subnet"`
	Total       int64    `json:"total"`
	Bound       int64    `json:"bound"`
	Warm        int64    `json:"warm"`
	Retained    int64    `json:"retained"`
	Quarantined int64    `json:"quarantined"`
	Free        int64    `json:"free"`
	Conditions  []string `json:"conditions,omitempty"`
}

// trouble is a fault or a wait, with its reason.
type trouble struct {
	Object string    `json:"object"`
	What   string    `json:"what"`
	Since  time.Time `json:"since"`
	Why    string    `json:"why"`
}

func (s *session) status() *cobra.Command {
	return &cobra.Command{
		Use: "status", Short: "Show pools, leases, faulty nodes, and what waits and why", Args: cobra.NoArgs,
		RunE: answers(s, readState, func(p paper, st state) { writeState(p, st, time.Now()) }),
	}
}

func readState(ctx context.Context, c *cluster.Cluster, _ []string) (state, error) {
	st := state{Pools: []poolLine{}, Leases: map[inventory.State]int{}, Faults: []trouble{}, Waits: []trouble{}}
	var pools v1alpha1.IPPoolList
	if err := c.List(ctx, &pools); err != nil {
		return st, fmt.Errorf("list pools: %w", err)
	}
	for i := range pools.Items {
		st.Pools = append(st.Pools, lineOf(&pools.Items[i]))
	}
	var leases v1alpha1.IPLeaseList
	if err := c.List(ctx, &leases); err != nil {
		return st, fmt.Errorf("list leases: %w", err)
	}
	for i := range leases.Items {
		l := &leases.Items[i]
		st.Leases[inventory.OfLease(l)]++
		if l.Spec.State == v1alpha1.StateQuarantined {
			st.Waits = append(st.Waits, trouble{"address " + l.Spec.Address, string(l.Spec.Reason), l.Spec.Since.Time, fault.WhyQuarantined(l)})
		} else if l.Spec.Conflict != nil {
			st.Faults = append(st.Faults, trouble{"address " + l.Spec.Address, string(inventory.Conflict), l.Spec.Conflict.LastSeen.Time, fault.Disputed(l)})
		}
	}
	if err := st.readSubnets(ctx, c); err != nil {
		return st, err
	}
	if err := st.readAgents(ctx, c); err != nil {
		return st, err
	}
	var events eventsv1.EventList
	if err := c.MayList(ctx, "events", &events); err != nil {
		return st, err
	}
	var pods podview.PodList
	pending := client.MatchingFieldsSelector{Selector: fields.OneTermEqualSelector("status.phase", string(corev1.PodPending))}
	if err := c.MayList(ctx, "pods of all namespaces", &pods, pending); err != nil {
		return st, err
	}
	st.Moves = movesOf(events.Items, time.Now())
	st.Faults = append(st.Faults, nodeTroubles(events.Items, time.Now())...)
	st.Waits = append(st.Waits, podTroubles(events.Items, pods.Items)...)
	return st, nil
}

func lineOf(p *v1alpha1.IPPool) poolLine {
	l := poolLine{
		Name: p.Name, Subnet: p.Spec.Subnet, Total: p.Status.Total, Bound: p.Status.Bound, Warm: p.Status.Warm,
		Retained: p.Status.Retained, Quarantined: p.Status.Quarantined, Free: p.Status.Free,
	}
	for _, c := range p.Status.Conditions {
		if !condition.IsGood(c) {
			l.Conditions = append(l.Conditions, strings.TrimSpace(fmt.Sprintf("%s %s: %s", c.Type, c.Status, c.Message)))
		}
	}
	return l
}

// readSubnets adds the applications for which no pool could be made.
func (st *state) readSubnets(ctx context.Context, c *cluster.Cluster) error {
	var subnets v1alpha1.IPSubnetList
	if err := c.MayList(ctx, "IPSubnets", &subnets); err != nil {
		return err
	}
	for i := range subnets.Items {
		for _, u := range subnets.Items[i].Status.Unserved {
			st.Waits = append(st.Waits, trouble{Object: u.Kind + " " + u.Namespace + "/" + u.Name, What: "SubnetUnserved", Why: u.Message})
		}
	}
	return nil
}

// readAgents adds a controller that is not Ready, and the nodes that serve no ADD.
func (st *state) readAgents(ctx context.Context, c *cluster.Cluster) error {
	all, controllers, err := c.Programs(ctx)
	if err != nil {
		return err
	}
	if !c.LacksPrograms() && !agents.AnyAlive(controllers) {
		st.Faults = append(st.Faults, trouble{Object: "controller", What: "NotReady", Why: fault.NoController})
	}
	for i := range all {
		if agents.IsAlive(&all[i]) {
			continue
		}
		t := trouble{Object: "node " + all[i].Spec.NodeName, What: "AgentNotReady", Why: "agent " + all[i].Name + " is not Ready"}
		status := all[i].StatusOrEmpty()
		for _, cond := range status.Conditions {
			if cond.Type == corev1.PodReady {
				t.Since = cond.LastTransitionTime.Time
			}
		}
		for _, cs := range status.ContainerStatuses {
			if w := cs.State.Waiting; w != nil {
				t.Why += ": " + w.Reason
			}
			if ended := cs.LastTerminationState.Terminated; ended != nil && ended.Message != "" {
				t.Why += ": " + strings.TrimSpace(ended.Message)
			}
		}
		st.Faults = append(st.Faults, t)
	}
	return nil
}

// nodeTroubles returns the last warning of each kind about each node, unless a later event has ended it.
func nodeTroubles(events []eventsv1.Event, now time.Time) []trouble {
	last := map[[2]string]*eventsv1.Event{}
	for i := range events {
		e := &events[i]
		if e.Regarding.Kind != "Node" || !strings.HasPrefix(e.ReportingController, "fenceline-") {
			continue
		}
		key := [2]string{e.Regarding.Name, e.Reason}
		if was := last[key]; was == nil || lastSeen(was).Before(lastSeen(e)) {
			last[key] = e
		}
	}
	endedBy := map[string]string{"ParentMute": "ParentHeard", "StateUnusable": "StateUsable"}
	var all []trouble
	for key, e := range last {
		ending := last[[2]string{key[0], endedBy[key[1]]}]
		isOver := ending != nil && lastSeen(ending).After(lastSeen(e))
		if e.Type == corev1.EventTypeWarning && !isOver && now.Sub(lastSeen(e)) < recent {
			all = append(all, trouble{"node " + key[0], e.Reason, lastSeen(e), e.Note})
		}
	}
	slices.SortFunc(all, func(a, b trouble) int { return strings.Compare(a.Object+a.What, b.Object+b.What) })
	return all
}

func movesOf(events []eventsv1.Event, now time.Time) (m moves) {
	for i := range events {
		e := &events[i]
		if e.Reason != "AddressMoved" || !strings.HasPrefix(e.ReportingController, "fenceline-") || now.Sub(lastSeen(e)) >= recent {
			continue
		}
		m.Addresses++
		if lastSeen(e).After(m.Last) {
			m.Last = lastSeen(e)
		}
	}
	return m
}

// podTroubles returns the last reason why each pending pod has no address.
func podTroubles(events []eventsv1.Event, pending []podview.Pod) []trouble {
	last := map[string]trouble{}
	for i := range events {
		e := &events[i]
		if e.Regarding.Kind != "Pod" || e.Reason != "AddressAwaited" && e.Reason != "AddressRefused" {
			continue
		}
		waits := slices.ContainsFunc(pending, func(p podview.Pod) bool { return p.UID == e.Regarding.UID })
		name := "pod " + e.Regarding.Namespace + "/" + e.Regarding.Name
		if waits && last[name].Since.Before(lastSeen(e)) {
			last[name] = trouble{name, e.Reason, lastSeen(e), e.Note}
		}
	}
	return slices.SortedFunc(maps.Values(last), func(a, b trouble) int { return strings.Compare(a.Object, b.Object) })
}

// A bar has as many characters as its line has room for, within these bounds.
const shortestBar, longestBar = 8, 24

// bar draws the shares of bound, other and free addresses. A share above zero has a character.
func bar(p poolLine, width int) string {
	if p.Total <= 0 {
		return strings.Repeat("·", width)
	}
	part := func(n int64) int {
		if n <= 0 {
			return 0
		}
		return max(1, int(n*int64(width)/p.Total))
	}
	bound, other := part(p.Bound), part(p.Warm+p.Retained+p.Quarantined)
	bound = min(bound, width-other)
	return strings.Repeat("█", bound) + strings.Repeat("▒", other) + strings.Repeat("·", width-bound-other)
}

func writeState(w paper, st state, now time.Time) {
	head := []string{"POOL", "SUBNET", "", "TOTAL", "BOUND", "WARM", "RETAINED", "QUARANTINED", "FREE"}
	rows := [][]string{}
	for _, p := range st.Pools {
		row := []string{p.Name, p.Subnet, ""}
		for _, n := range []int64{p.Total, p.Bound, p.Warm, p.Retained, p.Quarantined, p.Free} {
			row = append(row, strconv.FormatInt(n, 10))
		}
		rows = append(rows, row)
	}
	width := longestBar
	if w.width > 0 {
		widths, before := measure(append([][]string{head}, rows...))
		width = max(shortestBar, min(longestBar, w.width-before-widths[len(widths)-1]))
	}
	head[2] = "IN USE"
	for i, p := range st.Pools {
		rows[i][2] = bar(p, width)
	}
	if len(rows) > 0 {
		w.table(head, rows)
	} else {
		w.say("", 2, "There is no pool, so no pod gets an address.")
	}
	for _, p := range st.Pools {
		for _, c := range p.Conditions {
			w.about("33", "pool "+p.Name, c)
		}
	}
	fmt.Fprint(w, "\nLeases:")
	for _, state := range slices.Sorted(maps.Keys(st.Leases)) {
		fmt.Fprintf(w, " %d %s", st.Leases[state], state)
	}
	if len(st.Leases) == 0 {
		fmt.Fprint(w, " none")
	}
	fmt.Fprintln(w)
	if m := st.Moves; m.Addresses > 0 {
		fmt.Fprintf(w, "Addresses that moved to the next sandboxes of their pods while the API server was away: %d. The last record is %s old.\n", m.Addresses, age(now, m.Last))
	}
	troubles(w, "Faults", "No fault is known.", st.Faults, now)
	troubles(w, "Waiting", "Nothing waits.", st.Waits, now)
}

func troubles(w paper, head, none string, all []trouble, now time.Time) {
	fmt.Fprintln(w)
	if len(all) == 0 {
		fmt.Fprintln(w, none)
		return
	}
	fmt.Fprintf(w, "%s:\n", head)
	var rows [][]string
	for _, t := range all {
		since := ""
		if !t.Since.IsZero() {
			since = age(now, t.Since)
		}
		rows = append(rows, []string{"  " + t.Object, t.What, since, t.Why})
	}
	w.table([]string{"  OBJECT", "WHAT", "AGE", "WHY"}, rows)
}
