// SPDX-License-Identifier: Apache-2.0

package cidr

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr/testr"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/fenceline/fenceline/test/check"
)

func TestGivenServiceCIDRs(t *testing.T) {
	for given, want := range map[string]string{
		"10.96.0.0/16":                           "10.96.0.0/16",
		"fd00:10:96::/112 10.96.0.0/16":          "10.96.0.0/16 fd00:10:96::/112",
		"10.96.0.0/12 10.96.0.0/16 10.96.0.0/12": "10.96.0.0/12 10.96.0.0/16",
	} {
		var all []netip.Prefix
		for _, word := range strings.Fields(given) {
			all = append(all, check.Value(ParseService(word))(t))
		}
		check.Equal(t, serviceText(GivenServices(all).Prefixes()), want, "%q: got", given)
	}
}

func TestAWrongServiceCIDRIsRefusedWithItsValue(t *testing.T) {
	for word, why := range map[string]string{
		"10.96.0.0": "a prefix like", "10.96.0.0/33": "a prefix like", "": "a prefix like", "services": "a prefix like",
		"10.96.0.1/16": "write 10.96.0.0/16", "::ffff:10.96.0.0/112": "write the IPv4 prefix",
		"0.0.0.0/0": "all addresses", "::/0": "all addresses",
		"127.0.0.0/8": "never those of Services", "224.0.0.0/24": "never those of Services", "fe80::/64": "never those of Services",
	} {
		check.Says(t, check.Err(ParseService(word)), fmt.Sprintf("%q", word), why)
	}
}

func TestServiceCIDRsAreUnknownWithAReasonAndARemedy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		resource := schema.GroupResource{Group: networkingv1.GroupName, Resource: "servicecidrs"}
		for _, row := range []struct {
			answer, named, want error
		}{
			{errors.New("connection refused"), nil, ErrNotRead},
			{apierrors.NewTooManyRequests("busy", 1), nil, ErrNotRead},
			{apierrors.NewNotFound(resource, ""), errors.New("connection refused"), ErrNotRead},
			{apierrors.NewNotFound(resource, ""), apierrors.NewForbidden(resource, "", errors.New("RBAC")), ErrNotServed},
			{apierrors.NewNotFound(resource, ""), invalid("failed to allocate IP"), ErrNotServed},
			{apierrors.NewNotFound(resource, ""), invalid(named + "::/0"), ErrNotServed},
			{apierrors.NewForbidden(resource, "", errors.New("RBAC")), nil, ErrForbidden},
			{nil, nil, ErrNone},
		} {
			var asked atomic.Int32
			c := WatchedServices(clientWith(t, interceptor.Funcs{
				List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, o ...client.ListOption) error {
					asked.Add(1)
					if row.answer != nil {
						return row.answer
					}
					return c.List(ctx, list, o...)
				},
				Create: func(context.Context, client.WithWatch, client.Object, ...client.CreateOption) error { return row.named },
			}), "default", &memory{}, testr.New(t))
			check.Is(t, check.Err(c.Prefixes()), ErrNotRead, "before an answer:")
			run(t, c)
			if errors.Is(row.want, ErrNotRead) {
				check.Becomes(t, 30*time.Second, "an answer is handled", func() bool { return asked.Load() > 1 }) // the first answer is handled
			} else {
				expect(t, c, row.want.Error())
			}
			answered := false
			select {
			case <-c.answered:
				answered = true
			default:
			}
			check.Equal(t, answered, !errors.Is(row.want, ErrNotRead), "answer %v: those who wait go on:", row.answer)
			got := serviceText(c.Prefixes())
			check.Equal(t, got, row.want.Error(), "answer %v:", row.answer)
			check.Says(t, got, "cni.hostLink.serviceCIDRs")
		}
	})
}

func TestAnAPIServerWithoutServiceCIDRsNamesItsRanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := WatchedServices(clientWith(t, interceptor.Funcs{
			List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error {
				return apierrors.NewNotFound(schema.GroupResource{Resource: "servicecidrs"}, "")
			},
			Create: func(_ context.Context, _ client.WithWatch, o client.Object, _ ...client.CreateOption) error {
				return invalid(named + map[string]string{"127.0.0.1": "10.96.0.0/16", "::1": "fd00:10:96::/112"}[o.(*corev1.Service).Spec.ClusterIP])
			},
		}), "default", &memory{}, testr.New(t))
		run(t, c)
		expect(t, c, "10.96.0.0/16 fd00:10:96::/112")
	})
}

func invalid(why string) error {
	return apierrors.NewInvalid(schema.GroupKind{Kind: "Service"}, "x", field.ErrorList{field.Invalid(field.NewPath("spec", "clusterIPs"), "", why)})
}

// memory keeps the service CIDRs of the last run.
type memory struct {
	last atomic.Pointer[[]netip.Prefix]
}

func (m *memory) Get() ([]netip.Prefix, bool) {
	last := m.last.Load()
	if last == nil {
		return nil, false
	}
	return *last, true
}

func (m *memory) Put(last []netip.Prefix) error { m.last.Store(&last); return nil }

func TestServiceCIDRsOfTheLastRunAreKnownAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		kept := &memory{}
		first := WatchedServices(clientWith(t, interceptor.Funcs{}, object("kubernetes", "10.96.0.0/16")), "default", kept, testr.New(t))
		run(t, first)
		expect(t, first, "10.96.0.0/16")
		synctest.Wait()
		next := WatchedServices(clientWith(t, interceptor.Funcs{}), "default", kept, testr.New(t))
		check.Equal(t, serviceText(next.Prefixes()), "10.96.0.0/16", "before an answer:")
		check.List(t, next.Await(t.Context()), *kept.last.Load(), "those who wait get")
	})
}

