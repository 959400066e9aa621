// SPDX-License-Identifier: Apache-2.0

package holder_test

import (
	"context"
	"errors"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fenceline/fenceline/agent/holder/node"
	"github.com/fenceline/fenceline/agent/pod"
	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/test/check"
	"github.com/fenceline/fenceline/test/fakenode"
)

// sandboxReady is the kubelet's word about the sandbox of a pod.
func sandboxReady(is corev1.ConditionStatus) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReadyToStartContainers, Status: is}}
	}
}

func TestARemovedInterfaceGivesItsAddressBack(t *testing.T) {
	for _, row := range []struct {
		name string
		// meanwhile is what happens after the DEL, before the kubelet's word counts.
		meanwhile func(*fakenode.Node)
		ready     corev1.ConditionStatus
		want      []string
	}{
		{"the sandbox lives", func(*fakenode.Node) {}, corev1.ConditionTrue, nil},
		{"the sandbox lives, and the kernel has taken the interface away", func(r *fakenode.Node) {
			r.FindLink = func(string, string) (node.Link, error) { return node.Link{}, pod.ErrNoInterface }
		}, corev1.ConditionTrue, nil},
		{"the sandbox lives, and a device without a parent has the name", func(r *fakenode.Node) {
			r.FindLink = func(string, string) (node.Link, error) { return node.Link{}, pod.ErrNoParent }
		}, corev1.ConditionTrue, nil},
		{"the sandbox lives, and the agent restarts", (*fakenode.Node).Restart, corev1.ConditionTrue, nil},
		{"the end of the sandbox is held up", func(*fakenode.Node) {}, corev1.ConditionFalse, []string{"10.0.0.2 Retained"}},
		{"the pod ends", func(r *fakenode.Node) { r.API.Drop(fakenode.PodOf("web")) }, corev1.ConditionTrue, nil},
	} {
		t.Run(row.name, func(t *testing.T) {
			r := fakenode.New(t, fakenode.V4("10.0.0.2"))
			web := r.Pod("web", "u1", sandboxReady(row.ready))
			r.MustAdd(web)
			slot := r.SlotOf(web)
			check.OK(t, r.Del(t.Context(), fakenode.Del(web)))
			check.That(t, r.Kernel.IsDead(slot), "the slot lives")
			r.Want("10.0.0.2 Bound")
			row.meanwhile(r)
			r.Settle()
			r.Want(row.want...)
		})
	}
}

// deafReader cannot read pods past the cache.
type deafReader struct{ client.Reader }

func (d deafReader) Get(ctx context.Context, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
	if _, pod := o.(*corev1.Pod); pod {
		return errors.New("the API server is away")
	}
	return d.Reader.Get(ctx, key, o, opts...)
}

func TestAnAddressIsKeptIfNothingTellsWhatHasEnded(t *testing.T) {
	for name, blind := range map[string]func(*fakenode.Node){
		"the namespace cannot be opened": func(r *fakenode.Node) {
			r.FindLink = func(string, string) (node.Link, error) { return node.Link{}, errors.New("too many open files") }
		},
		"the pod cannot be read":                func(r *fakenode.Node) { r.Reader = deafReader{r.Reader} },
		"the kubelet does not know the sandbox": func(r *fakenode.Node) { r.API.ChangePod("web", func(p *corev1.Pod) { p.Status.Conditions = nil }) },
	} {
		t.Run(name, func(t *testing.T) {
			r := fakenode.New(t, fakenode.V4("10.0.0.2"))
			web := r.Pod("web", "u1", sandboxReady(corev1.ConditionTrue))
			r.MustAdd(web)
			r.Wait()
			blind(r)
			check.OK(t, r.Del(t.Context(), fakenode.Del(web)))
			r.Settle()
			l := r.Lease("10.0.0.2", v1alpha1.StateRetained)
			check.That(t, l.Spec.Reason == v1alpha1.ReasonSandboxEnded, "lease %+v", l.Spec)
		})
	}
}

// An interface is unplugged and plugged in again before it is known what has ended.
func TestAnInterfaceThatIsPluggedInAgainAtOnceHasItsAddress(t *testing.T) {
	r := fakenode.New(t, fakenode.V4("10.0.0.2"))
	web := r.Pod("web", "u1", sandboxReady(corev1.ConditionTrue))
	before := r.MustAdd(web)
	check.OK(t, r.Del(t.Context(), fakenode.Del(web)))
	check.List(t, r.MustAdd(web), before, "has")
	r.Settle()
	r.HoldsWhatTheJournalSays(web)
}
