// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/cli/cluster"
	"github.com/fenceline/fenceline/internal/inventory"
)

// errUnconfirmed ends the command if a person does not confirm.
var errUnconfirmed = errors.New("nothing was changed")

func (s *session) free() *cobra.Command {
	yes, force, network := false, false, ""
	c := &cobra.Command{
		Use: "free ADDRESS", Short: "Free the address of a lease by hand, after a question", Args: cobra.ExactArgs(1),
		Long: `Free the address of a lease by hand, after a question.

A Retained address has no holder, so its lease is deleted. A lease in another state may have a living
holder: no claim would silence it, and its address may get a second speaker. Such a lease needs --force,
and the right to delete pods in the namespace of its holder.`,
		Example: "  kubectl fenceline free 10.0.0.7\n  kubectl fenceline free 10.0.0.7 --network storage",
		RunE: func(c *cobra.Command, args []string) error {
			q, err := parseQuery(args[0], network)
			if err != nil {
				return err
			}
			cl, err := s.open()
			if err != nil {
				return err
			}
			lease, err := leaseOf(c.Context(), cl, q)
			if err != nil {
				return err
			}
			forced := lease.Spec.State != v1alpha1.StateRetained
			if forced && !force {
				return fmt.Errorf("%s is %s%s: it ends by itself as `kubectl fenceline explain %s` says; --force deletes its lease without a fence",
					queryOf(lease), lease.Spec.State, ofHolder(lease), lease.Name)
			}
			if !yes {
				if err := s.confirm(lease); err != nil {
					return err
				}
			}
			if err := remove(c.Context(), cl, lease, forced); err != nil {
				return err
			}
			answer := "%s is free.\n"
			if forced {
				answer = "The lease of %s is deleted. If its pod runs, the agent records it again.\n"
			}
			fmt.Fprintf(printable{s.Out}, answer, queryOf(lease))
			return nil
		},
	}
	networkFlag(c, &network)
	c.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask")
	c.Flags().BoolVar(&force, "force", false, "delete the lease of an address that may be in use, without a fence")
	return c
}

// leaseOf returns the only lease of an address.
func leaseOf(ctx context.Context, c *cluster.Cluster, q query) (lease *v1alpha1.IPLease, err error) {
	_, networks, err := q.read(ctx, c)
	if err != nil {
		return nil, err
	}
	if q.network == anyNetwork && !slices.Contains(networks, "") {
		networks = append(networks, "") // its pool may be gone
	}
	var having []string
	for _, network := range networks {
		l, err := leaseOn(ctx, c, network, q.addr)
		if err != nil {
			return nil, err
		}
		if l != nil {
			lease, having = l, append(having, network)
		}
	}
	switch len(having) {
	case 0:
		return nil, fmt.Errorf("%s has no lease: there is nothing to free", q)
	case 1:
		return lease, nil
	}
	return nil, fmt.Errorf("%s has leases on several networks: choose one of %q with --network", q.addr, having)
}

func ofHolder(l *v1alpha1.IPLease) string {
	if pod := inventory.PodOf(&l.Spec); pod != "" {
		return ", held by " + pod
	}
	return ""
}

func (s *session) confirm(l *v1alpha1.IPLease) error {
	fmt.Fprintf(printable{s.Out}, "Delete the lease of %s (%s%s)? [y/N] ", queryOf(l), l.Spec.State, ofHolder(l))
	answer, err := bufio.NewReader(s.In).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("read the answer: %w", err)
	}
	switch strings.ToLower(strings.TrimSpace(answer)) {
	case "y", "yes":
		return nil
	}
	return errUnconfirmed
}

// remove deletes the lease as it was read: a lease that has changed meanwhile stays.
func remove(ctx context.Context, c *cluster.Cluster, l *v1alpha1.IPLease, forced bool) error {
	if forced {
		patch := client.MergeFromWithOptions(l.DeepCopy(), client.MergeFromWithOptimisticLock{})
		metav1.SetMetaDataAnnotation(&l.ObjectMeta, v1alpha1.AnnotationForceDelete, "")
		if err := c.Patch(ctx, l, patch); err != nil {
			return fmt.Errorf("annotate lease %s: %w", l.Name, err)
		}
	}
	err := c.Delete(ctx, l, client.Preconditions{UID: &l.UID, ResourceVersion: &l.ResourceVersion})
	if err != nil {
		return fmt.Errorf("delete lease %s: %w", l.Name, err)
	}
	return nil
}
