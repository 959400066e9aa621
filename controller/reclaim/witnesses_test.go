package reclaim

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/controller/podview"
)

func TestListLimit(t *testing.T) {
	for _, row := range []struct {
		name          string
		missing, want int
	}{
		{"none is missing", 0, 0},
		{"one missing pod is read by itself, however few there are", 1, 0},
		{"two: to read both costs what an empty list does", 2, 0},
		{"three: as many as one read costs", 3, podsPerRead},
		{"all workers", workers, (workers - 2) * podsPerRead},
	} {
		t.Run(row.name, func(t *testing.T) {
			if got := listLimit(row.missing); got != row.want {
				t.Errorf("up to %d pods are listed for %d that are missing, want %d", got, row.missing, row.want)
			}
		})
	}
}

// pods returns n pods of a namespace, web-0 first.
func pods(namespace string, n int) []client.Object {
	all := make([]client.Object, n)
	for i := range all {
		pod := podObject()
		pod.Namespace, pod.Name, pod.UID = namespace, fmt.Sprintf("web-%d", i), types.UID(fmt.Sprintf("uid-%d", i))
		all[i] = pod
	}
	return all
}

// counted is an API server that counts reads, and lists by pages of a few pods.
type counted struct {
	client.Reader
	// fail is the answer to a second page.
	fail error

	mu          sync.Mutex
	gets, lists []string
}

const fewPods = 3

func (c *counted) Get(ctx context.Context, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
	c.mu.Lock()
	c.gets = append(c.gets, key.String())
	c.mu.Unlock()
	return c.Reader.Get(ctx, key, o, opts...)
}

func (c *counted) List(ctx context.Context, l client.ObjectList, opts ...client.ListOption) error {
	options := (&client.ListOptions{}).ApplyOptions(opts)
	c.lists = append(c.lists, options.Namespace+"/"+options.Continue)
	if options.Limit != podsPerPage || options.Raw != nil {
		return fmt.Errorf("want pages of %d as of now, not of %d with %v", podsPerPage, options.Limit, options.Raw)
	}
	if options.Continue != "" && c.fail != nil {
		return c.fail
	}
	all := &metav1.PartialObjectMetadataList{}
	all.SetGroupVersionKind(l.GetObjectKind().GroupVersionKind())
	if err := c.Reader.List(ctx, all, client.InNamespace(options.Namespace)); err != nil {
		return err
	}
	from := 0
	if options.Continue != "" {
		if _, err := fmt.Sscan(options.Continue, &from); err != nil {
			return err
		}
	}
	to := min(from+fewPods, len(all.Items))
	page := l.(*metav1.PartialObjectMetadataList)
	page.Items = all.Items[from:to]
	if to < len(all.Items) {
		page.Continue = fmt.Sprint(to)
	}
	return nil
}

func TestMissingPodsAreLookedForInAListWhereThatIsCheaper(t *testing.T) {
	for _, row := range []struct {
		name string
		// missing are asked for and not in the cache, known are all that it has, of
		// which some are asked for as well; late came since.
		missing, known, asked, late int
		list                        bool
	}{
		{"one of an empty namespace", 1, 0, 0, 0, false},
		{"two of an empty namespace", 2, 0, 0, 0, false},
		{"three of an empty namespace", 3, 0, 0, 0, true},
		{"three of a few pods", 3, podsPerRead, 0, 0, true},
		{"three of some more pods", 3, podsPerRead + 1, 0, 0, false},
		{"many of many pods", 6, 4 * podsPerRead, 0, 0, true},
		{"many of too many pods", 6, 4*podsPerRead + 1, 0, 0, false},
		{"known pods are read, not looked for", 0, 10, 10, 0, false},
		{"known pods do not make a list cheaper", 2, 10, 10, 0, false},
		{"known pods are read beside the list", 3, 10, 10, 0, true},
		{"pods that the cache does not know yet are read after the list", 5, 10, 0, 2, true},
		{"pods that the cache does not know yet are read", 2, 0, 0, 1, false},
	} {
		t.Run(row.name, func(t *testing.T) {
			known, others := pods("default", row.known), pods("other", 100)
			late := pods("default", row.known+row.late)
			cache, world := view(t, append(known, others...)).Build(), view(t, append(late, others...)).Build()
			server := &counted{Reader: world}
			var names []string
			for i := range row.asked {
				names = append(names, known[i].GetName())
			}
			for i := range row.missing {
				names = append(names, fmt.Sprintf("web-%d", row.known+i))
			}
			answers, err := podReader{server, cache}.read(t.Context(), "default", names)
			if err != nil {
				t.Fatal(err)
			}
			reads := row.asked + row.missing
			if row.list {
				reads = row.asked + row.late
			}
			if row.list != (len(server.lists) > 0) || len(server.gets) != reads {
				t.Errorf("%d pages, and reads %v, want %d", len(server.lists), server.gets, reads)
			}
			for i, name := range names {
				there := i < row.asked+row.late
				if got := answers[i].value; answers[i].err != nil || (got != nil) != there || (there && (got.Name != name || got.Namespace != "default")) {
					t.Errorf("pod %s, there: %t; got %+v", name, there, answers[i])
				}
			}
		})
	}
}

