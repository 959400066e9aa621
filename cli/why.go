// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fenceline/fenceline/agent/ipam"
	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/cli/cluster"
	"github.com/fenceline/fenceline/cli/fault"
	"github.com/fenceline/fenceline/controller/podview"
	"github.com/fenceline/fenceline/internal/owner"
)

// whyAnswer is the answer of why for one pod.
type whyAnswer struct {
	Pod string `json:"pod"`
	// Has are the leases of the pod's name.
	Has []place `json:"has"`
	// Choices has an element for each interface, and for each group of nodes with the same answer.
	Choices []whyChoice `json:"choices"`
	// Affinity keeps the pod off the nodes that do not serve it.
	Affinity []corev1.NodeSelectorTerm `json:"affinity,omitempty"`
	// Error is the reason for which no interface of the pod is served.
	Error string `json:"error,omitempty"`
	// Events are the events of the agents about the pod.
	Events []moment `json:"events"`
}

// whyChoice has the pools that an ADD would choose from.
type whyChoice struct {
	Interface string    `json:"interface"`
	Nodes     []string  `json:"nodes"`
	Pools     []whyPool `json:"pools"`
	// Error is the reason for which there is no pool.
	Error string `json:"error,omitempty"`
	// families are the pools that serve each family.
	families [][]string
}

// whyPool is a pool that serves the interface, or the reason for which it does not.
type whyPool struct {
	Pool   string `json:"pool"`
	Serves bool   `json:"serves"`
	Full   bool   `json:"full,omitempty"`
	Why    string `json:"why"`
}

func (s *session) why() *cobra.Command {
	file, node, iface := "", "", ""
	c := &cobra.Command{
		Use: "why [POD]", Short: "Tell for each pool whether it serves a pod, by the rules of ADD",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 1 || (len(args) == 0) == (file == "") {
				return errors.New("name a pod, or a file with --filename")
			}
			return nil
		},
		Example: "  kubectl fenceline why web-0 -n shop\n  kubectl fenceline why -f deploy.yaml --node n1",
		RunE: answers(s, func(ctx context.Context, c *cluster.Cluster, args []string) (all []whyAnswer, err error) {
			namespace, _, err := s.flags.ToRawKubeConfigLoader().Namespace()
			if err != nil {
				return nil, fmt.Errorf("read the kubeconfig: %w", err)
			}
			var subjects []subject
			if file != "" {
				subjects, err = readSubjects(s.In, file, namespace)
			} else {
				subjects, err = live(ctx, c, namespace, args[0])
			}
			if err != nil {
				return nil, err
			}
			for _, subject := range subjects {
				w := whyFor{c: c, node: node, iface: iface, subject: subject}
				a, err := w.answer(ctx)
				if err != nil {
					return nil, err
				}
				all = append(all, a)
			}
			return all, nil
		}, writeEach[whyAnswer]),
	}
	c.Flags().StringVarP(&file, "filename", "f", "", "file with pods or objects that make pods; - reads the standard input")
	c.Flags().StringVar(&node, "node", "", "ask for a pod on this node only")
	c.Flags().StringVar(&iface, "interface", "", "ask for this interface only")
	return c
}

// subject is a pod, or a pod that an object would make.
type subject struct {
	pod ipam.Pod
	// node is the pod's node, if it has one.
	node string
	// application is the application of the pod. It is nil if it is to be found by the pod's owner.
	application *v1alpha1.Application
	object      *podview.Pod
	// replicas is the number of pods that a StatefulSet of a file would make, otherwise 0.
	replicas int64
}

func live(ctx context.Context, c *cluster.Cluster, namespace, name string) ([]subject, error) {
	pod := &podview.Pod{}
	if err := c.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, pod); err != nil {
		return nil, fmt.Errorf("read pod %s/%s: %w", namespace, name, err)
	}
	s := subject{
		pod:  ipam.Pod{Namespace: namespace, Name: name, Labels: pod.Labels, Annotations: pod.Annotations},
		node: pod.Spec.NodeName, object: pod,
	}
	s.pod.Ordinal, s.pod.Shares = owner.PlaceOf(pod)
	ref, _ := owner.Of(pod)
	s.pod.OwnerKind, s.pod.OwnerName = ref.Kind, ref.Name
	return []subject{s}, nil
}

