// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/fenceline/fenceline/apis/v1alpha1"
)

func (s *session) moveOut() *cobra.Command {
	k := &steps{
		s: s, out: true, sources: []v1alpha1.MoveSource{v1alpha1.MoveWhereabouts, v1alpha1.MoveSpiderpool}, refused: map[v1alpha1.MoveSource]string{v1alpha1.MoveHostLocal: noHostLocal},
		Command: &cobra.Command{Use: "move-out", Short: "Move a network of Fenceline to another IPAM, while its pods run"},
	}
	records := func(c *cobra.Command) {
		c.Flags().StringVar(&k.recordsIn, "records-in", "", "namespace of whereabouts' records, if it has none yet or in several namespaces")
	}
	records(k.step("plan", "Show what moves, the definitions as they will be, and what blocks the move", plannedOut, func(_ context.Context, m *mover) error { return m.printPlan() }))
	records(k.step("start", "Give the other IPAM records of the running pods, and switch the network to it", startedOut, k.writes(func(ctx context.Context, m *mover) error {
		if err := m.moveOut(ctx); err != nil {
			return err
		}
		return k.report(ctx, m)
	})))
	k.step("status", "Show which addresses are with Fenceline still, and what to do", "Only reads. With -o json, it prints the texts of each definition too.", k.report)
	records(k.step("finish", "End a move that is done", "Refuses while an address of the pools has a lease. Deletes the pools and the Move.",
		k.writes(func(ctx context.Context, m *mover) error { return m.finishOut(ctx) })))
	return k.Command
}

const (
	noHostLocal = ". Each node of host-local gives addresses alone, so several would give the same ones of a pool, and nothing would free " +
		"the addresses of the pods that moved, since their DELs come to Fenceline"
	plannedOut = `NETWORK is a NetworkAttachmentDefinition that names its pools. The plan only reads. It prints the definitions as they
will be, and each address with what becomes of it. The exit code is 1 if something blocks.`
	startedOut = `No running pod is touched, and no address is free in both IPAMs: Fenceline stops giving first, then the other IPAM gets
a record of each running pod, then the definitions change, then guards and leases of these pods go. Addresses that
Fenceline still holds stay excluded in the other IPAM until their leases end: then repeat the command. It is also
repeated if it was killed. There is no way back but a move in.`
)
