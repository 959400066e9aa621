// SPDX-License-Identifier: Apache-2.0

package cidr

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr/testr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/events"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/fenceline/fenceline/internal/event"
	"github.com/fenceline/fenceline/test/check"
)

func text(all []netip.Prefix) string { return strings.Trim(fmt.Sprint(all), "[]") }

func TestTheCIDRsOfManyNodesBecomeFewRoutes(t *testing.T) {
	for given, want := range map[string]string{
		"":                                       "",
		"10.244.0.0/24":                          "10.244.0.0/24",
		"10.244.1.0/24,10.244.0.0/24":            "10.244.0.0/23",
		"10.244.1.0/24,10.244.2.0/24":            "10.244.1.0/24 10.244.2.0/24",
		"10.244.0.0/16,10.244.7.0/24":            "10.244.0.0/16",
		"10.0.0.0/26,10.0.0.64/26,10.0.0.128/25": "10.0.0.0/24",
		"10.0.0.0/24,10.0.0.0/24":                "10.0.0.0/24",
		"0.0.0.0/1,128.0.0.0/1":                  "0.0.0.0/1 128.0.0.0/1",
		"fd44:0:0:1::/64,10.0.0.0/24,fd44::/64":  "10.0.0.0/24 fd44::/63",
	} {
		var all []netip.Prefix
		for word := range strings.FieldsFuncSeq(given, func(r rune) bool { return r == ',' }) {
			all = append(all, check.Value(ParsePod(word))(t))
		}
		check.Same(t, text(merge(all)), want, "%s", given)
	}
	for _, wrong := range []string{"10.0.0.0", "10.0.0.1/8", "0.0.0.0/0", "::/0", "127.0.0.0/8", "fe80::/64", "::ffff:10.0.0.0/104", ""} {
		check.Says(t, check.Err(ParsePod(wrong)), "pod CIDR \"")
	}
}

func node(name string, cidrs ...string) client.Object {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.NodeSpec{PodCIDRs: cidrs}}
}

func calico(name, cidr string) client.Object {
	pool := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"cidr": cidr}}}
	pool.SetGroupVersionKind(Calico())
	pool.SetName(name)
	return pool
}

func cilium(data ...string) client.Object {
	m := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "cilium-config"}, Data: map[string]string{}}
	for i := 0; i < len(data); i += 2 {
		m.Data[data[i]] = data[i+1]
	}
	return m
}

// rig has the pod CIDRs of node n1, which a pod needs, and what they are reported to.
type rig struct {
	*Pods
	events  *events.FakeRecorder
	unknown bool
}

func newRig(t *testing.T, refused map[string]error, objects ...client.Object) *rig {
	t.Helper()
	r := &rig{events: events.NewFakeRecorder(5)}
	r.Pods = NewPods(PodOptions{
		Reporter: event.Reporter{Node: "n1", Events: r.events, Log: testr.New(t), Clock: clocktesting.NewFakeClock(time.Unix(0, 0))},
		API:      server(t, refused, objects...), Needed: func() bool { return true }, Unknown: func(u bool) { r.unknown = u },
	})
	return r
}

// server returns an API with objects. refused are the kinds that it refuses, and why.
func server(t *testing.T, refused map[string]error, objects ...client.Object) client.Client {
	t.Helper()
	scheme := runtime.NewScheme()
	check.OK(t, corev1.AddToScheme(scheme))
	scheme.AddKnownTypeWithName(Calico(), &unstructured.Unstructured{})
	scheme.AddKnownTypeWithName(Calico().GroupVersion().WithKind("IPPoolList"), &unstructured.UnstructuredList{})
	return fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).WithInterceptorFuncs(interceptor.Funcs{
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, o ...client.ListOption) error {
			kind := "nodes"
			if _, ok := list.(*unstructured.UnstructuredList); ok {
				kind = "ippools"
			}
			if err := refused[kind]; err != nil {
				return err
			}
			return c.List(ctx, list, o...)
		},
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			if err := refused["configmaps"]; err != nil {
				return err
			}
			return c.Get(ctx, key, o, opts...)
		},
	}).Build()
}

