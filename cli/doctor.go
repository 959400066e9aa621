// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
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

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/cli/cluster"
	"github.com/fenceline/fenceline/cli/fault"
	"github.com/fenceline/fenceline/controller/agents"
	"github.com/fenceline/fenceline/internal/diagnosis"
	"github.com/fenceline/fenceline/internal/inventory"
)

const agentsAtOnce = 16

// errFaults makes the exit code 1 if there are faults.
var errFaults = errors.New("there are faults")

// diagnosed is the answer of doctor.
type diagnosed struct {
	Nodes  int           `json:"nodes"`
	Asked  int           `json:"agentsAsked"`
	Faults []fault.Fault `json:"faults"`
}

func (s *session) doctor() *cobra.Command {
	var file string
	var isAnonymous bool
	c := &cobra.Command{
		Use: "doctor", Short: "Look for faults of nodes, networks, pools and programs", Args: cobra.NoArgs,
		Long: `Look for faults of nodes, networks, pools and programs.

Each agent is asked about its node, and asks the wire for the gateways of its pools and for a pod of
another node. This needs the right to create pods/exec in the namespace of Fenceline. Without it, the rest is
still examined. The exit code is 1 if there are faults.

--bundle writes an archive for a support case: the answers of doctor, status and version, records, nodes, events about
them, and the objects and logs of Fenceline. It has no Secret and no value of an environment. Tokens, passwords and
keys are left out as far as their form shows them: look at the files before you pass them on. Addresses and MACs stay.`,
		RunE: func(c *cobra.Command, args []string) error {
			if isAnonymous && file == "" {
				return errors.New("--anonymous replaces the names in a bundle: give --bundle FILE too")
			}
			var d diagnosed
			err := answers(s, func(ctx context.Context, cl *cluster.Cluster, _ []string) (diagnosed, error) {
				e, err := examine(ctx, cl, time.Now())
				if err == nil {
					d = diagnosed{Nodes: len(e.Nodes), Asked: len(e.Reports), Faults: e.Faults()}
				}
				if err == nil && file != "" {
					err = s.pack(ctx, cl, e, file, isAnonymous)
				}
				return d, err
			}, writeDiagnosed)(c, args)
			if err == nil && len(d.Faults) > 0 {
				err = errFaults
			}
			return err
		},
	}
	c.Flags().StringVar(&file, "bundle", "", "file for an archive for a support case, .tar.gz, which must not exist")
	c.Flags().BoolVar(&isAnonymous, "anonymous", false, "replace names of nodes, namespaces, pods, pools and labels in the archive")
	return c
}

// pack writes the bundle of an examination.
func (s *session) pack(ctx context.Context, c *cluster.Cluster, e *fault.Cluster, file string, isAnonymous bool) error {
	b, err := readBundle(ctx, c, e)
	if err != nil {
		return fmt.Errorf("read what the bundle needs: %w", err)
	}
	if isAnonymous {
		b.replaceNames()
	}
	count, err := b.write(file, e.Now)
	if err == nil {
		fmt.Fprintf(s.ErrOut, "%s has %d files. Look at them before you pass it on.\n", file, count)
	}
	return err
}

func writeDiagnosed(w paper, d diagnosed) {
	for _, f := range d.Faults {
		w.about("31", f.Object, f.What)
		w.say("    ", 4, f.Do)
	}
	fmt.Fprintf(w, "%s. %s, %s asked.\n", inventory.Count(len(d.Faults), "fault"), inventory.Count(d.Nodes, "node"), inventory.Count(d.Asked, "agent"))
}

// examination reads a cluster, and asks its agents.
type examination struct {
	*cluster.Cluster
	found *fault.Cluster
}

