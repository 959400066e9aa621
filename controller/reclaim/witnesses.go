package reclaim

import (
	"context"
	"fmt"
	"slices"
	"sync"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fenceline/fenceline/controller/podview"
)

const (
	// podsPerRead is how many pods of a list cost what the read of one pod costs.
	podsPerRead = 8
	// podsPerPage bounds what a list of pods takes in memory.
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

// offer names an EndpointSlice that offers an endpoint, or none.
func (l live) offer(ctx context.Context, namespace string, e endpoint) (slice string, err error) {
	return l.offers.ask(ctx, namespace, e)
}

// podReader reads the pods of a namespace.
type podReader struct{ server, cache client.Reader }

func (r podReader) read(ctx context.Context, namespace string, names []string) ([]answer[*podview.Pod], error) {
	if r.listIsCheaper(ctx, namespace, len(names)) {
		return r.list(ctx, namespace, names)
	}
	return eachOf(names, func(name string) (*podview.Pod, error) {
		return read[podview.Pod](ctx, r.server, namespace, name)
	}), nil
}

func (r podReader) listIsCheaper(ctx context.Context, namespace string, asked int) bool {
	limit := listLimit(asked)
	if limit == 0 {
		return false
	}
	var known podview.PodList
	err := r.cache.List(ctx, &known, client.InNamespace(namespace), client.Limit(int64(limit)+1), client.UnsafeDisableDeepCopy)
	return err == nil && len(known.Items) <= limit
}

// listLimit is how many pods a namespace may have for one list to cost less than
// a read of each pod that is asked for.
func listLimit(asked int) int {
	return max(0, asked-1) * podsPerRead
}

// list reads all pods of a namespace and keeps those that are asked for. All
// pages tell of one moment after the first was asked for.
func (r podReader) list(ctx context.Context, namespace string, names []string) ([]answer[*podview.Pod], error) {
	answers := make([]answer[*podview.Pod], len(names))
	for page := ""; ; {
		var pods podview.PodList
		err := r.server.List(ctx, &pods, client.InNamespace(namespace), client.Limit(podsPerPage), client.Continue(page))
		if err != nil {
			return nil, fmt.Errorf("list the pods of namespace %s, to read %d of them: %w", namespace, len(names), err)
		}
		for i := range pods.Items {
			if asked := slices.Index(names, pods.Items[i].Name); asked >= 0 {
				pod := pods.Items[i] // of its own, so that the page can go
				answers[asked].value = &pod
			}
		}
		if page = pods.Continue; page == "" {
			return answers, nil
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
