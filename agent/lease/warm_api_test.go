// SPDX-License-Identifier: Apache-2.0

//go:build api

package lease

import (
	"errors"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/test/check"
	"github.com/fenceline/fenceline/test/controlplane"
)

const chartNamespace = "fenceline-system"

// guardedWorld is an API server with the chart's policies, and the stores of
// the agents of two nodes, with the tokens that their kubelets get for them.
func guardedWorld(t *testing.T) (n1, n2 *Store) {
	t.Helper()
	server := controlplane.Start(t)
	scheme := runtime.NewScheme()
	check.OK(t, errors.Join(clientgoscheme.AddToScheme(scheme), v1alpha1.AddToScheme(scheme)))
	admin := check.Value(client.New(server.Admin(), client.Options{Scheme: scheme}))(t)
	install(t, server)
	store := func(node string) *Store {
		pod := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: "agent-" + node, Namespace: chartNamespace},
			Spec: corev1.PodSpec{
				ServiceAccountName: "fenceline-agent", NodeName: node,
				Containers: []corev1.Container{{Name: "agent", Image: "agent"}},
			},
		}
		check.OK(t, admin.Create(t.Context(), pod))
		config := check.Value(server.ServiceAccount(t.Context(), chartNamespace, "fenceline-agent", pod))(t)
		c := check.Value(client.New(config, client.Options{Scheme: scheme}))(t)
		return NewStore(Options{Client: c, Reader: c, Node: node, Session: node + "/boot", Clock: clock.RealClock{}})
	}
	n1, n2 = store("n1"), store("n2")
	waitForPolicy(t, n1)
	return n1, n2
}

// install installs the chart, as the README says.
func install(t *testing.T, server *controlplane.Server) {
	t.Helper()
	out, err := controlplane.Helm(t.Context(), server.Kubeconfig(), "install", "fenceline", "../../charts/fenceline",
		"--namespace", chartNamespace, "--create-namespace")
	check.Must(t, err == nil, "helm: %v\n%s", err, out)
}

// waitForPolicy returns once the policy is enforced: a new one takes a moment.
func waitForPolicy(t *testing.T, s *Store) {
	t.Helper()
	foreign := NewStore(Options{Client: client.NewDryRunClient(s.o.Client), Reader: s.o.Reader, Node: "nobody", Session: "s", Clock: clock.RealClock{}})
	check.Becomes(t, 2*time.Minute, "the policy", func() bool {
		return refusedByPolicy(check.Err(foreign.Create(t.Context(), warmWish("10.9.9.9"))))
	})
}

func refusedByPolicy(err error) bool {
	return apierrors.IsForbidden(err) && strings.Contains(err.Error(), "fenceline-agents")
}

func warmWish(addr string) Request {
	r := wish(addr, "")
	r.Holder = v1alpha1.Holder{}
	return r
}

// The life of a Warm lease under the chart's policy: its own agent makes, binds,
// throws out and ends it, and no other.
func TestWarmLeasesAreTheirOwnAgents(t *testing.T) {
	n1, n2 := guardedWorld(t)
	ctx := t.Context()
	create := func(t *testing.T, addr string) *v1alpha1.IPLease {
		t.Helper()
		l := check.Value(n1.Create(ctx, warmWish(addr)))(t)
		check.Must(t, l.Spec.State == v1alpha1.StateWarm && l.Spec.NodeName == "n1" && l.Spec.Session == "n1/boot" && l.Spec.Holder == nil,
			"made %+v", l.Spec)
		return l
	}
	t.Run("it is bound by one write, whose version is the token", func(t *testing.T) {
		l := create(t, "10.0.30.1")
		bound, err := n1.BindWarm(ctx, l, wish("10.0.30.1", "c1"))
		check.OK(t, err)
		check.That(t, bound.UID == l.UID && bound.Generation == l.Generation+1 && mustToken(t, bound) > mustToken(t, l),
			"bound %+v after %+v", bound.ObjectMeta, l.ObjectMeta)
		_, err = n1.BindWarm(ctx, l, wish("10.0.30.1", "c2"))
		wantErr(t, "a second container", err, ErrNotMine)
		again, err := n1.BindWarm(ctx, l, wish("10.0.30.1", "c1"))
		check.That(t, err == nil && again.ResourceVersion == bound.ResourceVersion, "a retried binding: %v, %v", again, err)
	})
	t.Run("it is thrown out with its speaker's MAC, and freed by its verification", func(t *testing.T) {
		l := create(t, "10.0.30.2")
		out, err := n1.Update(ctx, l, ThrowOut(stranger))
		check.OK(t, err)
		check.That(t, out.Spec.State == v1alpha1.StateQuarantined && out.Spec.Conflict.MAC == stranger.MAC, "thrown out as %+v", out.Spec)
		_, err = n1.BindWarm(ctx, l, wish("10.0.30.2", "c1"))
		wantErr(t, "binding it after that", err, ErrNotMine)
		check.Value(n1.Settle(ctx, out, FindingSafe, Evidence{}))(t)
	})
	t.Run("it is given up, after which nobody binds it", func(t *testing.T) {
		l := create(t, "10.0.30.3")
		check.OK(t, n1.Delete(ctx, l))
		_, err := n1.BindWarm(ctx, l, wish("10.0.30.3", "c1"))
		wantErr(t, "binding it after that", err, ErrGone)
	})
	t.Run("it is not given up by whoever has not seen it bound", func(t *testing.T) {
		l := create(t, "10.0.30.4")
		check.OK(t, check.Err(n1.BindWarm(ctx, l, wish("10.0.30.4", "c1"))))
		wantErr(t, "giving it up", n1.Delete(ctx, l), ErrNotMine)
	})
	t.Run("another node's agent neither binds, throws out nor ends it", func(t *testing.T) {
		l := create(t, "10.0.30.5")
		_, bindErr := n2.BindWarm(ctx, l, wish("10.0.30.5", "c1"))
		wantErr(t, "binding it", bindErr, ErrState)
		_, throwErr := n2.Update(ctx, l, ThrowOut(stranger))
		taken := l.DeepCopy()
		taken.Spec = Bind(wish("10.0.30.5", "c1"), n2.owner())
		for what, err := range map[string]error{
			"throwing it out":              throwErr,
			"ending it":                    n2.Delete(ctx, l),
			"binding it past its own code": n2.o.Client.Update(ctx, taken),
		} {
			check.That(t, refusedByPolicy(err), "%s: %v", what, err)
		}
		now, err := n1.Get(ctx, l.Name)
		check.That(t, err == nil && now.ResourceVersion == l.ResourceVersion, "it is %v, %v", now, err)
	})
	t.Run("another node's agent makes none in its name", func(t *testing.T) {
		forger := NewStore(Options{Client: n2.o.Client, Reader: n2.o.Reader, Node: "n1", Session: "n1/boot", Clock: clock.RealClock{}})
		_, err := forger.Create(ctx, warmWish("10.0.30.6"))
		check.That(t, refusedByPolicy(err), "got %v", err)
	})
}
