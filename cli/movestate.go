// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/cli/movein"
	"github.com/fenceline/fenceline/internal/poolset"
)

// finish ends a move that is done: what remains is an ordinary installation.
func (m *mover) finish(ctx context.Context) error {
	if m.move == nil {
		return fmt.Errorf("there is no move of %s", m.network)
	}
	if step := m.move.Spec.Step; step != v1alpha1.MoveOpen {
		return fmt.Errorf("move %s is at step %s: only a move that was started whole can finish", m.move.Name, step)
	}
	if m.move.Status.ObservedGeneration != m.move.Generation {
		return fmt.Errorf("the controller has not looked at move %s yet: see that it runs, and repeat the command", m.move.Name)
	}
	if open := m.open(); len(open) > 0 {
		return fmt.Errorf("move %s is not done: %s", m.move.Name, strings.Join(open, "; "))
	}
	if failed, err := m.restrict(ctx, nil); err != nil {
		return err
	} else if len(failed) > 0 {
		return fmt.Errorf("remove the files of the move: %s. Mend it, or delete the Node if its machine is gone for good, and repeat the command", strings.Join(failed, "; "))
	}
	err := m.c.Delete(ctx, m.move, client.Preconditions{UID: &m.move.UID, ResourceVersion: &m.move.ResourceVersion})
	if apierrors.IsConflict(err) {
		return fmt.Errorf("delete move %s: it has changed meanwhile. Repeat the command", m.move.Name)
	}
	if err != nil {
		return fmt.Errorf("delete move %s: %w", m.move.Name, err)
	}
	m.say("The move of %s is finished. Keep %s on the nodes until the adopted pods have ended: it gets their DELs.", m.network, m.from)
	return nil
}

// open returns what keeps a move from its end.
func (m *mover) open() (open []string) {
	if err := m.allPlanned(); err != nil {
		return []string{err.Error()}
	}
	open = append(m.facts.Away(), m.plan.Strangers...)
	if held := movein.Held(m.move, m.leases); held > 0 {
		open = append(open, fmt.Sprintf("%d addresses are held", held))
	}
	for _, a := range m.move.Status.Addresses {
		if a.State == v1alpha1.MoveConflict {
			open = append(open, fmt.Sprintf("%s is in conflict: %s; restart its pod", a.Address, a.Reason))
		}
	}
	for _, c := range m.plan.Changes {
		if state := c.StateOf(m.configs[c.Namespace+"/"+c.Name]); state != movein.Switched {
			open = append(open, fmt.Sprintf("definition %s/%s is %s", c.Namespace, c.Name, state))
		}
	}
	open = append(open, m.plan.Giving...)
	open = append(open, m.plan.Living().Contested(m.leases)...)
	for _, r := range movein.Added(m.move, m.plan.Records, m.leases) {
		open = append(open, fmt.Sprintf("%s is in use outside Fenceline since the start: repeat `kubectl fenceline move-in start`", r.Address))
	}
	return open
}

// moveState is the answer of status.
type moveState struct {
	Network string                  `json:"network"`
	Out     bool                    `json:"out,omitempty"`
	Step    v1alpha1.MoveStep       `json:"step"`
	Holder  string                  `json:"holder"`
	Status  v1alpha1.MoveStatus     `json:"status"`
	States  map[string]movein.State `json:"definitions"`
	Changes []movein.Change         `json:"changes"`
	Late    []v1alpha1.MoveRecord   `json:"late,omitempty"`
	Given   []netip.Addr            `json:"given,omitempty"`
	Open    []string                `json:"open,omitempty"`
	// Holes are what lacks of the freeze beside the definitions.
	Holes []string `json:"holes,omitempty"`
	// Leaving are the leases that a move out has left.
	Leaving []v1alpha1.MoveRecord `json:"leaving,omitempty"`
	from    v1alpha1.MoveSource
	// isSliced: whereabouts divides the network between the nodes.
	isSliced bool
	records  map[string]v1alpha1.MoveRecord
}

func (m *mover) state() moveState {
	spec := &m.move.Spec
	s := moveState{
		Network: m.network, Out: m.out, Step: spec.Step, Holder: spec.Holder, Status: m.move.Status, States: map[string]movein.State{}, Changes: m.plan.Changes,
		Late: movein.Added(m.move, m.plan.Records, m.leases), Leaving: m.leaving, from: m.from, isSliced: m.plan.IsSliced(), records: map[string]v1alpha1.MoveRecord{},
	}
	_, given := movein.Split(m.move, m.leases)
	s.Given = movein.AddressesOf(given)
	for _, c := range m.plan.Changes {
		s.States[c.Namespace+"/"+c.Name] = c.StateOf(m.configs[c.Namespace+"/"+c.Name])
	}
	if spec.Step == v1alpha1.MoveOpen {
		s.Open, s.Holes = m.open(), m.plan.Holes()
	}
	if m.out && spec.Step == v1alpha1.MoveBack {
		s.Holes = m.facts.Unreserved(poolset.Of(movein.AddressesOf(m.leases)...))
	}
	for _, r := range spec.Records {
		s.records[r.Address] = r
	}
	return s
}

