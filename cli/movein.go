// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fenceline/fenceline/agent/ipam"
	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/cli/cluster"
	"github.com/fenceline/fenceline/cli/movein"
	"github.com/fenceline/fenceline/controller/podview"
)

// errBlocked makes the exit code 1 if something blocks a move.
var errBlocked = errors.New("something blocks the move")

// Kinds of other projects.
var (
	definitions        = schema.GroupVersionKind{Group: "k8s.cni.cncf.io", Version: "v1", Kind: "NetworkAttachmentDefinition"}
	whereaboutsRecords = schema.GroupVersionKind{Group: "whereabouts.cni.cncf.io", Version: "v1alpha1", Kind: "IPPool"}
	nodeSlices         = schema.GroupVersionKind{Group: "whereabouts.cni.cncf.io", Version: "v1alpha1", Kind: "NodeSlicePool"}
	reservations       = schema.GroupVersionKind{Group: "whereabouts.cni.cncf.io", Version: "v1alpha1", Kind: "OverlappingRangeIPReservation"}
)

// steps are the commands of the steps of a move, in or out.
type steps struct {
	*cobra.Command
	s *session
	// sources are the other IPAMs.
	sources []v1alpha1.MoveSource
	// refused has why another IPAM is none of them, as the end of a sentence.
	refused       map[v1alpha1.MoveSource]string
	out, takeOver bool
	settle        time.Duration
	// recordsIn is the namespace of whereabouts' records, or empty.
	recordsIn string
}

// step adds the command of one step. do gets a mover that has read the cluster.
func (k *steps) step(use, short, long string, do func(context.Context, *mover) error) *cobra.Command {
	names := strings.Trim(strings.ReplaceAll(fmt.Sprint(k.sources), " ", "|"), "[]")
	one := &cobra.Command{
		Use: use + " " + names + " NAMESPACE/NETWORK", Short: short, Long: short + ".\n\n" + long, Args: cobra.ExactArgs(2),
		Example: "  kubectl fenceline " + k.Name() + " " + use + " whereabouts shop/vlan100",
		RunE: func(c *cobra.Command, args []string) error {
			from := v1alpha1.MoveSource(args[0])
			if !slices.Contains(k.sources, from) {
				return fmt.Errorf("%q is no IPAM of a %s: want %s%s", from, k.Name(), names, k.refused[from])
			}
			cl, err := k.s.open()
			if err != nil {
				return err
			}
			m := &mover{s: k.s, c: cl, from: from, network: args[1], who: whoami(), settle: k.settle, out: k.out, recordsIn: k.recordsIn}
			if err := m.read(c.Context()); err != nil {
				return err
			}
			return do(c.Context(), m)
		},
	}
	if use != "plan" && use != "status" {
		one.Flags().BoolVar(&k.takeOver, "take-over", false, "go on with the move of another person")
		one.Flags().DurationVar(&k.settle, "settle", 3*time.Second, "how long an ADD may take that has begun; pods that start on the network wait meanwhile")
	}
	k.AddCommand(one)
	return one
}

// writes checks before a step that the person may take it.
func (k *steps) writes(do func(context.Context, *mover) error) func(context.Context, *mover) error {
	return func(ctx context.Context, m *mover) error {
		if err := errors.Join(m.mine(k.takeOver), m.may(ctx)); err != nil {
			return err
		}
		return do(ctx, m)
	}
}

// report shows the state of the move.
func (k *steps) report(ctx context.Context, m *mover) error {
	if err := m.read(ctx); err != nil {
		return err
	}
	if m.move == nil {
		return fmt.Errorf("there is no move of %s", m.network)
	}
	state := m.state()
	return k.s.print(state, state.write)
}

func (s *session) moveIn() *cobra.Command {
	k := &steps{s: s, sources: []v1alpha1.MoveSource{v1alpha1.MoveWhereabouts, v1alpha1.MoveHostLocal, v1alpha1.MoveSpiderpool}, Command: &cobra.Command{Use: "move-in", Short: "Move a network from another IPAM to Fenceline, while its pods run"}}
	k.step("plan", "Show what a move would make and change, and what blocks it", planned, func(_ context.Context, m *mover) error {
		var answer any = m.plan
		if s.output == "yaml" {
			answer = objectsOf(m.plan)
		}
		err := s.print(answer, func(p paper) { writePlan(p, m.network, m.plan) })
		if err == nil && len(m.plan.Blocks) > 0 {
			err = errBlocked
		}
		return err
	})
	k.step("start", "Freeze the other IPAM, adopt the running pods, and switch the network to Fenceline", started, k.writes(func(ctx context.Context, m *mover) error {
		if err := m.start(ctx); err != nil {
			return err
		}
		return k.report(ctx, m)
	}))
	k.step("status", "Show what is adopted, what is held and why, and what to do", "Only reads. With -o json, it prints the texts of each definition too.", k.report)
	k.step("back", "Undo the move: the pods run on under the other IPAM", wentBack, k.writes(func(ctx context.Context, m *mover) error { return m.back(ctx) }))
	k.step("finish", "End a move that is done", "Refuses while an address is held, a definition is not switched, or the other IPAM gives addresses of the network.",
		k.writes(func(ctx context.Context, m *mover) error { return m.finish(ctx) }))
	return k.Command
}