func TestEachNetworkSaysItsPodCIDRs(t *testing.T) {
	missing := apierrors.NewNotFound(schema.GroupResource{Group: Calico().Group, Resource: "ippools"}, "")
	forbidden := apierrors.NewForbidden(schema.GroupResource{Resource: "configmaps"}, "cilium-config", errors.New("RBAC"))
	without := map[string]error{"ippools": missing}
	for name, row := range map[string]struct {
		refused map[string]error
		objects []client.Object
		want    string
		unknown string
	}{
		"flannel and kubeadm": {without, []client.Object{node("n1", "10.244.0.0/24", "fd44::/64"), node("n2", "10.244.1.0/24", "fd44:0:0:1::/64")}, "10.244.0.0/23 fd44::/63", ""},
		"Calico":              {nil, []client.Object{node("n1"), calico("v4", "192.168.0.0/16"), calico("v6", "fd80::/48")}, "192.168.0.0/16 fd80::/48", ""},
		"Calico on kubeadm":   {nil, []client.Object{node("n1", "10.244.0.0/24"), calico("v4", "10.244.0.0/16")}, "10.244.0.0/16", ""},
		"Cilium":              {without, []client.Object{node("n1"), cilium("ipam", "cluster-pool", "cluster-pool-ipv4-cidr", "10.0.0.0/8", "cluster-pool-ipv6-cidr", "fd00::/104")}, "10.0.0.0/8 fd00::/104", ""},
		"Cilium with two":     {without, []client.Object{cilium("ipam", "cluster-pool", "cluster-pool-ipv4-cidr", "10.0.0.0/9 10.128.0.0/9")}, "10.0.0.0/8", ""},
		"Cilium by the Nodes": {without, []client.Object{node("n1", "10.1.0.0/24"), cilium("ipam", "kubernetes", "cluster-pool-ipv4-cidr", "10.0.0.0/8")}, "10.1.0.0/24", ""},
		"none":                {without, []client.Object{node("n1")}, "", "cni.hostLink.podCIDRs"},
		"a right is missing":  {map[string]error{"ippools": missing, "configmaps": forbidden}, []client.Object{node("n1", "10.244.0.0/24")}, "10.244.0.0/24", "cilium-config in kube-system"},
		"a wrong CIDR":        {nil, []client.Object{calico("v4", "0.0.0.0/0"), calico("other", "10.1.0.0/16")}, "10.1.0.0/16", "IPPools of Calico: pod CIDR \"0.0.0.0/0\""},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, row.refused, row.objects...)
			for range 2 { // a failure is told once
				r.Pass(t.Context())
			}
			known, unknown := r.Prefixes()
			check.Same(t, text(known), row.want, "pod CIDRs")
			check.Equal(t, r.unknown, row.unknown != "", "the metric:")
			if row.unknown == "" {
				check.That(t, unknown == nil && len(r.events.Events) == 0, "unknown %v, %d events", unknown, len(r.events.Events))
				return
			}
			check.Says(t, unknown, row.unknown)
			check.Must(t, len(r.events.Events) == 1, "%d events", len(r.events.Events))
			told := <-r.events.Events
			check.That(t, strings.HasPrefix(told, "Warning PodCIDRsUnknown"), "event %q", told)
		})
	}
}

func TestPodCIDRsStayKnownWhileTheAPIServerIsAway(t *testing.T) {
	refused := map[string]error{}
	c := newRig(t, refused, node("n1", "10.244.0.0/24"))
	check.Is(t, check.Err(c.Prefixes()), ErrPodsNotRead, "before a read:")
	check.Receive(t, time.Second, "the first question wakes the reader", c.wake)
	c.Pass(t.Context())
	check.Receive(t, time.Second, "those who use the pod CIDRs hear of them", c.Changed())
	refused["nodes"] = errors.New("connection refused")
	check.Equal(t, c.Pass(t.Context()), retry, "the next try is in")
	known, err := c.Prefixes()
	check.That(t, text(known) == "10.244.0.0/24" && err != nil, "%v, %v", known, err)
	delete(refused, "nodes")
	check.OK(t, c.API.(client.Client).Create(t.Context(), node("n2", "10.244.1.0/24")))
	c.Pass(t.Context())
	known, err = c.Prefixes()
	check.That(t, text(known) == "10.244.0.0/23" && err == nil, "%v, %v", known, err)
}

