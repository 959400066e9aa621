// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"net/netip"
	"strings"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/cli/movein"
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
	if failed, err := m.writeFiles(ctx, nil); err != nil {
		return err
	} else if len(failed) > 0 {
		return fmt.Errorf("remove the files of the move: %s. Mend it, or delete the Node if its machine is gone for good, and repeat the command", strings.Join(failed, "; "))
	}
	if err := m.c.Delete(ctx, m.move, client.Preconditions{UID: &m.move.UID, ResourceVersion: &m.move.ResourceVersion}); err != nil {
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
	open = append(m.facts.Away(), m.plan.Strangers()...)
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
	for _, r := range movein.Added(m.move, m.plan.Records, m.leases) {
		open = append(open, fmt.Sprintf("%s is in use outside Fenceline since the start: repeat `kubectl fenceline move-in start`", r.Address))
	}
	return open
}

// moveState is the answer of status.
type moveState struct {
	Network string                  `json:"network"`
	Step    v1alpha1.MoveStep       `json:"step"`
	Holder  string                  `json:"holder"`
	Status  v1alpha1.MoveStatus     `json:"status"`
	States  map[string]movein.State `json:"definitions"`
	Changes []movein.Change         `json:"changes"`
	Late    []v1alpha1.MoveRecord   `json:"late,omitempty"`
	Given   []netip.Addr            `json:"given,omitempty"`
	Open    []string                `json:"open,omitempty"`
	// Holes are the nodes that lack files of the move.
	Holes   []string `json:"holes,omitempty"`
	from    v1alpha1.MoveSource
	records map[string]v1alpha1.MoveRecord
}

func (m *mover) state() moveState {
	spec := &m.move.Spec
	s := moveState{
		Network: m.network, Step: spec.Step, Holder: spec.Holder, Status: m.move.Status, States: map[string]movein.State{}, Changes: m.plan.Changes,
		Late: movein.Added(m.move, m.plan.Records, m.leases), from: m.from, records: map[string]v1alpha1.MoveRecord{},
	}
	_, given := movein.Split(m.move, m.leases)
	s.Given = movein.AddressesOf(given)
	for _, c := range m.plan.Changes {
		s.States[c.Namespace+"/"+c.Name] = c.StateOf(m.configs[c.Namespace+"/"+c.Name])
	}
	if spec.Step == v1alpha1.MoveOpen {
		s.Open, s.Holes = m.open(), m.plan.Holes()
	}
	for _, r := range spec.Records {
		s.records[r.Address] = r
	}
	return s
}

// next is what the person has to do.
func (s moveState) next() string {
	command := "kubectl fenceline move-in %s " + string(s.from) + " " + s.Network
	switch {
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

func (s moveState) write(w paper) {
	fmt.Fprintf(w, "Network %s, step %s, moved by %s. Adopted: %d, held: %d, in conflict: %d, ended: %d.\n",
		s.Network, s.Step, s.Holder, s.Status.Adopted, s.Status.Held, s.Status.Conflicts, s.Status.Ended)
	for _, c := range s.Changes {
		name := c.Namespace + "/" + c.Name
		w.about("32", "definition "+name, string(s.States[name]))
	}
	if n := len(s.Given); n > 0 {
		w.about("32", "Fenceline", fmt.Sprintf("has given %d addresses of the pools to others than the pods of the move", n))
	}
	for _, hole := range s.Holes {
		w.about("33", "Note", hole+", so only the definition keeps host-local from giving addresses there: repeat `kubectl fenceline move-in start`")
	}
	fmt.Fprintln(w, s.next())
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
