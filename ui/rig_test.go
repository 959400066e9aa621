// SPDX-License-Identifier: Apache-2.0

package ui

import (
	"context"
	"testing/fstest"
	"time"

	"github.com/go-logr/logr"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	authenticationclient "k8s.io/client-go/kubernetes/typed/authentication/v1"
	authorizationclient "k8s.io/client-go/kubernetes/typed/authorization/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/controller/reclaim"
	"github.com/fenceline/fenceline/internal/access"
)

// tokens knows the tokens viewer, who may list everything, and tenant, who may list leases only.
type tokens struct {
	authenticationclient.TokenReviewInterface
}

func (tokens) Create(_ context.Context, r *authenticationv1.TokenReview, _ metav1.CreateOptions) (*authenticationv1.TokenReview, error) {
	r.Status.Authenticated = r.Spec.Token == "viewer" || r.Spec.Token == "tenant"
	r.Status.User.Username = r.Spec.Token
	return r, nil
}

type rights struct {
	authorizationclient.SubjectAccessReviewInterface
}

func (rights) Create(_ context.Context, r *authorizationv1.SubjectAccessReview, _ metav1.CreateOptions) (*authorizationv1.SubjectAccessReview, error) {
	a := r.Spec.ResourceAttributes
	r.Status.Allowed = a.Verb == "list" && a.Group == "fenceline.io" && a.Namespace == "" &&
		(r.Spec.User == "viewer" || r.Spec.User == "tenant" && a.Resource == "ipleases")
	return r, nil
}

// alive is an Explainer for which every pod lives.
type alive struct{}

func (alive) Explain(context.Context, *v1alpha1.IPLease) (reclaim.Action, error) {
	return reclaim.Action{Kind: reclaim.None, Why: "the pod is alive"}, nil
}

func serverOf(reader client.Reader) *Server {
	return &Server{
		Reader: reader, Judge: access.Asking(tokens{}, rights{}, clock.RealClock{}, AllowedFor), Explain: alive{},
		Watch:  func(context.Context, *Feed) error { return nil },
		Assets: fstest.MapFS{"index.html": {Data: []byte("<title>Fenceline</title>")}}, Log: logr.Discard(),
	}
}

func poolNamed(name, subnet string, ips ...string) *v1alpha1.IPPool {
	return &v1alpha1.IPPool{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.IPPoolSpec{Subnet: subnet, IPs: ips}}
}

// leaseNamed returns a lease of the pool underlay. With a pod, it is Bound to it on node n1.
func leaseNamed(address string, state v1alpha1.LeaseState, pod string) *v1alpha1.IPLease {
	l := &v1alpha1.IPLease{ObjectMeta: metav1.ObjectMeta{Name: address, ResourceVersion: "1"}}
	l.Spec = v1alpha1.IPLeaseSpec{Address: address, Pool: "underlay", State: state, NodeName: "n1", Since: metav1.NewTime(time.Unix(1767225600, 0))}
	if pod != "" {
		l.Spec.Holder = &v1alpha1.Holder{Namespace: "shop", Pod: pod, Interface: "eth0", Guarded: true}
	}
	return l
}

// taken returns a lease after its reclaim.
func taken(l *v1alpha1.IPLease, reason v1alpha1.LeaseReason) *v1alpha1.IPLease {
	q := l.DeepCopy()
	q.ResourceVersion += "1"
	q.Spec.State, q.Spec.Reason, q.Spec.NodeName = v1alpha1.StateQuarantined, reason, "n2"
	q.Spec.Previous = &v1alpha1.PreviousHolder{Node: l.Spec.NodeName, Token: 1}
	return q
}