func (w *whyFor) answer(ctx context.Context) (whyAnswer, error) {
	name := w.subject.pod.Namespace + "/" + w.subject.pod.Name
	a := whyAnswer{Pod: name, Has: []place{}, Choices: []whyChoice{}, Events: []moment{}}
	leases, err := leasesOf(ctx, w.c, "spec.holder.namespace", w.subject.pod.Namespace)
	if err != nil {
		return a, err
	}
	for i := range leases {
		if leases[i].Spec.Holder.Pod == w.subject.pod.Name {
			a.Has = append(a.Has, placeOf(&leases[i]))
		}
	}
	if err := w.read(ctx); errors.Is(err, errNoInterface) {
		a.Error = err.Error()
	} else if err != nil {
		return a, err
	}
	for _, at := range w.interfaces {
		for _, node := range w.nodes {
			c := w.choose(at, node)
			last := len(a.Choices) - 1
			if last >= 0 && a.Choices[last].Interface == c.Interface && a.Choices[last].Error == c.Error && reflect.DeepEqual(a.Choices[last].Pools, c.Pools) {
				a.Choices[last].Nodes = append(a.Choices[last].Nodes, node.Name)
				continue
			}
			a.Choices = append(a.Choices, c)
		}
	}
	a.Affinity = placing(a.Choices, w.pools)
	if pod := w.subject.object; pod != nil {
		a.Events, err = eventsOf(ctx, w.c, pod.Namespace, pod.Name, func(e *eventsv1.Event) bool {
			return e.Regarding.UID == pod.UID && strings.HasPrefix(e.ReportingController, "fenceline-")
		})
	}
	return a, err
}

// choose applies the rules of ADD to one interface on one node.
func (w *whyFor) choose(at attached, node corev1.Node) whyChoice {
	req := w.request
	req.NodeName, req.NodeLabels = node.Name, node.Labels
	req.Interface, req.ConfigPools, req.Earlier = at.name, at.pools, at.earlier
	c := whyChoice{Interface: at.name, Nodes: []string{node.Name}, Pools: []whyPool{}}
	choice, err := ipam.ChoosePools(req, w.pools, w.reserved)
	for ordinal := int64(1); err == nil && ordinal < w.subject.replicas; ordinal++ { // each may choose an address
		req.Pod.Name, req.Pod.Ordinal = fmt.Sprintf("%s-%d", w.request.Application.Name, ordinal), &ordinal
		_, err = ipam.ChoosePools(req, w.pools, w.reserved)
	}
	reject := func(rejected []ipam.Rejection) {
		for _, r := range rejected {
			c.Pools = append(c.Pools, whyPool{Pool: r.Pool, Why: r.Detail})
		}
	}
	if err != nil {
		c.Error = err.Error()
		for _, none := range ipam.NoPools(err) {
			reject(none.Rejected)
		}
		return c
	}
	for _, f := range choice.Families {
		var names []string
		for _, p := range f.Pools {
			c.Pools = append(c.Pools, serving(p, f.Source))
			names = append(names, p.Pool.Name)
		}
		c.families = append(c.families, names)
		reject(f.Rejected)
	}
	return c
}

// serving describes a pool that may serve the interface.
func serving(c ipam.Candidate, source string) whyPool {
	if c.Closed != nil {
		return whyPool{Pool: c.Pool.Name, Why: c.Closed.Detail}
	}
	st := &c.Pool.Status
	p := whyPool{Pool: c.Pool.Name, Serves: true, Full: len(c.Only) == 0 && st.Free == 0 && st.ObservedGeneration > 0}
	p.Why = fmt.Sprintf("%s, named by %s; %d of %d addresses are free", c.Subnet, source, st.Free, st.Total)
	if p.Full {
		p.Why = fmt.Sprintf("%s, named by %s; it is full: %d Bound, %d Warm, %d Retained, %d Quarantined",
			c.Subnet, source, st.Bound, st.Warm, st.Retained, st.Quarantined)
	}
	if len(c.Only) > 0 {
		p.Why += fmt.Sprintf("; the interface wants %s", strings.Trim(fmt.Sprint(c.Only), "[]"))
	}
	return p
}

func (a whyAnswer) write(w paper) {
	fmt.Fprintf(w, "Pod %s\n", a.Pod)
	for _, l := range a.Has {
		fmt.Fprintf(w, "  has %s (%s) on interface %s, node %s\n", l.Address, l.State, cmp.Or(l.Interface, "unknown"), cmp.Or(l.Node, "unknown"))
	}
	if a.Error != "" {
		w.say("  ", 2, a.Error)
	}
	for _, c := range a.Choices {
		fmt.Fprintf(w, "\nInterface %s on %s:\n", c.Interface, fault.Nodes(c.Nodes))
		var rows [][]string
		for _, p := range c.Pools {
			serves := "no"
			if p.Full {
				serves = "full"
			} else if p.Serves {
				serves = "yes"
			}
			rows = append(rows, []string{"  " + p.Pool, serves, p.Why})
		}
		if len(rows) > 0 {
			w.table([]string{"  POOL", "SERVES", "WHY"}, rows)
		}
		if c.Error != "" {
			w.say("  ", 4, "No address: "+c.Error)
		}
	}
	writePlacing(w, a.Affinity)
	if len(a.Events) > 0 {
		fmt.Fprintln(w, "\nEvents of the pod:")
		var rows [][]string
		for _, e := range a.Events {
			rows = append(rows, []string{"  " + e.Kind, e.Source, e.Text})
		}
		w.table([]string{"  REASON", "BY", "NOTE"}, rows)
	}
}
