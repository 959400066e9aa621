// SPDX-License-Identifier: Apache-2.0

package holder_test

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fenceline/fenceline/agent/refusal"
	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/cni/agentapi"
	"github.com/fenceline/fenceline/test/fakenode"
)

// askingNode has a pod that asks for a pool of an IPSubnet, which nobody has made yet.
func askingNode(t *testing.T) (*fakenode.Node, agentapi.AddRequest) {
	t.Helper()
	r := fakenode.New(t)
	r.API.Put(&v1alpha1.IPSubnet{ObjectMeta: metav1.ObjectMeta{Name: "floor"}, Spec: v1alpha1.IPSubnetSpec{Subnet: "10.0.0.0/24"}})
	return r, r.Pod("web-0", "u1", func(p *corev1.Pod) {
		p.Annotations = map[string]string{
			v1alpha1.AnnotationPrefix + "subnet":           `{"ipv4":["floor"]}`,
			v1alpha1.AnnotationPrefix + "ippool-ip-number": "1",
		}
	})
}

func TestAnADDGetsAnAddressOnceItsPoolIsMade(t *testing.T) {
	r, request := askingNode(t)
	end := make(chan error, 1)
	go func() {
		_, err := r.Add(t.Context(), request)
		end <- err
	}()
	if e := <-r.Recorder.Events; !strings.Contains(e, "the controller has not made the pool of Pod shop/web-0 in IPSubnet floor yet") {
		t.Errorf("the event is %q", e)
	}
	// It looks again when pools change, and follows nothing at the API server.
	lists := r.Calls("list")
	r.Eventually("another look", func() bool { r.Waiting.Changed(); return r.Calls("list") > lists })
	if n := r.API.Follows(); n != 0 {
		t.Errorf("%d watches are open", n)
	}
	pool := fakenode.V4("10.0.0.7")
	pool.Spec.IPSubnet, pool.Spec.Application = "floor", &v1alpha1.Application{Kind: "Pod", Namespace: "shop", Name: "web-0", Interface: "0"}
	r.API.Put(pool)
	r.Eventually("the answer", func() bool {
		r.Waiting.Changed() // a change may come before the ADD waits again
		select {
		case err := <-end:
			if err != nil {
				t.Error(err)
			}
			return true
		default:
			return false
		}
	})
	r.Want("10.0.0.7 Bound")
}

func TestAnADDWhosePoolIsNotMadeInTimeSaysWhy(t *testing.T) {
	r, request := askingNode(t)
	s := &v1alpha1.IPSubnet{ObjectMeta: metav1.ObjectMeta{Name: "floor"}, Spec: v1alpha1.IPSubnetSpec{Subnet: "10.0.0.0/24"}}
	s.Status.Unserved = []v1alpha1.Unserved{{
		Application: v1alpha1.Application{Kind: "Pod", Namespace: "shop", Name: "web-0", Interface: "0"}, Message: "IPSubnet floor has no free address",
	}}
	r.API.Put(s)
	r.Patience = time.Second
	_, err := r.Add(t.Context(), request)
	if err == nil || refusal.Answer(err).Code != agentapi.CodeNoPool || !strings.Contains(err.Error(), "IPSubnet floor has no free address") {
		t.Errorf("got %v (%+v)", err, refusal.Answer(err))
	}
	r.Want()
}
