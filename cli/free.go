// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/cli/cluster"
	"github.com/fenceline/fenceline/internal/inventory"
)

// errUnconfirmed ends the command if a person does not confirm.
var errUnconfirmed = errors.New("nothing was changed")

func (s *session) free() *cobra.Command {
	yes, force := false, false
	c := &cobra.Command{
		Use: "free ADDRESS", Short: "Free the address of a lease by hand, after a question", Args: cobra.ExactArgs(1),
		Long: `Free the address of a lease by hand, after a question.

A Retained address has no holder, so its lease is deleted. A lease in another state may have a living
holder: no claim would silence it, and its address may get a second speaker. Such a lease needs --force,
and the right to delete pods in the namespace of its holder.`,
		Example: "  kubectl fenceline free 10.0.0.7",
		RunE: func(c *cobra.Command, args []string) error {
			cl, err := s.open()
			if err != nil {
				return err
			}
			network, addr, err := parseAsked(args[0])
			if err != nil {
				return err
			}
			lease := &v1alpha1.IPLease{}
			if err := cl.Get(c.Context(), client.ObjectKey{Name: v1alpha1.LeaseName(network, addr)}, lease); err != nil {
				if apierrors.IsNotFound(err) {
					return fmt.Errorf("%s has no lease: there is nothing to free", args[0])
				}
				return fmt.Errorf("read the lease of %s: %w", args[0], err)
			}
			forced := lease.Spec.State != v1alpha1.StateRetained
			if forced && !force {
				return fmt.Errorf("%s is %s%s: it ends by itself as `kubectl fenceline explain %s` says; --force deletes its lease without a fence",
					lease.Spec.Address, lease.Spec.State, ofHolder(lease), args[0])
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
			fmt.Fprintf(s.Out, answer, lease.Spec.Address)
			return nil
		},
	}
	c.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask")
	c.Flags().BoolVar(&force, "force", false, "delete the lease of an address that may be in use, without a fence")
	return c
}

func ofHolder(l *v1alpha1.IPLease) string {
	if pod := inventory.PodOf(&l.Spec); pod != "" {
		return ", held by " + pod
	}
	return ""
}

func (s *session) confirm(l *v1alpha1.IPLease) error {
	fmt.Fprintf(s.Out, "Delete the lease of %s (%s%s)? [y/N] ", l.Spec.Address, l.Spec.State, ofHolder(l))
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
