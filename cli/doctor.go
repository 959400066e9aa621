// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/pager"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fenceline/fenceline/agent/ipam"
	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/cli/cluster"
	"github.com/fenceline/fenceline/cli/grid"
	"github.com/fenceline/fenceline/controller/agents"
	"github.com/fenceline/fenceline/internal/diagnosis"
)

// agentsAtOnce is the number of agents that are asked at the same time.
const agentsAtOnce = 16

// errFaults makes the exit code 1 if there are faults.
var errFaults = errors.New("there are faults")

// diagnosed is the answer of doctor.
type diagnosed struct {
	Nodes  int     `json:"nodes"`
	Asked  int     `json:"agentsAsked"`
	Faults []fault `json:"faults"`
}

func (s *session) doctor() *cobra.Command {
	return &cobra.Command{
		Use: "doctor", Short: "Look for faults of nodes, networks, pools and programs", Args: cobra.NoArgs,
		Long: `Look for faults of nodes, networks, pools and programs.

Each agent is asked about its node, and asks the wire for the gateways of its pools and for a pod of
another node. This needs the right to create pods/exec in the namespace of Fenceline. Without it, the rest is
still examined. The exit code is 1 if there are faults.`,
		RunE: func(c *cobra.Command, _ []string) error {
			cl, err := s.open()
			if err != nil {
				return err
			}
			e, err := examine(c.Context(), cl, time.Now())
			if err != nil {
				return err
			}
			d := diagnosed{Nodes: len(e.nodes), Asked: len(e.reports), Faults: append([]fault{}, e.faults()...)}
			defer s.sayUnread(cl)
			err = s.print(d, func(w paper) {
				for _, f := range d.Faults {
					w.say("", 4, s.colour("31", f.Object+":")+" "+f.What)
					w.say("    ", 4, f.Do)
				}
				fmt.Fprintf(w, "%s. %s, %s asked.\n", grid.Count(len(d.Faults), "fault"), grid.Count(d.Nodes, "node"), grid.Count(d.Asked, "agent"))
			})
			if err == nil && len(d.Faults) > 0 {
				err = errFaults
			}
			return err
		},
	}
}

// examine reads everything that the checks need.
func examine(ctx context.Context, c *cluster.Cluster, now time.Time) (*examined, error) {
	e := &examined{now: now, namespace: c.Namespace}
	server, err := c.Kube.Discovery().ServerVersion()
	if err != nil {
		return nil, fmt.Errorf("ask the API server for its version: %w", err)
	}
	e.server = server.GitVersion
	var nodes corev1.NodeList
	var pools v1alpha1.IPPoolList
	var leases v1alpha1.IPLeaseList
	for _, l := range []struct {
		list client.ObjectList
		name string
	}{{&nodes, "nodes"}, {&pools, "pools"}, {&leases, "leases"}} {
		if err := c.MayLack(l.name, c.List(ctx, l.list)); err != nil {
			return nil, fmt.Errorf("list %s: %w", l.name, err)
		}
	}
	e.nodes, e.pools, e.leases = nodes.Items, pools.Items, leases.Items
	if e.agents, err = c.Agents(ctx); c.MayLack("pods of namespace "+c.Namespace, err) != nil {
		return nil, err
	}
	if e.controllers, err = c.Controllers(ctx); c.MayLack("pods of namespace "+c.Namespace, err) != nil {
		return nil, err
	}
	if err := e.readServices(ctx, c); err != nil {
		return nil, err
	}
	if err := e.readPods(ctx, c); err != nil {
		return nil, err
	}
	return e, e.askAgents(ctx, c)
}

// readServices reads the ranges of ClusterIPs. A server without such objects says nothing here.
func (e *examined) readServices(ctx context.Context, c *cluster.Cluster) error {
	all, err := c.Kube.NetworkingV1().ServiceCIDRs().List(ctx, metav1.ListOptions{})
	if apierrors.IsNotFound(err) {
		return nil // Kubernetes 1.32 has no such objects
	}
	if err = c.MayLack("ServiceCIDRs", err); err != nil {
		return fmt.Errorf("list ServiceCIDRs: %w", err)
	}
	for i := range all.Items {
		for _, cidr := range all.Items[i].Spec.CIDRs {
			if p, err := netip.ParsePrefix(cidr); err == nil {
				e.services = append(e.services, p)
			}
		}
	}
	return nil
}