const (
	planned = `NETWORK is a NetworkAttachmentDefinition whose IPAM is the named one. The plan only reads: definitions,
records of the other IPAM, pods and pools. With -o yaml it prints the pools and the switched definitions, for Git. The
pools are disabled: enable them only after the other IPAM gives no address of theirs. With -o json it prints also each
address in use, and the definitions that keep the other IPAM from giving addresses. The exit code is 1 if something
blocks. The records of host-local are files on the nodes: the agents read them, if the chart has moveIn.hostLocalDir.`
	started = `No running pod is touched, and no address is free in both IPAMs: the other one is kept from giving any first, then
the addresses in use are held and their pods adopted, then the pools open, and the definitions change. Pods that start
meanwhile wait some seconds. Progress is stored in a Move: a command that was killed is repeated. The other IPAM keeps
the records of the adopted pods.`
	wentBack = `Guards and leases of the adopted pods go, and the definitions are as before. Addresses that Fenceline has given
meanwhile stay excluded in the other IPAM until their leases end: then repeat the command.`
)

// readMove reads what a plan is made of, but for the NodeSlicePools.
func readMove(ctx context.Context, c *cluster.Cluster, from v1alpha1.MoveSource, network string) (movein.Facts, error) {
	f := movein.Facts{From: from, Network: network}
	var pools v1alpha1.IPPoolList
	var pods podview.PodList
	if err := errors.Join(c.List(ctx, &pools), c.List(ctx, &pods)); err != nil {
		return f, fmt.Errorf("list pools and pods: %w", err)
	}
	f.Pools = pools.Items
	for i := range pods.Items {
		f.Pods = append(f.Pods, podOf(&pods.Items[i]))
	}
	all, err := listOf(ctx, c, definitions)
	if err != nil {
		return f, err
	}
	for i := range all.Items {
		d := &all.Items[i]
		config, _, _ := unstructured.NestedString(d.Object, "spec", "config")
		f.Definitions = append(f.Definitions, movein.Definition{Namespace: d.GetNamespace(), Name: d.GetName(), Config: config, Owner: ownerOf(d)})
	}
	if from == v1alpha1.MoveSpiderpool {
		f.Spiderpool, err = readSpiderpool(ctx, c)
	}
	if from != v1alpha1.MoveWhereabouts {
		return f, err
	}
	if all, err = listOf(ctx, c, whereaboutsRecords); err != nil {
		return f, err
	}
	for i := range all.Items {
		if in := all.Items[i].GetNamespace(); !slices.Contains(f.RecordsIn, in) {
			f.RecordsIn = append(f.RecordsIn, in)
		}
		var said struct {
			Spec struct {
				Range       string                       `json:"range"`
				Allocations map[string]movein.Allocation `json:"allocations"`
			} `json:"spec"`
		}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(all.Items[i].Object, &said); err != nil {
			return f, fmt.Errorf("read the records %s of whereabouts: %w", all.Items[i].GetName(), err)
		}
		f.Records = append(f.Records, movein.Records{Name: all.Items[i].GetName(), Range: said.Spec.Range, Allocations: said.Spec.Allocations, Namespace: all.Items[i].GetNamespace()})
	}
	return f, nil
}

