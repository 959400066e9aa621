// SPDX-License-Identifier: Apache-2.0

package move

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/controller/podview"
	"github.com/fenceline/fenceline/internal/poolset"
)

// lookEvery is the time between two looks at objects of other projects. Nobody watches them, since their kinds need not
// exist.
const lookEvery = 30 * time.Second

// Kinds of other projects.
var (
	definitions  = schema.GroupVersionKind{Group: "k8s.cni.cncf.io", Version: "v1", Kind: "NetworkAttachmentDefinition"}
	whereabouts  = schema.GroupVersionKind{Group: "whereabouts.cni.cncf.io", Version: "v1alpha1", Kind: "IPPool"}
	reservations = schema.GroupVersionKind{Group: "spiderpool.spidernet.io", Version: "v2beta1", Kind: "SpiderReservedIP"}
)

// isJudged reports whether a step of a move says what the definitions have to be. In the others, a command writes them,
// or they exclude what only the command knows.
func isJudged(s *v1alpha1.MoveSpec) bool {
	return s.Out && s.Step == v1alpha1.MoveBack || !s.Out && (s.Step == v1alpha1.MoveAdopt || s.Step == v1alpha1.MoveOpen)
}

// found is what a look has found in the cluster.
type found struct {
	// configs are the definitions of the move as they are, in its order; "" for one that does not exist.
	configs []string
	// reserved are the addresses of the SpiderReservedIPs of the move, and leased those with leases in its pools, if it is a
	// move out.
	reserved []string
	leased   poolset.Set
	// records are those of whereabouts, and unread is why they are not read.
	records []records
	unread  error
	// isOn reports whether a pod is on a node.
	isOn func(pod, node string) bool
}

// listing is what the last list of whereabouts' records has found for a generation of a move, with the nodes of pods that
// they name.
type listing struct {
	of      string
	at      time.Time
	records []records
	nodes   map[string]string
	err     error
}

// reverted tells what of a move was undone by others, and what came of it, as a reason and a message; two empty texts
// if nothing was.
func reverted(m *v1alpha1.Move, pools []v1alpha1.IPPool, is found) (reason, message string) {
	s, command := &m.Spec, "move-in"
	if s.Out {
		command = "move-out"
	}
	repeat := fmt.Sprintf(". Repeat `kubectl fenceline %s start %s %s`", command, s.From, s.Network)
	var said, all []string
	say := func(why, format string, what []string) {
		if len(what) > 0 {
			reason, said = cmp.Or(reason, why), append(said, fmt.Sprintf(format, strings.Join(what[:min(few, len(what))], ", ")))
		}
	}
	for i, d := range s.Definitions {
		isBack := v1alpha1.SameConfig(is.configs[i], d.Config)
		if s.Out {
			isBack = serves(is.configs[i], "fenceline")
		}
		if isBack {
			all = append(all, d.Namespace+"/"+d.Name)
		}
	}
	say(v1alpha1.ReasonDefinitionReverted, "others have written the old text into %s", all)
	frozen := is.leased
	for i := range pools {
		if set, _ := poolset.Addresses(&pools[i]); !s.Out { // which reserves only what leases have left
			frozen = frozen.Plus(set)
		}
	}
	if s.From == v1alpha1.MoveSpiderpool {
		reserved, _ := poolset.Parse(is.reserved)
		say(v1alpha1.ReasonFreezeRemoved, "no SpiderReservedIP of the move has %s", frozen.Minus(reserved).Entries())
	}
	say(v1alpha1.ReasonNewRecord, "since the start, whereabouts has given %s, which have to restart then", given(s, frozen, is.records, is.isOn))
	if reason == "" {
		return "", ""
	}
	if is.unread != nil {
		said = append(said, fmt.Sprintf("records unread: %v", is.unread))
	}
	return reason, strings.Join(said, "; ") + repeat
}

// few is how many definitions, ranges or addresses a message names.
const few = 10

// serves reports whether an IPAM serves a configuration.
func serves(config, name string) bool {
	return slices.ContainsFunc(ipams(config), func(i ipam) bool { return i.Type == name })
}

// judge returns the condition that tells whether others undo a move.
func (r *Reconciler) judge(ctx context.Context, m *v1alpha1.Move, pools []v1alpha1.IPPool) metav1.Condition {
	c := metav1.Condition{
		Type: v1alpha1.ConditionReverted, Status: metav1.ConditionFalse, Reason: "None",
		ObservedGeneration: m.Generation, LastTransitionTime: metav1.NewTime(r.Clock.Now()),
	}
	if !isJudged(&m.Spec) {
		delete(r.listed, m.Name)
		return c
	}
	is, err := r.find(ctx, m)
	if err != nil {
		c.Status, c.Reason, c.Message = metav1.ConditionUnknown, "Unread", err.Error()
		return c
	}
	if reason, message := reverted(m, pools, is); reason != "" {
		c.Status, c.Reason, c.Message = metav1.ConditionTrue, reason, message
	} else if is.unread != nil {
		c.Status, c.Reason, c.Message = metav1.ConditionUnknown, "Unread", is.unread.Error()
	}
	return c
}

