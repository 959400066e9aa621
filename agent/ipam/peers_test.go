// SPDX-License-Identifier: Apache-2.0

package ipam

import (
	"errors"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/test/check"
)

func TestTheShareOfAnAgentAndWhetherThereAreOthers(t *testing.T) {
	agent := func(index string) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
			Namespace: "fenceline-system", Name: "agent-1", Annotations: map[string]string{v1alpha1.AnnotationAgentIndex: index},
		}}
	}
	pool := func(name string, agents, shares int64) *v1alpha1.IPPool {
		p := &v1alpha1.IPPool{ObjectMeta: metav1.ObjectMeta{Name: name}}
		p.Status.Agents, p.Status.Shares = agents, shares
		return p
	}
	for _, row := range []struct {
		name    string
		objects []client.Object
		share   Share
		others  bool
	}{
		{"nothing is known", nil, Share{}, true},
		{"the controller has written neither index nor count", []client.Object{agent(""), pool("a", 0, 0)}, Share{}, true},
		{"one agent", []client.Object{agent("0"), pool("a", 1, 1)}, Share{Count: 1}, false},
		{"one pool is written already, another is not", []client.Object{agent("2"), pool("a", 0, 0), pool("b", 3, 4)}, Share{Index: 2, Count: 4}, true},
		{"the agent has no index yet", []client.Object{agent(""), pool("a", 3, 4)}, Share{}, true},
	} {
		t.Run(row.name, func(t *testing.T) {
			scheme := runtime.NewScheme()
			check.OK(t, errors.Join(clientgoscheme.AddToScheme(scheme), v1alpha1.AddToScheme(scheme)))
			p := Peers{
				Cache: fake.NewClientBuilder().WithScheme(scheme).WithObjects(row.objects...).Build(),
				Pod:   client.ObjectKey{Namespace: "fenceline-system", Name: "agent-1"},
			}
			if share, others := p.Share(), p.Others(); share != row.share || others != row.others {
				t.Errorf("share %+v, others %v, want %+v and %v", share, others, row.share, row.others)
			}
		})
	}
}