func TestAListThatFailsHalfWayTellsNothing(t *testing.T) {
	there := pods("default", 2*fewPods)
	cache, world := view(t, nil).Build(), view(t, there).Build()
	server := &counted{Reader: world, fail: apierrors.NewResourceExpired("too old")}
	answers, err := podReader{server, cache}.read(t.Context(), "default", []string{"web-0", "web-1", "web-9"})
	if answers != nil || !apierrors.IsResourceExpired(err) {
		t.Fatalf("got %v, %v", answers, err)
	}
	if want := "list the pods of namespace default, of which 3 are missing"; !strings.Contains(err.Error(), want) {
		t.Errorf("the error %q does not say %q", err, want)
	}
	if want := []string{"default/", "default/3"}; !slices.Equal(server.lists, want) {
		t.Errorf("pages %v, want %v", server.lists, want)
	}
}

// dueTogether are leases whose pods are gone in the cache and whose looks are
// under way: the first is at its live read, the others wait for the next.
type dueTogether struct {
	*bench
	names []string
	// next lets the live read under way go on; listed runs as a list begins.
	next    chan struct{}
	listed  func() error
	results []error
}

func lookTogether(t *testing.T, n int) *dueTogether {
	t.Helper()
	world := objects(poolObject(), agentOn("n1"))
	d := &dueTogether{next: make(chan struct{}), results: make([]error, n), listed: func() error { return nil }}
	for i := range n {
		lease := leaseObject()
		lease.Spec.Address = fmt.Sprintf("10.6.0.%d", 10+i)
		lease.Name, lease.UID = lease.Spec.Address, types.UID(lease.Spec.Address)
		lease.Spec.Holder.Pod = fmt.Sprintf("web-%d", i)
		world = append(world, lease)
		d.names = append(d.names, lease.Name)
	}
	d.bench = between(t, world, world)
	look := func(name string) error {
		_, err := d.reconciler.Reconcile(t.Context(), ctrl.Request{NamespacedName: types.NamespacedName{Name: name}})
		return err
	}
	// The first look sees the absence, the next one finds it due.
	for _, name := range d.names {
		if err := look(name); err != nil {
			t.Fatal(err)
		}
	}
	d.clock.Step(time.Hour)
	d.reconciler.Live = interceptor.NewClient(d.live.(client.WithWatch), interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			if _, ok := o.(*podview.Pod); ok {
				<-d.next
			}
			return c.Get(ctx, key, o, opts...)
		},
		List: func(ctx context.Context, c client.WithWatch, l client.ObjectList, opts ...client.ListOption) error {
			if err := d.listed(); err != nil {
				return err
			}
			return c.List(ctx, l, opts...)
		},
	})
	d.reconciler.live = liveWitnesses(d.reconciler.Live, d.reconciler.Client)
	for i, name := range d.names {
		go func() { d.results[i] = look(name) }()
		synctest.Wait()
	}
	return d
}

func (d *dueTogether) read(name string) *v1alpha1.IPLease {
	d.t.Helper()
	lease := &v1alpha1.IPLease{}
	if err := d.live.Get(context.Background(), types.NamespacedName{Name: name}, lease); err != nil {
		d.t.Fatal(err)
	}
	return lease
}

// TestAPodThatAppearsBeforeTheListSavesItsLease: the cached view had all pods gone (R11).
func TestAPodThatAppearsBeforeTheListSavesItsLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := lookTogether(t, 4)
		d.listed = func() error {
			pod := podObject()
			pod.Name, pod.Status.Phase = "web-2", corev1.PodRunning
			return d.live.Create(context.Background(), pod)
		}
		close(d.next)
		synctest.Wait()
		for i, name := range d.names {
			want := v1alpha1.StateQuarantined
			if i == 2 {
				want = v1alpha1.StateBound
			}
			if got := d.read(name).Spec.State; got != want || d.results[i] != nil {
				t.Errorf("lease %s of web-%d is %s (%v), want %s", name, i, got, d.results[i], want)
			}
		}
	})
}

// TestAFailedListTakesNothing: each lease that waited for it tells what was attempted.
func TestAFailedListTakesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, refused := lookTogether(t, 4), errors.New("refused")
		d.listed = func() error { return refused }
		close(d.next)
		synctest.Wait()
		for i, name := range d.names[1:] {
			err := d.results[i+1]
			if want := "look at lease " + name + " again: list the pods of namespace default, of which 3 are missing: refused"; err == nil || err.Error() != want {
				t.Errorf("lease %d: %v, want %s", i+1, err, want)
			}
			if got := d.read(name).Spec.State; got != v1alpha1.StateBound {
				t.Errorf("lease %s is %s", name, got)
			}
		}
	})
}