func TestServiceCIDRsStayKnownWhileTheAPIServerIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, answer := range []error{
			errors.New("connection refused"),
			apierrors.NewForbidden(schema.GroupResource{Resource: "servicecidrs"}, "", errors.New("RBAC")),
			apierrors.NewNotFound(schema.GroupResource{Resource: "servicecidrs"}, ""),
		} {
			var asked atomic.Int32
			c := WatchedServices(clientWith(t, interceptor.Funcs{
				List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, o ...client.ListOption) error {
					if asked.Add(1) == 1 {
						return c.List(ctx, list, o...)
					}
					return answer
				},
				Watch: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) (watch.Interface, error) {
					return nil, answer
				},
			}, object("kubernetes", "10.96.0.0/16")), "default", &memory{}, testr.New(t))
			run(t, c)
			check.Becomes(t, 30*time.Second, "an answer is handled", func() bool { return asked.Load() > 2 })
			check.Equal(t, serviceText(c.Prefixes()), "10.96.0.0/16", "%v:", answer)
		}
	})
}

func TestChangesOfServiceCIDRs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := clientWith(t, interceptor.Funcs{}, object("kubernetes", "10.96.0.0/16", "fd00:10:96::/112"))
		c := WatchedServices(api, "default", &memory{}, testr.New(t))
		run(t, c)
		expect(t, c, "10.96.0.0/16 fd00:10:96::/112")
		synctest.Wait() // the watch follows the list, and the client of the test keeps no events
		for _, step := range []struct {
			do   func(context.Context, client.Object) error
			of   *networkingv1.ServiceCIDR
			want string
		}{
			{create(api), object("more", "10.97.0.0/24"), "10.96.0.0/16 10.97.0.0/24 fd00:10:96::/112"},
			{create(api), finalized(object("within", "10.96.4.0/24")), "10.96.0.0/16 10.96.4.0/24 10.97.0.0/24 fd00:10:96::/112"},
			{remove(api), object("more"), "10.96.0.0/16 10.96.4.0/24 fd00:10:96::/112"},
			// The same prefix again, and a prefix that is never routed, change nothing.
			{create(api), object("same", "10.96.0.0/16", "0.0.0.0/0"), ""},
			// A Service still has an address of it.
			{remove(api), object("within"), ""},
			{create(api), object("last", "10.98.0.0/24"), "10.96.0.0/16 10.96.4.0/24 10.98.0.0/24 fd00:10:96::/112"},
		} {
			check.OK(t, step.do(t.Context(), step.of))
			if step.want != "" {
				expect(t, c, step.want)
			}
		}
	})
}

// expect waits for one change, and for nothing more than that.
func expect(t *testing.T, c *Services, want string) {
	t.Helper()
	check.Receive(t, 30*time.Second, "a change to "+want, c.Changed())
	got := serviceText(c.Prefixes())
	check.Must(t, got == want, "got %s, want %s", got, want)
}

// run runs the watch until the test ends.
func run(t *testing.T, c *Services) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- c.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		check.OK(t, <-ended)
	})
}

func clientWith(t *testing.T, funcs interceptor.Funcs, objects ...client.Object) client.WithWatch {
	t.Helper()
	scheme := runtime.NewScheme()
	check.OK(t, networkingv1.AddToScheme(scheme))
	return fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).WithInterceptorFuncs(funcs).Build()
}

func object(name string, prefixes ...string) *networkingv1.ServiceCIDR {
	return &networkingv1.ServiceCIDR{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: networkingv1.ServiceCIDRSpec{CIDRs: prefixes}}
}

func finalized(o *networkingv1.ServiceCIDR) *networkingv1.ServiceCIDR {
	o.Finalizers = []string{"networking.k8s.io/service-cidr-finalizer"}
	return o
}

func create(c client.Client) func(context.Context, client.Object) error {
	return func(ctx context.Context, o client.Object) error { return c.Create(ctx, o) }
}

func remove(c client.Client) func(context.Context, client.Object) error {
	return func(ctx context.Context, o client.Object) error { return c.Delete(ctx, o) }
}

func serviceText(prefixes []netip.Prefix, err error) string {
	if err != nil {
		return err.Error()
	}
	return strings.Trim(fmt.Sprint(prefixes), "[]")
}

// FuzzServiceCIDRs: CIDRs that are read are read again from their own text, and contain no address
// that never is a Service's.
func FuzzServiceCIDRs(f *testing.F) {
	for _, text := range []string{"", "10.96.0.0/16", "fd00:10:96::/112", "0.0.0.0/0", "::ffff:10.96.0.0/112", "127.0.0.0/8", "10.0.0.1/8", "0.0.0.0/1", ","} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		p, err := ParseService(text)
		if err != nil {
			return
		}
		for _, never := range []string{"127.0.0.0/8", "224.0.0.0/4", "169.254.0.0/16", "::1/128", "ff00::/8", "fe80::/10"} {
			check.That(t, !p.Overlaps(netip.MustParsePrefix(never)), "%q: %s overlaps %s", text, p, never)
		}
		again, err := ParseService(p.String())
		check.That(t, err == nil && again == p, "%q is read as %v, which is read as %v, %v", text, p, again, err)
	})
}
