// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/pflag"
	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/cli/cluster"
	"github.com/fenceline/fenceline/cli/grid"
	"github.com/fenceline/fenceline/controller/agents"
	"github.com/fenceline/fenceline/controller/metrics"
	"github.com/fenceline/fenceline/controller/reclaim"
	"github.com/fenceline/fenceline/internal/inventory"
	"github.com/fenceline/fenceline/internal/owner"
)

// unknown is the decision for a reader who may not read what it depends on.
const unknown reclaim.Kind = "Unknown"

// end is the controller's decision about a lease.
type end struct {
	Decision reclaim.Kind `json:"decision"`
	// At is the time of the next decision.
	At  *time.Time `json:"at,omitempty"`
	Why string     `json:"why"`
}

// endOf asks the controller's own rules what will end a lease.
func endOf(ctx context.Context, c *cluster.Cluster, lease *v1alpha1.IPLease) (*end, error) {
	policy, err := policyOf(ctx, c)
	if err != nil {
		return nil, err
	}
	rules := reclaim.Reconciler{
		Client: c, Live: c, Metrics: metrics.New(prometheus.NewRegistry()), Clock: clock.RealClock{}, Namespace: c.Namespace, Defaults: policy,
		Owners: owner.Asker{Live: c, Scales: c, Mapper: c.RESTMapper()},
	}
	a, err := rules.Explain(ctx, lease)
	if lack, ok := errors.AsType[*apierrors.StatusError](err); ok && apierrors.IsForbidden(lack) {
		return &end{Decision: unknown, Why: lack.Error()}, c.MayLack("what decides about the end of lease "+lease.Name, err)
	}
	if err != nil {
		return nil, err
	}
	e := &end{Decision: a.Kind, Why: a.Why}
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

func (st story) write(w paper, now time.Time) {
	head := st.Address
	switch {
	case st.Network != "":
		head += " on network " + st.Network
	case st.isOneOf: // this network has no name
		head += " of pool " + st.Pool
	}
	if st.Lease == nil {
		w.say("", 2, head+" has no lease. "+st.Free)
		st.writePast(w)
		return
	}
	spec := &st.Lease.Spec
	fmt.Fprintf(w, "%s is %s", head, inWords(st.State))
	if spec.Reason != "" && string(spec.Reason) != string(st.State) {
		fmt.Fprintf(w, " (%s)", spec.Reason)
	}
	fmt.Fprintf(w, " since %s, %s ago.\n", spec.Since.UTC().Format(time.RFC3339), age(now, spec.Since.Time))
	say := func(name, format string, args ...any) {
		w.say(fmt.Sprintf("  %-10s ", name+":"), 13, fmt.Sprintf(format, args...))
	}
	say("Pool", "%s", spec.Pool)
	if h := spec.Holder; h != nil {
		say("Holder", "pod %s/%s, interface %s, MAC %s", h.Namespace, h.Pod, cmp.Or(h.Interface, "unknown"), cmp.Or(h.MAC, "unknown"))
		if h.OwnerKind != "" {
			say("Owner", "%s %s", h.OwnerKind, h.OwnerName)
		}
		if !h.Guarded && spec.State == v1alpha1.StateBound {
			say("Guard", "none: a claim silences this holder only while its agent lives")
		}
	}
	if spec.NodeName != "" {
		name, at := "Node", spec.NodeName
		if spec.State == v1alpha1.StateQuarantined {
			name = "Verifier"
		}
		if spec.Parent != "" {
			at += ", parent " + spec.Parent
		}
		say(name, "%s", at)
	}
	if p := spec.Previous; p != nil {
		say("Taken from", "MAC %s on node %s at %s, because of %s", cmp.Or(p.MAC, "unknown"), cmp.Or(p.Node, "unknown"), p.Since.UTC().Format(time.RFC3339), p.Reason)
	}
	if x := spec.Conflict; x != nil {
		say("Conflict", "MAC %s was heard by the %s, %s, last %s ago", x.MAC, x.Source, grid.Count(int(x.Count), "time"), age(now, x.LastSeen.Time))
	}
	if spec.Message != "" {
		say("Message", "%s", spec.Message)
	}
	if st.End != nil {
		say("End", "%s", st.End.sentence(now))
	}
	st.writePast(w)
}

// sentence says what will end a lease.
func (e end) sentence(now time.Time) string {
	why := strings.TrimSuffix(e.Why, ".")
	switch e.Decision {
	case unknown:
		return "unknown, because you may not read what decides it: " + why
	case reclaim.Wait:
		return fmt.Sprintf("the controller decides at %s, in %s: %s", e.At.UTC().Format(time.RFC3339), age(*e.At, now), why)
	case reclaim.None:
		return "nothing ends it now: " + why
	case reclaim.Quarantine:
		return "the controller takes it now: " + why
	case reclaim.DeletePod:
		return "the controller deletes the pod now: " + why
	case reclaim.Reassign:
		return "another node is asked for proof now: " + why
	}
	return "the controller frees it now: " + why
}

// inWords returns the state of a lease in a sentence.
func inWords(s inventory.State) string {
	if s == inventory.Conflict {
		return "in conflict"
	}
	return strings.ToLower(string(s))
}