// readSlices reads the NodeSlicePools of whereabouts.
func readSlices(ctx context.Context, c *cluster.Cluster) (found []movein.NodeSlices, err error) {
	all, err := listOf(ctx, c, nodeSlices)
	if meta.IsNoMatchError(err) { // older versions have none
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	for i := range all.Items {
		var said struct {
			Spec   struct{ Range, SliceSize string }
			Status struct{ Allocations []movein.NodeSlice }
		}
		text, err := all.Items[i].MarshalJSON()
		if err == nil {
			err = json.Unmarshal(text, &said)
		}
		if err != nil {
			return nil, fmt.Errorf("read NodeSlicePool %s of whereabouts: %w", all.Items[i].GetName(), err)
		}
		found = append(found, movein.NodeSlices{Namespace: all.Items[i].GetNamespace(), Name: all.Items[i].GetName(), Range: said.Spec.Range, Size: said.Spec.SliceSize, Slices: said.Status.Allocations})
	}
	return found, nil
}

func listOf(ctx context.Context, c *cluster.Cluster, kind schema.GroupVersionKind) (*unstructured.UnstructuredList, error) {
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(kind.GroupVersion().WithKind(kind.Kind + "List"))
	err := c.List(ctx, list)
	if meta.IsNoMatchError(err) {
		return nil, fmt.Errorf("the API server does not serve %s of %s: is the other IPAM installed, and is this its version? (%w)", kind.Kind, kind.GroupVersion(), err)
	}
	if err != nil {
		return nil, fmt.Errorf("list %s of %s: %w", kind.Kind, kind.Group, err)
	}
	return list, nil
}

// podOf returns a pod with the interfaces that Multus has written into its annotation. Whoever may edit the pod may
// write nonsense there, which then names no address.
func podOf(p *podview.Pod) movein.Pod {
	pod := movein.Pod{Namespace: p.Namespace, Name: p.Name, UID: string(p.UID), Node: p.Spec.NodeName, Finished: p.IsFinished(), Ending: p.DeletionTimestamp != nil}
	pod.OwnerKind, pod.OwnerName = "Pod", p.Name
	if owner := metav1.GetControllerOf(p); owner != nil {
		pod.OwnerKind, pod.OwnerName = owner.Kind, owner.Name
		pod.IsStateful = owner.Kind == "StatefulSet" && owner.APIVersion == "apps/v1"
		name, hash := strings.CutSuffix(owner.Name, "-"+p.Labels["pod-template-hash"])
		if owner.Kind == "ReplicaSet" && hash {
			pod.OwnerKind, pod.OwnerName = "Deployment", name
		}
	}
	pod.Named = movein.Named(p.Annotations)
	said, _ := ipam.NetworkStatus(p.Annotations)
	for _, one := range said {
		i := movein.Interface{Network: one.Name, Interface: one.Interface, MAC: one.MAC}
		for _, text := range one.IPs {
			if addr, err := netip.ParseAddr(text); err == nil {
				i.IPs = append(i.IPs, addr)
			}
		}
		pod.Interfaces = append(pod.Interfaces, i)
	}
	return pod
}

// ownerOf returns the program that would undo an edit of an object, or an empty text.
func ownerOf(o metav1.Object) string {
	for key, owner := range map[string]string{
		"argocd.argoproj.io/tracking-id": "Argo CD", "meta.helm.sh/release-name": "a Helm release",
	} {
		if o.GetAnnotations()[key] != "" {
			return owner
		}
	}
	for _, key := range []string{"kustomize.toolkit.fluxcd.io/name", "helm.toolkit.fluxcd.io/name"} {
		if o.GetLabels()[key] != "" {
			return "Flux"
		}
	}
	for _, owner := range o.GetOwnerReferences() {
		return owner.Kind + " " + owner.Name
	}
	return ""
}

// objectsOf returns the objects that a move makes or changes.
func objectsOf(plan movein.Plan) any {
	items := []any{}
	for _, pool := range plan.Pools {
		items = append(items, map[string]any{
			"apiVersion": pool.APIVersion, "kind": pool.Kind, "metadata": map[string]string{"name": pool.Name}, "spec": pool.Spec,
		})
	}
	for _, subnet := range plan.Subnets {
		items = append(items, map[string]any{
			"apiVersion": subnet.APIVersion, "kind": subnet.Kind, "metadata": map[string]string{"name": subnet.Name}, "spec": subnet.Spec,
		})
	}
	for _, change := range plan.Changes {
		items = append(items, map[string]any{
			"apiVersion": definitions.GroupVersion().String(), "kind": definitions.Kind,
			"metadata": map[string]string{"namespace": change.Namespace, "name": change.Name}, "spec": map[string]string{"config": change.Switched},
		})
	}
	return map[string]any{"apiVersion": "v1", "kind": "List", "items": items}
}

func writePlan(w paper, network string, plan movein.Plan) {
	held := plan.Held()
	fmt.Fprintf(w, "Network %s. Pools: %d. Addresses in use: %d, of which to adopt: %d, to hold: %d.\n",
		network, len(plan.Pools), len(plan.Records), len(plan.Records)-held, held)
	for _, pool := range plan.Pools {
		w.about("32", "pool "+pool.Name, fmt.Sprintf("subnet %s, ips %v, excludeIPs %v, parents %v", pool.Spec.Subnet, pool.Spec.IPs, pool.Spec.ExcludeIPs, pool.Spec.Parents))
	}
	for _, change := range plan.Changes {
		w.about("32", "definition "+change.Namespace+"/"+change.Name, "changes as -o yaml shows")
	}
	writeNotes(w, plan)
	writeRecords(w, plan.Records, "is adopted")
}

func writeNotes(w paper, plan movein.Plan) {
	for _, note := range plan.Notes {
		w.about("33", "Note", note)
	}
	for _, block := range plan.Blocks {
		w.about("31", "Blocked", block)
	}
}

// writeRecords prints addresses. moves is what becomes of those that are not held.
func writeRecords(w paper, records []v1alpha1.MoveRecord, moves string) {
	if len(records) == 0 {
		return
	}
	var rows [][]string
	for _, r := range records {
		rows = append(rows, []string{r.Address, r.Namespace + "/" + r.Pod, r.Interface, r.Node, cmp.Or(r.Hold, moves)})
	}
	fmt.Fprintln(w)
	w.table([]string{"ADDRESS", "POD", "INTERFACE", "NODE", "WHAT"}, rows)
}
