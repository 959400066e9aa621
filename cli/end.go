// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/pflag"
	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/cli/cluster"
	"github.com/fenceline/fenceline/controller/metrics"
	"github.com/fenceline/fenceline/controller/reclaim"
	"github.com/fenceline/fenceline/internal/owner"
)

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
	counts, err := metrics.New(prometheus.NewRegistry())
	if err != nil {
		return nil, err
	}
	rules := reclaim.Reconciler{
		Client: c, Live: c, Metrics: counts, Clock: clock.RealClock{}, Namespace: c.Namespace, Defaults: policy,
		Owners: owner.Asker{Live: c, Scales: c, Mapper: c.RESTMapper()},
	}
	a, err := rules.Explain(ctx, lease)
	if err := c.MayLack("what decides about the end of lease "+lease.Name, err); err != nil {
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
	err := c.List(ctx, &all, client.InNamespace(c.Namespace), cluster.Labels("controller"))
	if err = c.MayLack("Deployments of namespace "+c.Namespace, err); err != nil {
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

// write tells the story in sentences.
func (st story) write(w io.Writer, now time.Time) {
	head := st.Address
	if st.Network != "" {
		head += " on network " + st.Network
	}
	if st.Lease == nil {
		fmt.Fprintf(w, "%s has no lease. %s\n", head, st.Free)
		st.writePast(w)
		return
	}
	spec := &st.Lease.Spec
	fmt.Fprintf(w, "%s is %s", head, inWords(string(st.State)))
	if spec.Reason != "" && string(spec.Reason) != string(st.State) {
		fmt.Fprintf(w, " (%s)", spec.Reason)
	}
	fmt.Fprintf(w, " since %s, %s ago.\n", spec.Since.UTC().Format(time.RFC3339), age(now, spec.Since.Time))
	fmt.Fprintln(w, "  Pool:     ", spec.Pool)
	if h := spec.Holder; h != nil {
		fmt.Fprintf(w, "  Holder:    pod %s/%s, interface %s, MAC %s\n", h.Namespace, h.Pod, orNone(h.Interface), orNone(h.MAC))
		if h.OwnerKind != "" {
			fmt.Fprintf(w, "  Owner:     %s %s\n", h.OwnerKind, h.OwnerName)
		}
		if !h.Guarded && spec.State == v1alpha1.StateBound {
			fmt.Fprintln(w, "  Guard:     none: no claim can silence this holder")
		}
	}
	node := "Node:     "
	if spec.State == v1alpha1.StateQuarantined {
		node = "Verifier: "
	}
	if spec.NodeName != "" {
		fmt.Fprintf(w, "  %s %s", node, spec.NodeName)
		if spec.Parent != "" {
			fmt.Fprintf(w, ", parent %s", spec.Parent)
		}
		fmt.Fprintln(w)
	}
	if p := spec.Previous; p != nil {
		fmt.Fprintf(w, "  Taken from: MAC %s on node %s at %s, because of %s\n",
			orNone(p.MAC), orNone(p.Node), p.Since.UTC().Format(time.RFC3339), p.Reason)
	}
	if x := spec.Conflict; x != nil {
		fmt.Fprintf(w, "  Conflict:  MAC %s was heard by the %s, %d times, last %s ago\n", x.MAC, x.Source, x.Count, age(now, x.LastSeen.Time))
	}
	if spec.Message != "" {
		fmt.Fprintln(w, "  Message:  ", spec.Message)
	}
	if st.End != nil {
		fmt.Fprintln(w, "  End:      ", st.End.sentence(now))
	}
	st.writePast(w)
}

// sentence says what will end a lease.
func (e end) sentence(now time.Time) string {
	why := strings.TrimSuffix(e.Why, ".")
	switch e.Decision {
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

// inWords returns a state in lower case words.
func inWords(state string) string {
	var b strings.Builder
	for i, r := range state {
		if i > 0 && r >= 'A' && r <= 'Z' {
			b.WriteByte(' ')
		}
		b.WriteRune(r)
	}
	if state == "Conflict" {
		return "in conflict"
	}
	return strings.ToLower(b.String())
}

func orNone(text string) string {
	if text == "" {
		return "unknown"
	}
	return text
}