// isSure reports whether a verdict counts. One that a SpiderReservedIP lacks has to be that of the look before too: the
// end of a move removes them just before the Move.
func (r *Reconciler) isSure(name, reason string) bool {
	was, lacks := r.lacking[name], reason == v1alpha1.ReasonFreezeRemoved
	r.lacking[name] = lacks
	return was || !lacks
}

// find looks at the definitions of a move, and at the SpiderReservedIPs or the records of the old IPAM.
func (r *Reconciler) find(ctx context.Context, m *v1alpha1.Move) (is found, err error) {
	read := func(kind schema.GroupVersionKind, namespace, name string) map[string]any {
		o := &unstructured.Unstructured{}
		o.SetGroupVersionKind(kind)
		failed := r.Live.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, o)
		if failed != nil && !apierrors.IsNotFound(failed) && !meta.IsNoMatchError(failed) {
			err = fmt.Errorf("read %s %s: %w", kind.Kind, strings.TrimPrefix(namespace+"/"+name, "/"), failed)
		}
		return o.Object
	}
	for _, d := range m.Spec.Definitions {
		config, _, _ := unstructured.NestedString(read(definitions, d.Namespace, d.Name), "spec", "config")
		is.configs = append(is.configs, config)
	}
	if m.Spec.From == v1alpha1.MoveSpiderpool {
		for _, name := range v1alpha1.MoveReservations(m.Name) {
			ips, _, _ := unstructured.NestedStringSlice(read(reservations, "", name), "spec", "ips")
			is.reserved = append(is.reserved, ips...)
		}
	}
	if m.Spec.From == v1alpha1.MoveWhereabouts && !m.Spec.Out && err == nil {
		l := r.records(ctx, m)
		is.records, is.unread = l.records, l.err
		is.isOn = func(pod, node string) bool { return r.isOn(ctx, l.nodes, pod, node) }
	}
	if err != nil || m.Spec.From != v1alpha1.MoveSpiderpool || !m.Spec.Out {
		return is, err
	}
	var leased []netip.Addr
	for _, pool := range m.Spec.Pools { // after the SpiderReservedIPs: leases end before these shrink
		var all v1alpha1.IPLeaseList
		if err := r.Live.List(ctx, &all, client.MatchingFields{"spec.pool": pool}); err != nil {
			return is, fmt.Errorf("list the leases of pool %s: %w", pool, err)
		}
		for i := range all.Items {
			leased = append(leased, all.Items[i].Spec.Addr())
		}
	}
	is.leased = poolset.Of(leased...)
	return is, nil
}

// records returns those of whereabouts. They are all of the cluster, and a change of each lease of a move leads to a look:
// it lists them again after lookEvery, or if a command has edited the move.
func (r *Reconciler) records(ctx context.Context, m *v1alpha1.Move) listing {
	of, now := fmt.Sprint(m.UID, " ", m.Generation), r.Clock.Now()
	was, ok := r.listed[m.Name]
	if !ok || was.of != of || now.Sub(was.at) >= lookEvery {
		all, err := r.list(ctx)
		was = listing{of, now, all, map[string]string{}, err}
		r.listed[m.Name] = was
	}
	return was
}

// isOn reports whether a pod is on a node, by the nodes of pods that a look at the same records has read. If it cannot be
// read, it may be.
func (r *Reconciler) isOn(ctx context.Context, nodes map[string]string, name, node string) bool {
	if _, known := nodes[name]; !known {
		pod, key := &podview.Pod{}, client.ObjectKey{}
		key.Namespace, key.Name, _ = strings.Cut(name, "/")
		if err := r.Live.Get(ctx, key, pod); client.IgnoreNotFound(err) != nil {
			return true
		}
		nodes[name] = pod.Spec.NodeName
	}
	return nodes[name] == node
}

// list lists the records of whereabouts.
func (r *Reconciler) list(ctx context.Context) (all []records, err error) {
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(whereabouts)
	if err := r.Live.List(ctx, list); meta.IsNoMatchError(err) {
		return nil, nil
	} else if err != nil {
		return nil, fmt.Errorf("list the records of whereabouts: %w", err)
	}
	var read struct{ Items []records }
	text, err := list.MarshalJSON()
	if err == nil {
		err = json.Unmarshal(text, &read)
	}
	if err != nil {
		return nil, fmt.Errorf("read the records of whereabouts: %w", err)
	}
	return read.Items, nil
}