// listed names some addresses.
func listed(all []netip.Addr) string {
	var texts []string
	for _, a := range all[:min(10, len(all))] {
		texts = append(texts, a.String())
	}
	if more := len(all) - len(texts); more > 0 {
		texts = append(texts, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(texts, ", ")
}

// next is what the person has to do.
func (s moveState) next() string {
	command := "kubectl fenceline move-in %s " + string(s.from) + " " + s.Network
	out := strings.Replace(command, "move-in", "move-out", 1)
	switch {
	case s.Out && s.Step == v1alpha1.MoveBack && len(s.Leaving) == 0:
		return "All pods have moved. " + freesMoved[s.from] + " End the move: " + fmt.Sprintf(out, "finish")
	case s.Out:
		return "Not done. Once the leases that are left have ended, repeat: " + fmt.Sprintf(out, "start")
	case s.Step == v1alpha1.MoveBack && s.isSliced && len(s.Given) > 0:
		return "It goes back, and the definitions stay frozen while Fenceline has leases, so pods that start on the network wait. Restart the pods of " +
			listed(s.Given) + ", and repeat: " + fmt.Sprintf(command, "back")
	case s.Step == v1alpha1.MoveBack:
		return "It goes back. Repeat until nothing is left: " + fmt.Sprintf(command, "back")
	case s.Step != v1alpha1.MoveOpen:
		return "The start or the way back has not ended, and pods that start on the network wait. Repeat: " +
			fmt.Sprintf(command, "start") + ", or go back: " + fmt.Sprintf(command, "back")
	case len(s.Open) > 0:
		return "Not done: " + strings.Join(s.Open, "; ") + "."
	}
	return "All pods are adopted. End the move: " + fmt.Sprintf(command, "finish")
}

// moved counts the pods that have moved out.
func (s moveState) moved() (n int) {
	for address, r := range s.records {
		if r.Hold == "" && !slices.ContainsFunc(s.Leaving, func(o v1alpha1.MoveRecord) bool { return o.Address == address }) {
			n++
		}
	}
	return n
}

// said names the state of a definition for people.
func said(state movein.State, out bool, from v1alpha1.MoveSource) string {
	if out {
		return strings.Replace(string(state), string(movein.Before), "switched to "+string(from), 1)
	}
	return string(state)
}

func (s moveState) write(w paper) {
	counts := fmt.Sprintf("Adopted: %d, held: %d, in conflict: %d, ended: %d.", s.Status.Adopted, s.Status.Held, s.Status.Conflicts, s.Status.Ended)
	if s.Out {
		counts = fmt.Sprintf("Moved to %s: %d, with Fenceline still: %d.", s.from, s.moved(), len(s.Leaving))
	}
	fmt.Fprintf(w, "Network %s, step %s, moved by %s. %s\n", s.Network, s.Step, s.Holder, counts)
	for _, c := range s.Changes {
		name := c.Namespace + "/" + c.Name
		w.about("32", "definition "+name, said(s.States[name], s.Out, s.from))
	}
	if n := len(s.Given); n > 0 && !s.Out {
		w.about("32", "Fenceline", fmt.Sprintf("has %d other addresses of the pools, of new pods or kept ready on nodes", n))
	}
	for _, hole := range s.Holes {
		if s.Out {
			w.about("33", "Note", hole+", so the other IPAM may give them: repeat `kubectl fenceline move-out start`")
			continue
		}
		w.about("33", "Note", hole+", so only the definitions keep the other IPAM from giving addresses: repeat `kubectl fenceline move-in start`")
	}
	fmt.Fprintln(w, s.next())
	if s.Out {
		writeRecords(w, s.Leaving, "moves")
		return
	}
	var rows [][]string
	for _, a := range s.Status.Addresses {
		if a.State != v1alpha1.MoveAdopted {
			r := s.records[a.Address]
			rows = append(rows, []string{a.Address, string(a.State), r.Namespace + "/" + r.Pod, r.Node, a.Reason})
		}
	}
	if len(rows) > 0 {
		fmt.Fprintln(w)
		w.table([]string{"ADDRESS", "STATE", "POD", "NODE", "WHY"}, rows)
	}
}