// readPods finds pods with a hostPort on the chart's network, whether that network serves it, and
// annotations that nobody reads.
func (e *examined) readPods(ctx context.Context, c *cluster.Cluster) error {
	w := whyFor{c: c}
	config, known, err := w.configOf(ctx, "")
	if err != nil {
		return err
	}
	e.mapsPorts = !known || strings.Contains(config, "portMappings")
	read := func(what string, list pager.ListPageFunc, each func(runtime.Object)) error {
		err := pager.New(list).EachListItem(ctx, metav1.ListOptions{}, func(o runtime.Object) error {
			each(o)
			return nil
		})
		if err = c.MayLack(what, err); err != nil {
			return fmt.Errorf("list %s: %w", what, err)
		}
		return nil
	}
	return errors.Join(
		read("pods of all namespaces", pager.SimplePageFunc(func(o metav1.ListOptions) (runtime.Object, error) {
			return c.Kube.CoreV1().Pods("").List(ctx, o)
		}), func(o runtime.Object) { e.sawPod(o.(*corev1.Pod)) }),
		read("namespaces", pager.SimplePageFunc(func(o metav1.ListOptions) (runtime.Object, error) {
			return c.Kube.CoreV1().Namespaces().List(ctx, o)
		}), func(o runtime.Object) {
			ns := o.(*corev1.Namespace)
			e.unread = append(e.unread, ipam.Unread(ipam.Request{Pod: ipam.Pod{Namespace: ns.Name}, NamespaceAnnotations: ns.Annotations})...)
		}),
	)
}

func (e *examined) sawPod(pod *corev1.Pod) {
	if pod.Spec.HostNetwork {
		return
	}
	e.unread = append(e.unread, ipam.Unread(ipam.Request{Pod: ipam.Pod{Namespace: pod.Namespace, Name: pod.Name, Annotations: pod.Annotations}})...)
	for _, container := range pod.Spec.Containers {
		if slices.ContainsFunc(container.Ports, func(p corev1.ContainerPort) bool { return p.HostPort != 0 }) {
			e.hostPorts = append(e.hostPorts, pod.Namespace+"/"+pod.Name)
			return
		}
	}
}

// askAgents asks the Ready agents about their nodes.
func (e *examined) askAgents(ctx context.Context, c *cluster.Cluster) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(agentsAtOnce)
	var mu sync.Mutex
	for i := range e.agents {
		agent := &e.agents[i]
		if !agents.IsAlive(agent) {
			continue
		}
		group.Go(func() error {
			asked := time.Now()
			report, err := c.Diagnose(ctx, agent.Name, diagnosis.Request{Questions: questionsFor(agent.Spec.NodeName, e.pools, e.leases)})
			mu.Lock()
			defer mu.Unlock()
			if err = c.MayLack("the answer of agent "+agent.Name+" (create pods/exec)", err); err != nil {
				e.silent = append(e.silent, fault{"node " + agent.Spec.NodeName, "its agent does not answer: " + err.Error(),
					"look at its log, and whether it is of this release: kubectl logs " + agent.Name + " -n " + c.Namespace})
				return nil
			}
			if report != nil {
				e.reports = append(e.reports, answered{*report, asked})
			}
			return nil
		})
	}
	return group.Wait()
}

// questionsFor returns the gateways of the pools that a node's pods have, and for each parent a pod of
// another node.
func questionsFor(node string, pools []v1alpha1.IPPool, leases []v1alpha1.IPLease) []diagnosis.Question {
	type on struct{ pool, parent string }
	here := map[on]bool{}
	for i := range leases {
		if s := &leases[i].Spec; s.NodeName == node && s.Parent != "" && (s.State == v1alpha1.StateBound || s.State == v1alpha1.StateWarm) {
			here[on{s.Pool, s.Parent}] = true
		}
	}
	var questions []diagnosis.Question
	seen := map[diagnosis.Question]bool{}
	add := func(addr netip.Addr, parent string) {
		q := diagnosis.Question{Address: addr, Parent: parent}
		if addr.IsValid() && !seen[q] && len(questions) < diagnosis.MaxQuestions {
			seen[q] = true
			questions = append(questions, q)
		}
	}
	for at := range here {
		for i := range pools {
			if pools[i].Name == at.pool && pools[i].Spec.Gateway != nil {
				gateway, _ := netip.ParseAddr(*pools[i].Spec.Gateway) // the CRD refuses another text
				add(gateway, at.parent)
			}
		}
		for i := range leases {
			if s := &leases[i].Spec; s.Pool == at.pool && s.State == v1alpha1.StateBound && s.NodeName != node {
				add(s.Addr(), at.parent)
				break
			}
		}
	}
	return questions
}
