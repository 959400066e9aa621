package reclaim

import (
	"context"
	"fmt"
	"slices"
	"sync"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/controller/podview"
)

const (
	// readsPerList is how many reads of one pod cost as much as a list of none.
	readsPerList = 2
	// podsPerRead is how many pods of a list, of which it has the metadata, cost as
	// much as a read of one pod.
	podsPerRead = 25
	// podsPerPage bounds what a list takes in memory.
	podsPerPage = 500
)

// witnesses are the objects that a decision hangs on. One that does not exist is
// nil; none may be changed.
type witnesses interface {
	pod(ctx context.Context, namespace, name string) (*podview.Pod, error)
	node(ctx context.Context, name string) (*corev1.Node, error)
	statefulSet(ctx context.Context, namespace, name string) (*appsv1.StatefulSet, error)
}

// cached are witnesses as the cache knows them.
type cached struct{ reader client.Reader }

func (c cached) pod(ctx context.Context, namespace, name string) (*podview.Pod, error) {
	return read[podview.Pod](ctx, c.reader, namespace, name)
}

func (c cached) node(ctx context.Context, name string) (*corev1.Node, error) {
	return read[corev1.Node](ctx, c.reader, "", name)
}

func (c cached) statefulSet(ctx context.Context, namespace, name string) (*appsv1.StatefulSet, error) {
	return read[appsv1.StatefulSet](ctx, c.reader, namespace, name)
}

// live are witnesses as the API server has them, read after they were asked for
// (R11). Leases that are due together share reads.
type live struct {
	pods   *together[string, *podview.Pod]
	nodes  *together[string, *corev1.Node]
	sets   *together[string, *appsv1.StatefulSet]
	leases *together[string, *v1alpha1.IPLease]
	offers *together[endpoint, string]
}

// liveWitnesses asks server, the API server itself, and the cache for how many
// pods there are about.
func liveWitnesses(server, cache client.Reader) live {
	pods := podReader{server: server, cache: cache}
	return live{
		pods: readTogether(pods.read),
		nodes: readTogether(func(ctx context.Context, name string, _ []string) ([]answer[*corev1.Node], error) {
			node, err := read[corev1.Node](ctx, server, "", name)
			return []answer[*corev1.Node]{{node, err}}, nil
		}),
		sets: readTogether(func(ctx context.Context, namespace string, names []string) ([]answer[*appsv1.StatefulSet], error) {
			return eachOf(names, func(name string) (*appsv1.StatefulSet, error) {
				return read[appsv1.StatefulSet](ctx, server, namespace, name)
			}), nil
		}),
		leases: readTogether(func(ctx context.Context, name string, _ []string) ([]answer[*v1alpha1.IPLease], error) {
			lease, err := read[v1alpha1.IPLease](ctx, server, "", name)
			return []answer[*v1alpha1.IPLease]{{lease, err}}, nil
		}),
		offers: readTogether(sliceReader{server}.read),
	}
}

func (l live) pod(ctx context.Context, namespace, name string) (*podview.Pod, error) {
	return l.pods.ask(ctx, namespace, name)
}

func (l live) node(ctx context.Context, name string) (*corev1.Node, error) {
	return l.nodes.ask(ctx, name, name)
}

func (l live) statefulSet(ctx context.Context, namespace, name string) (*appsv1.StatefulSet, error) {
	return l.sets.ask(ctx, namespace, name)
}

func (l live) lease(ctx context.Context, name string) (*v1alpha1.IPLease, error) {
	return l.leases.ask(ctx, name, name)
}

// offer names an EndpointSlice that offers an endpoint, or none.
func (l live) offer(ctx context.Context, namespace string, e endpoint) (slice string, err error) {
	return l.offers.ask(ctx, namespace, e)
}

// podReader reads pods of a namespace.
type podReader struct{ server, cache client.Reader }

// read asks whether the pods that are not in the cache exist, all of them at
// once where that is cheaper, and reads the others one by one.
func (r podReader) read(ctx context.Context, namespace string, names []string) ([]answer[*podview.Pod], error) {
	var absent map[string]bool
	missing := slices.DeleteFunc(slices.Clone(names), func(name string) bool {
		pod, err := read[podview.Pod](ctx, r.cache, namespace, name)
		return err != nil || pod != nil
	})
	if r.listIsCheaper(ctx, namespace, len(missing)) {
		var err error
		if absent, err = r.absent(ctx, namespace, missing); err != nil {
			return nil, err
		}
	}
	return eachOf(names, func(name string) (*podview.Pod, error) {
		if absent[name] {
			return nil, nil
		}
		return read[podview.Pod](ctx, r.server, namespace, name)
	}), nil
}

func (r podReader) listIsCheaper(ctx context.Context, namespace string, missing int) bool {
	limit := listLimit(missing)
	if limit == 0 {
		return false
	}
	var known podview.PodList
	err := r.cache.List(ctx, &known, client.InNamespace(namespace), client.Limit(int64(limit)+1), client.UnsafeDisableDeepCopy)
	return err == nil && len(known.Items) <= limit
}

// listLimit is how many pods a namespace may have for one list of it to cost less
// than a read of each pod that is missing.
func listLimit(missing int) int {
	return max(0, missing-readsPerList) * podsPerRead
}

// absent returns those of the names that no pod of the namespace has. All pages
// tell of one moment after the first was asked for.
func (r podReader) absent(ctx context.Context, namespace string, names []string) (map[string]bool, error) {
	absent := make(map[string]bool, len(names))
	for _, name := range names {
		absent[name] = true
	}
	for page := ""; ; {
		pods := &metav1.PartialObjectMetadataList{}
		pods.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("PodList"))
		err := r.server.List(ctx, pods, client.InNamespace(namespace), client.Limit(podsPerPage), client.Continue(page))
		if err != nil {
			return nil, fmt.Errorf("list the pods of namespace %s, of which %d are missing: %w", namespace, len(names), err)
		}
		for i := range pods.Items {
			delete(absent, pods.Items[i].Name)
		}
		if page = pods.Continue; page == "" {
			return absent, nil
		}
	}
}

// eachOf reads all objects at the same time, each by itself.
func eachOf[T any](names []string, read func(name string) (T, error)) []answer[T] {
	answers := make([]answer[T], len(names))
	var reads sync.WaitGroup
	for i, name := range names {
		reads.Go(func() { answers[i].value, answers[i].err = read(name) })
	}
	reads.Wait()
	return answers
}
