// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/test/capture"
	"github.com/fenceline/fenceline/test/cluster"
)

// nameCount is how many pods the StatefulSet has.
const nameCount = 3

// namesakes are the pods of a StatefulSet, and the address that each name has had
// first.
type namesakes struct {
	*act
	had map[string]netip.Addr
}

// playNames: the pods of a StatefulSet have the same addresses after an update and
// on another node. After a scale-in they are kept as the template says, which may
// be changed later, and end when their leases are deleted. A template that names
// another pool moves them there; nothing else does while their pool serves their node.
func playNames(ctx context.Context, a *act) error {
	n := &namesakes{act: a, had: map[string]netip.Addr{}}
	if err := n.stage(ctx); err != nil {
		return err
	}
	w, err := a.watch(n.first()...)
	if err != nil {
		return err
	}
	for _, step := range []func(context.Context) error{n.update, n.reschedule, n.scaleInAndOut, n.giveUp, n.move, n.redirect} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	frames := w.capture.Frames()
	if err := takeTurns(frames, a.addresses()); err != nil {
		return err
	}
	holders := 0
	for _, addr := range n.first() {
		holders += len(capture.Speakers(frames, addr))
	}
	if holders <= 2*nameCount {
		return fmt.Errorf("%d addresses had %d speakers, so nothing was shown", nameCount, holders)
	}
	a.figures.add("speakers for the addresses, one after the other", holders)
	a.story.Say("%d addresses had %d speakers, one at a time.", nameCount, holders)
	return nil
}

// stage makes the StatefulSet, in a pool with room for other addresses than the
// first ones.
func (n *namesakes) stage(ctx context.Context) error {
	if err := n.makePool(ctx, 4*nameCount, nil); err != nil {
		return err
	}
	set := &appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: n.namespace, Name: workload},
		Spec: appsv1.StatefulSetSpec{
			Replicas: ptr.To[int32](nameCount), Selector: selector(), Template: n.template(selector().MatchLabels),
			PodManagementPolicy: appsv1.ParallelPodManagement,
		},
	}
	if err := n.api.Create(ctx, set); err != nil {
		return fmt.Errorf("make a StatefulSet: %w", err)
	}
	pods, err := n.settled(ctx, nameCount)
	if err != nil {
		return err
	}
	for _, p := range pods {
		n.had[p.Name] = addressOf(p)
		n.story.Say("Pod %s has %s, on %s.", p.Name, addressOf(p), p.Node.Name())
	}
	return nil
}

// update replaces all pods, by ones whose addresses are to be kept.
func (n *namesakes) update(ctx context.Context) error {
	began := time.Now()
	if err := n.edit(ctx, `{"spec":{"template":{"metadata":{"annotations":{%q:"true"}}}}}`, staticIP); err != nil {
		return err
	}
	if _, err := n.settled(ctx, nameCount); err != nil {
		return err
	}
	n.figures.add(fmt.Sprintf("update of %d pods", nameCount), time.Since(began))
	n.story.Say("The template got the annotation static-ip, so all pods were replaced. Each new pod has the address of its name.")
	return nil
}

const staticIP = v1alpha1.AnnotationPrefix + v1alpha1.AnnotationStaticIP

// reschedule has a pod start again on another node.
func (n *namesakes) reschedule(ctx context.Context) error {
	const name = workload + "-0"
	first, err := n.running(ctx, 1, func(p *corev1.Pod) bool { return p.Name == name })
	if err != nil {
		return err
	}
	node := first[0].Node
	n.after("uncordon "+node.Name(), func(ctx context.Context) error { return n.cordon(ctx, node, false) })
	if err := n.cordon(ctx, node, true); err != nil {
		return err
	}
	if err := n.deletePod(ctx, first[0], false); err != nil {
		return err
	}
	next, err := n.running(ctx, 1, func(p *corev1.Pod) bool { return p.Name == name && string(p.UID) != first[0].UID })
	if err != nil {
		return err
	}
	if next[0].Node.Name() == node.Name() {
		return fmt.Errorf("pod %s is on %s again, which is cordoned", name, node.Name())
	}
	if _, err := n.settled(ctx, nameCount); err != nil {
		return err
	}
	n.story.Say("%s is cordoned, and %s is deleted. It starts on %s, with the same address.", node.Name(), name, next[0].Node.Name())
	return n.cordon(ctx, node, false)
}

// scaleInAndOut: addresses that are to be kept are there when the pods come back.
func (n *namesakes) scaleInAndOut(ctx context.Context) error {
	if err := n.scaleIn(ctx); err != nil {
		return err
	}
	if err := n.show(ctx, "get", "fllease", "--field-selector", "spec.state=Retained"); err != nil {
		return err
	}
	if err := n.edit(ctx, `{"spec":{"replicas":%d}}`, nameCount); err != nil {
		return err
	}
	if _, err := n.settled(ctx, nameCount); err != nil {
		return err
	}
	n.story.Say("After a scale-in, the addresses of the removed pods are Retained. After a scale-out, the pods have them again.")
	return nil
}