// Each read lists all Nodes, past any cache, on every node with such a pod.
func TestAFailureThatOnlyAPersonCanEndIsReadAgainLessAndLess(t *testing.T) {
	away := errors.New("connection refused")
	forbidden := apierrors.NewForbidden(schema.GroupResource{Resource: "configmaps"}, "cilium-config", errors.New("RBAC"))
	wrong := []client.Object{calico("v4", "0.0.0.0/0")}
	for name, row := range map[string]struct {
		refused map[string]error
		objects []client.Object
		lasts   bool
	}{
		"no place names a CIDR":          {nil, []client.Object{node("n1")}, true},
		"a right is missing":             {map[string]error{"configmaps": forbidden}, nil, true},
		"a wrong CIDR":                   {nil, wrong, true},
		"the API server is away":         {map[string]error{"nodes": away}, nil, false},
		"it is away, a right missing":    {map[string]error{"nodes": away, "configmaps": forbidden}, nil, false},
		"it is away, and a wrong CIDR":   {map[string]error{"nodes": away}, wrong, false},
		"a place cannot be read for now": {map[string]error{"ippools": apierrors.NewTooManyRequests("busy", 1)}, nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			refused := row.refused
			if refused == nil {
				refused = map[string]error{}
			}
			c := newRig(t, refused, row.objects...)
			last := c.Pass(t.Context())
			check.Equal(t, last, retry, "the first try is in")
			for range 10 {
				next := c.Pass(t.Context())
				if !row.lasts {
					check.Equal(t, next, retry, "the next try is in")
				} else if next != min(2*last, longest) {
					t.Errorf("after a pause of %s: the next try is in %s", last, next)
				}
				last = next
			}
			if !row.lasts {
				return
			}
			check.Equal(t, last, longest, "the last try is in")
			refused["nodes"] = away
			check.Equal(t, c.Pass(t.Context()), retry, "while the API server is away, the next try is in")
		})
	}
}

func TestTheEndOfTheAgentIsNoFailure(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	refused := map[string]error{}
	c := newRig(t, refused, node("n1", "10.244.0.0/24"))
	c.Pass(ctx)
	cancel()
	refused["nodes"] = ctx.Err()
	c.Pass(ctx)
	known, err := c.Prefixes()
	check.That(t, text(known) == "10.244.0.0/24" && err == nil && !c.unknown && len(c.events.Events) == 0,
		"pod CIDRs %v, %v, metric %v, %d events", known, err, c.unknown, len(c.events.Events))
}

func TestNothingIsReadUntilAPodNeedsIt(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	asked := make(chan struct{}, 10)
	now := clocktesting.NewFakeClock(time.Unix(0, 0))
	c := NewPods(PodOptions{
		Reporter: event.Reporter{Node: "n1", Events: events.NewFakeRecorder(5), Log: testr.New(t), Clock: now},
		API:      nobody{t}, Needed: func() bool { asked <- struct{}{}; return false }, Unknown: func(bool) {},
	})
	done := make(chan error, 1)
	go func() { done <- c.Run(ctx) }()
	check.Receive(t, time.Second, "the first look", asked)
	check.Becomes(t, time.Second, "a timer", now.HasWaiters)
	now.Step(2 * period)
	check.Receive(t, time.Second, "the next look", asked)
	cancel()
	check.OK(t, check.Receive(t, time.Second, "the end", done))

	given := GivenPods([]netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")})
	check.OK(t, given.Run(t.Context()))
	known, err := given.Prefixes()
	check.That(t, text(known) == "10.0.0.0/8" && err == nil, "given: %v, %v", known, err)
}

// nobody must not be asked.
type nobody struct{ t *testing.T }

func (n nobody) Get(context.Context, client.ObjectKey, client.Object, ...client.GetOption) error {
	n.t.Error("an object is read")
	return nil
}

func (n nobody) List(context.Context, client.ObjectList, ...client.ListOption) error {
	n.t.Error("objects are read")
	return nil
}
