// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/test/cluster"
)

// edited is a namespace with a primary and a backup pool, and a pod that has an
// address of the primary one.
type edited struct {
	*act
	*witness
	primary, backup string
	pod             *cluster.Pod
	// uid is that of the pod's lease.
	uid types.UID
}

// playEdited: whatever is done to a pool, the pods that have its addresses keep
// them, also over a restart of their agent, and new ones are served from elsewhere.
func playEdited(ctx context.Context, a *act) error {
	e := &edited{act: a, primary: a.namespace + "-a", backup: a.namespace + "-b"}
	if err := e.stage(ctx); err != nil {
		return err
	}
	began := time.Now()
	if err := e.editPool(ctx, e.primary, func(s *v1alpha1.IPPoolSpec) { s.Disable = ptr.To(true) }); err != nil {
		return err
	}
	if err := e.serves(ctx, "disabled", e.backup, "The primary pool is disabled."); err != nil {
		return err
	}
	err := e.editPool(ctx, e.primary, func(s *v1alpha1.IPPoolSpec) {
		s.Disable, s.IPs = nil, a.ips(50, 2)
	})
	if err != nil {
		return err
	}
	outside, err := a.condition(ctx, e.primary, v1alpha1.ConditionOutside, metav1.ConditionTrue)
	if err != nil {
		return err
	}
	told := fmt.Sprintf("The pool is enabled again, with other addresses. Its condition Outside: %q", outside.Message)
	if err := e.serves(ctx, "narrowed", e.primary, told); err != nil {
		return err
	}
	if err := e.restartAgent(ctx); err != nil {
		return err
	}
	if err := a.api.Delete(ctx, &v1alpha1.IPPool{ObjectMeta: metav1.ObjectMeta{Name: e.primary}}); err != nil {
		return fmt.Errorf("delete pool %s: %w", e.primary, err)
	}
	if err := e.serves(ctx, "deleting", e.backup, "The primary pool is deleted, which waits for its leases."); err != nil {
		return err
	}
	if err := e.undisturbed(ctx, began); err != nil {
		return err
	}
	if err := a.nothingIsLeft(ctx, e.primary, e.backup); err != nil {
		return err
	}
	return eventually(ctx, eventLimit, "the end of pool "+e.primary, func(ctx context.Context) error {
		return a.isGone(ctx, &v1alpha1.IPPool{ObjectMeta: metav1.ObjectMeta{Name: e.primary}}, "no lease")
	})
}

// stage makes the pools, which only the namespace's annotation names, and the pod.
func (e *edited) stage(ctx context.Context) error {
	err := e.makeNamespace(ctx, map[string]string{
		v1alpha1.AnnotationPrefix + "default-ipv4-ippool": fmt.Sprintf("[%q,%q]", e.primary, e.backup),
	})
	if err != nil {
		return err
	}
	for name, ips := range map[string][]string{e.primary: e.ips(firstHost, 4), e.backup: e.ips(100, 4)} {
		if err := e.addPool(ctx, name, v1alpha1.IPPoolSpec{Subnet: underlay.String(), IPs: ips}); err != nil {
			return err
		}
	}
	if e.pod, err = e.runPod(ctx, "old", e.Node(1), patient); err != nil {
		return err
	}
	l, err := e.lease(ctx, addressOf(e.pod))
	if err != nil {
		return err
	}
	if l.Spec.Pool != e.primary {
		return fmt.Errorf("the namespace names %s first, and its first pod has an address of %s", e.primary, l.Spec.Pool)
	}
	e.uid = l.UID
	e.story.Say("The namespace names a primary and a backup pool. Pod old has %s from the primary pool.", addressOf(e.pod))
	if e.witness, err = e.watch(addressOf(e.pod)); err != nil {
		return err
	}
	return e.pings.waitFor(ctx, 20, time.Now())
}

// patient lets a pod stay for as long as Kubernetes does by itself where its node is not ready, which
// the node is while its agent is away or its network is uninstalled. Here that is two seconds.
func patient(pod *corev1.Pod) {
	pod.Spec.Tolerations = append(pod.Spec.Tolerations, corev1.Toleration{
		Key: corev1.TaintNodeNotReady, Operator: corev1.TolerationOpExists,
		Effect: corev1.TaintEffectNoExecute, TolerationSeconds: ptr.To[int64](300),
	})
}

// serves: a new pod beside the old one gets an address of that pool, as it is now.
func (e *edited) serves(ctx context.Context, name, pool, told string) error {
	e.story.Say("%s", told)
	pod, err := e.runPod(ctx, name, e.pod.Node, patient)
	if err != nil {
		return err
	}
	l, err := e.lease(ctx, addressOf(pod))
	if err != nil {
		return err
	}
	if l.Spec.Pool != pool {
		return fmt.Errorf("pod %s was to have an address of %s: %s is of %s", name, pool, l.Name, l.Spec.Pool)
	}
	if pool == e.primary && !between(addressOf(pod), e.address(50), e.address(51)) {
		return fmt.Errorf("pod %s has %s, which is not one of the pool any more", name, addressOf(pod))
	}
	e.story.Say("Pod %s gets %s from pool %s.", name, addressOf(pod), pool)
	return e.keeps(ctx)
}

func between(addr, first, last netip.Addr) bool { return !addr.Less(first) && !last.Less(addr) }

// keeps: the old pod has the lease that it had from the beginning.
func (e *edited) keeps(ctx context.Context) error {
	if err := e.boundTo(ctx, addressOf(e.pod), e.pod.UID); err != nil {
		return err
	}
	l, err := e.lease(ctx, addressOf(e.pod))
	if err != nil {
		return err
	}
	if l.UID != e.uid {
		return fmt.Errorf("the lease of %s was lost and made again", addressOf(e.pod))
	}
	return nil
}

// undisturbed: nobody else ever spoke for the old pod's address, and no ping to it
// was lost.
func (e *edited) undisturbed(ctx context.Context, began time.Time) error {
	if err := e.pings.waitFor(ctx, 20, time.Now()); err != nil {
		return err
	}
	if lost := lostSince(e.pings.all(), began, time.Now()); lost > 0 {
		return fmt.Errorf("%d pings to pod old were lost", lost)
	}
	if err := speaksAlone(e.capture.Frames(), e.pod); err != nil {
		return err
	}
	if err := e.keeps(ctx); err != nil {
		return err
	}
	e.story.Say("Pod old kept %s all the time, and answered every ping.", addressOf(e.pod))
	return nil
}

// restartAgent kills the agent beside the old pod and waits for its successor to
// be Ready.
func (e *edited) restartAgent(ctx context.Context) error {
	node := e.pod.Node
	before, err := e.agentPod(ctx, node)
	if err != nil {
		return err
	}
	if err := node.Kill(ctx, agentProgram); err != nil {
		return err
	}
	killed := time.Now()
	err = eventually(ctx, podLimit, "a new agent on "+node.Name(), func(ctx context.Context) error {
		now, err := e.agentPod(ctx, node)
		if err != nil {
			return err
		}
		if restarts(now) == restarts(before) || !isReady(now) {
			return errors.New("its status is " + now.Status.String())
		}
		return nil
	})
	if err != nil {
		return err
	}
	e.figures.add("agent Ready again after it was killed", time.Since(killed))
	e.story.Say("The agent of %s is killed, and Ready again after %s.", node.Name(), round(time.Since(killed)))
	return e.keeps(ctx)
}

// restarts counts how often a pod's containers were started again.
func restarts(pod *corev1.Pod) int32 {
	var sum int32
	for _, c := range pod.Status.ContainerStatuses {
		sum += c.RestartCount
	}
	return sum
}
