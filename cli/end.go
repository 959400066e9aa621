// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"time"

	"github.com/spf13/pflag"
	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/cli/cluster"
	"github.com/fenceline/fenceline/controller/agents"
	"github.com/fenceline/fenceline/controller/reclaim"
	"github.com/fenceline/fenceline/internal/owner"
)

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