// scaleIn leaves one pod. The addresses of the others are listed and counted.
func (n *namesakes) scaleIn(ctx context.Context) error {
	if err := n.edit(ctx, `{"spec":{"replicas":1}}`); err != nil {
		return err
	}
	if _, err := n.settled(ctx, 1); err != nil {
		return err
	}
	return n.areRetained(ctx, 1, 2)
}

// giveUp frees one address by the deletion of its lease, another one by a change
// of the template.
func (n *namesakes) giveUp(ctx context.Context) error {
	if err := n.scaleIn(ctx); err != nil {
		return err
	}
	if _, err := n.Kubectl(ctx, "delete", "fllease", n.had[workload+"-2"].String()); err != nil {
		return err
	}
	if err := n.areRetained(ctx, 1); err != nil {
		return err
	}
	if err := n.edit(ctx, `{"spec":{"template":{"metadata":{"annotations":{%q:null}}}}}`, staticIP); err != nil {
		return err
	}
	if err := n.areRetained(ctx); err != nil {
		return err
	}
	n.story.Say("After another scale-in, one lease is deleted by hand, and the annotation is removed. Both addresses are free.")
	_, err := n.settled(ctx, 1)
	return err
}

// settled waits until the StatefulSet has so many pods, all of the present
// template, and returns them. Each has the address of its name.
func (n *namesakes) settled(ctx context.Context, count int) ([]*cluster.Pod, error) {
	err := eventually(ctx, podLimit, fmt.Sprintf("%d pods of the present template", count), func(ctx context.Context) error {
		set := &appsv1.StatefulSet{}
		if err := n.api.Get(ctx, client.ObjectKey{Namespace: n.namespace, Name: workload}, set); err != nil {
			return err
		}
		s, want := &set.Status, int32(count)
		if s.ObservedGeneration < set.Generation || s.Replicas != want || s.UpdatedReplicas != want || s.ReadyReplicas != want {
			return fmt.Errorf("of %d pods %d are new and %d Ready", s.Replicas, s.UpdatedReplicas, s.ReadyReplicas)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	pods, err := n.running(ctx, count, everyPod)
	if err != nil {
		return nil, err
	}
	for _, p := range pods {
		if had, ok := n.had[p.Name]; ok && had != addressOf(p) {
			return nil, fmt.Errorf("pod %s had %s and has %s", p.Name, had, addressOf(p))
		}
		if err := n.boundTo(ctx, addressOf(p), p.UID); err != nil {
			return nil, fmt.Errorf("pod %s has %s: %w", p.Name, addressOf(p), err)
		}
	}
	return pods, nil
}

// areRetained waits until exactly the addresses of these ordinals are kept for
// pods that are not there, by the leases and by the pool's status.
func (n *namesakes) areRetained(ctx context.Context, ordinals ...int) error {
	var want []string
	for _, ordinal := range ordinals {
		name := fmt.Sprintf("%s-%d", workload, ordinal)
		want = append(want, name+" "+n.had[name].String())
	}
	return eventually(ctx, eventLimit, fmt.Sprintf("Retained leases of %q", want), func(ctx context.Context) error {
		leases, err := n.leases(ctx, n.namespace)
		if err != nil {
			return err
		}
		var kept []string
		for _, l := range leases {
			if l.Spec.State == v1alpha1.StateRetained {
				kept = append(kept, l.Spec.Holder.Pod+" "+l.Spec.Address)
			}
		}
		slices.Sort(kept)
		pool := &v1alpha1.IPPool{}
		if err := n.api.Get(ctx, client.ObjectKey{Name: n.namespace}, pool); err != nil {
			return err
		}
		if !slices.Equal(kept, want) || pool.Status.Retained != int64(len(want)) {
			return fmt.Errorf("there are %s, and the pool counts %d", brief(leases), pool.Status.Retained)
		}
		return nil
	})
}

// edit changes the StatefulSet by a merge patch.
func (n *namesakes) edit(ctx context.Context, format string, args ...any) error {
	set := &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Namespace: n.namespace, Name: workload}}
	patch := fmt.Sprintf(format, args...)
	if err := n.api.Patch(ctx, set, client.RawPatch(types.MergePatchType, []byte(patch))); err != nil {
		return fmt.Errorf("change the StatefulSet by %s: %w", patch, err)
	}
	return nil
}

// first are the addresses that the names have had first.
func (n *namesakes) first() []netip.Addr {
	var all []netip.Addr
	for ordinal := range nameCount {
		all = append(all, n.had[fmt.Sprintf("%s-%d", workload, ordinal)])
	}
	return all
}

// cordon keeps new pods off a node, or lets them come again.
func (a *act) cordon(ctx context.Context, node *cluster.Node, cordoned bool) error {
	object := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node.Name()}}
	patch := client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"spec":{"unschedulable":%t}}`, cordoned))
	if err := a.api.Patch(ctx, object, patch); err != nil {
		return fmt.Errorf("cordon %s: %w", node.Name(), err)
	}
	return nil
}