// examine reads everything that the checks need.
func examine(ctx context.Context, c *cluster.Cluster, now time.Time) (*fault.Cluster, error) {
	e := examination{c, &fault.Cluster{Now: now, Namespace: c.Namespace}}
	server, err := c.Kube.Discovery().ServerVersion()
	if err != nil {
		return nil, fmt.Errorf("ask the API server for its version: %w", err)
	}
	e.found.Server = server.GitVersion
	var nodes corev1.NodeList
	var pools v1alpha1.IPPoolList
	var leases v1alpha1.IPLeaseList
	err = errors.Join(c.MayList(ctx, "nodes", &nodes), c.MayList(ctx, "pools", &pools), c.MayList(ctx, "leases", &leases))
	if err != nil {
		return nil, err
	}
	e.found.Nodes, e.found.Pools, e.found.Leases = nodes.Items, pools.Items, leases.Items
	if e.found.Agents, e.found.Controllers, err = c.Programs(ctx); err != nil {
		return nil, err
	}
	e.found.LacksPools, e.found.LacksPrograms = c.Lacks("pools"), c.LacksPrograms()
	for _, read := range []func(context.Context) error{e.readServices, e.readPods, e.askAgents} {
		if err := read(ctx); err != nil {
			return nil, err
		}
	}
	return e.found, nil
}

// readServices reads the ranges of ClusterIPs, if the server has ServiceCIDRs.
func (e examination) readServices(ctx context.Context) error {
	all, err := e.Kube.NetworkingV1().ServiceCIDRs().List(ctx, metav1.ListOptions{})
	if apierrors.IsNotFound(err) {
		return nil // Kubernetes 1.32 has no such objects
	}
	if err = e.MayLack("ServiceCIDRs", err); err != nil {
		return fmt.Errorf("list ServiceCIDRs: %w", err)
	}
	for i := range all.Items {
		for _, cidr := range all.Items[i].Spec.CIDRs {
			if p, err := netip.ParsePrefix(cidr); err == nil {
				e.found.Services = append(e.found.Services, p)
			}
		}
	}
	return nil
}

// readPods finds pods with a hostPort on the chart's network, annotations that nobody reads, and
// whether that network serves hostPorts.
func (e examination) readPods(ctx context.Context) error {
	config, known, err := configOf(ctx, e.Cluster, "")
	if err != nil {
		return err
	}
	e.found.MapsPorts = !known || strings.Contains(config, "portMappings")
	pods := pager.New(pager.SimplePageFunc(func(o metav1.ListOptions) (runtime.Object, error) {
		return e.Kube.CoreV1().Pods("").List(ctx, o)
	}))
	err = pods.EachListItem(ctx, metav1.ListOptions{}, func(o runtime.Object) error {
		e.found.SawPod(o.(*corev1.Pod))
		return nil
	})
	if err = e.MayLack("pods of all namespaces", err); err != nil {
		return fmt.Errorf("list pods of all namespaces: %w", err)
	}
	namespaces := &metav1.PartialObjectMetadataList{}
	namespaces.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("NamespaceList"))
	if err := e.MayList(ctx, "namespaces", namespaces); err != nil {
		return err
	}
	for i := range namespaces.Items {
		e.found.SawNamespace(namespaces.Items[i].Name, namespaces.Items[i].Annotations)
	}
	return nil
}

func (e examination) askAgents(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(agentsAtOnce)
	var mu sync.Mutex
	for i := range e.found.Agents {
		agent := &e.found.Agents[i]
		if !agents.IsAlive(agent) {
			continue
		}
		group.Go(func() error {
			asked := time.Now()
			report, err := e.Diagnose(ctx, agent.Name, diagnosis.Request{Questions: e.found.Questions(agent.Spec.NodeName)})
			err = e.MayLack("the answer of agent "+agent.Name+" (create pods/exec)", err)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				e.found.Silent = append(e.found.Silent, fault.Fault{
					Object: "node " + agent.Spec.NodeName, What: "its agent does not answer: " + err.Error(),
					Do: "look at its log, and whether it is of this release: kubectl logs " + agent.Name + " -n " + e.Namespace,
				})
			} else if report != nil {
				e.found.Reports = append(e.found.Reports, fault.Report{Report: *report, Asked: asked})
			}
			return nil
		})
	}
	return group.Wait()
}
