// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/test/capture"
	"github.com/fenceline/fenceline/test/cluster"
)

// Sizes of playChosen.
const (
	chosenFew, chosenMany = 3, 50
	chosenRolls           = 10
)

// playChosen: the pods of a Deployment share the addresses of a list through rolling updates under traffic. Each pod
// of a StatefulSet has the address of its ordinal, also on another node, while its zombie runs on.
func playChosen(ctx context.Context, a *act) {
	a.makePool(ctx, chosenFew+chosenMany+5, nil)
	var addrs []netip.Addr
	for n := range chosenFew + chosenMany {
		addrs = append(addrs, a.address(firstHost+5+n)) // not the first ones of the pool
	}
	a.rollsChosen(ctx, addrs[:chosenFew])
	a.ordinalsChosen(ctx, addrs[chosenFew:])
}

// chosen is the annotation of a template.
func chosen(addrs []netip.Addr) map[string]string {
	text, _ := json.Marshal(addrs)
	return map[string]string{v1alpha1.AnnotationPrefix + "ips": string(text)}
}

// rollsChosen rolls a Deployment over whose pods share a list.
func (a *act) rollsChosen(ctx context.Context, addrs []netip.Addr) {
	template := a.template(selector().MatchLabels)
	template.Annotations = chosen(addrs)
	d := a.deployment()
	d.Spec = appsv1.DeploymentSpec{Replicas: ptr.To[int32](chosenFew), Selector: selector(), Template: template}
	// A pod more than addresses would wait for one for ever.
	d.Spec.Strategy.RollingUpdate = &appsv1.RollingUpdateDeployment{MaxSurge: ptr.To(intstr.FromInt32(0)), MaxUnavailable: ptr.To(intstr.FromInt32(1))}
	did(a.api.Create(ctx, d), "make a Deployment")
	have := func() []*cluster.Pod {
		pods := a.running(ctx, chosenFew, everyPod)
		var has []netip.Addr
		for _, p := range pods {
			has = append(has, addressOf(p))
		}
		slices.SortFunc(has, netip.Addr.Compare)
		must(slices.Equal(has, addrs), "the pods have %v, not %v", has, addrs)
		return pods
	}
	have()
	w := a.watchBy("roller", 249, a.record(), addrs...)
	w.pings.waitFor(ctx, 20)
	began := time.Now()
	for n := range chosenRolls {
		a.rollOut(ctx, a.deployment(), n)
		eventually(ctx, rollLimit, "the rolling update to end", func(ctx context.Context) { a.rolledOut(ctx, client.ObjectKeyFromObject(a.deployment())) })
		have()
	}
	for _, p := range have() {
		w.hears(ctx, p)
	}
	for _, addr := range addrs {
		flips, speakers := capture.Flips(w.capture.Frames(), addr), capture.Speakers(w.capture.Frames(), addr)
		must(flips == len(speakers)-1, "the speaker for %s changed %d times, among %d pods", addr, flips, len(speakers))
	}
	a.story.Say("A Deployment of %d with %d chosen addresses was rolled over %d times in %s. Its pods always had these, and each had one speaker at a time.",
		chosenFew, len(addrs), chosenRolls, round(time.Since(began)))
	a.patch(ctx, a.deployment(), `{"spec":{"replicas":0}}`)
	a.running(ctx, 0, everyPod)
}

// ordinalsChosen starts a StatefulSet with an address for each ordinal, and moves a pod off a node that is cut off.
func (a *act) ordinalsChosen(ctx context.Context, addrs []netip.Addr) {
	labels := map[string]string{"app": setLabel}
	template := a.template(labels)
	template.Annotations = chosen(addrs)
	began := time.Now()
	did(a.api.Create(ctx, &appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: a.namespace, Name: workload},
		Spec: appsv1.StatefulSetSpec{
			Replicas: ptr.To[int32](chosenMany), Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: template,
			PodManagementPolicy: appsv1.ParallelPodManagement,
		},
	}), "make a StatefulSet")
	var pods []*cluster.Pod
	eventually(ctx, 4*podLimit, "all ordinals", func(ctx context.Context) { pods = a.running(ctx, chosenMany, everyPod) })
	for _, p := range pods {
		ordinal := 0
		value(fmt.Sscanf(p.Name, workload+"-%d", &ordinal))
		must(addressOf(p) == addrs[ordinal], "pod %s has %s, not %s", p.Name, addressOf(p), addrs[ordinal])
	}
	a.story.Say("A StatefulSet of %d has the address of each ordinal, %s after it was made.", chosenMany, round(time.Since(began)))
	pod := podOn(a.victim(ctx), pods)
	z := a.zombieOf(ctx, pod)
	z.cutOff(ctx)
	a.deletePod(ctx, pod, true)
	next := z.passes(ctx)
	must(next.Name == pod.Name, "%s was the address of %s, and %s has it", z.addr, pod.Name, next.Name)
	z.comesHome(ctx, next)
}
