// SPDX-License-Identifier: Apache-2.0

package holder_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"

	"github.com/fenceline/fenceline/agent/holder/refusal"
	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/cni/agentapi"
	"github.com/fenceline/fenceline/test/check"
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
	check.Says(t, <-r.Recorder.Events, "the controller has not made the pool of Pod shop/web-0 in IPSubnet floor yet")
	// It looks again when pools change, and follows nothing at the API server.
	lists := r.Calls("list")
	r.Eventually("another look", func() bool { r.Waiting.Changed(); return r.Calls("list") > lists })
	n := r.API.Follows()
	check.That(t, n == 0, "%d watches are open", n)
	pool := fakenode.V4("10.0.0.7")
	pool.Spec.IPSubnet, pool.Spec.Application = "floor", &v1alpha1.Application{Kind: "Pod", Namespace: "shop", Name: "web-0", Interface: "0"}
	r.API.Put(pool)
	r.Eventually("the answer", func() bool {
		r.Waiting.Changed() // a change may come before the ADD waits again
		select {
		case err := <-end:
			check.That(t, err == nil, "%v", err)
			return true
		default:
			return false
		}
	})
	r.Want("10.0.0.7 Bound")
}

// notes are the notes of the events that the API server keeps. A client of the API merges events that
// differ in their note alone.
type notes struct{ made chan string }

// record sends the events of a node to the API through such a client.
func record(t *testing.T, r *fakenode.Node) notes {
	t.Helper()
	n := notes{make(chan string, 20)}
	broadcaster := events.NewBroadcaster(n)
	t.Cleanup(broadcaster.Shutdown)
	scheme := runtime.NewScheme()
	check.OK(t, errors.Join(corev1.AddToScheme(scheme), v1alpha1.AddToScheme(scheme)))
	check.OK(t, broadcaster.StartRecordingToSinkWithContext(t.Context()))
	r.Holders.Events = broadcaster.NewRecorder(scheme, "agent")
	return n
}

func (n notes) Create(_ context.Context, e *eventsv1.Event) (*eventsv1.Event, error) {
	n.made <- e.Note
	return e, nil
}
func (n notes) Update(_ context.Context, e *eventsv1.Event) (*eventsv1.Event, error) { return e, nil }
func (n notes) Patch(_ context.Context, e *eventsv1.Event, _ []byte) (*eventsv1.Event, error) {
	return e, nil
}

// want waits for the next note.
func (n notes) want(t *testing.T, part string) {
	t.Helper()
	select {
	case note := <-n.made:
		check.Says(t, note, part)
	case <-time.After(time.Minute):
		t.Fatalf("no event says %q", part)
	}
}

// unserved says in the status of the IPSubnet why the pool of web-0 is not made.
func unserved(reason string) *v1alpha1.IPSubnet {
	s := &v1alpha1.IPSubnet{ObjectMeta: metav1.ObjectMeta{Name: "floor"}, Spec: v1alpha1.IPSubnetSpec{Subnet: "10.0.0.0/24"}}
	s.Status.Unserved = []v1alpha1.Unserved{{
		Application: v1alpha1.Application{Kind: "Pod", Namespace: "shop", Name: "web-0", Interface: "0"}, Message: reason,
	}}
	return s
}

// beginAdd starts an ADD. Its error comes on end.
func beginAdd(t *testing.T, r *fakenode.Node, request agentapi.AddRequest) (cancel func(), end chan error) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	end = make(chan error, 1)
	go func() {
		_, err := r.Add(ctx, request)
		end <- err
	}()
	return cancel, end
}

// The controller finds out later why it makes no pool. Then an event of the pod says so, once for each
// reason.
func TestAnADDTellsEachReasonForWhichItsPoolIsNotMade(t *testing.T) {
	r, request := askingNode(t)
	told := record(t, r)
	cancel, end := beginAdd(t, r, request)
	told.want(t, "in IPSubnet floor yet")
	for _, c := range []struct {
		reason string
		isTold bool
	}{{"reason 1", true}, {"reason 2", true}, {"reason 1", false}, {"reason 3", true}, {"one too many", false}} {
		r.API.Put(unserved(c.reason))
		lists := r.Calls("list")
		// A try lists less than ten times, so one begins after the change.
		r.Eventually("another look", func() bool { r.Waiting.Changed(); return r.Calls("list") > lists+10 })
		if c.isTold {
			told.want(t, "in IPSubnet floor yet: "+c.reason)
		}
	}
	cancel()
	check.That(t, <-end != nil, "a cancelled ADD has an address")
	select {
	case note := <-told.made:
		t.Errorf("another event: %q", note)
	default:
	}
}

func TestAnADDTellsThatItsPoolIsMadeAndFull(t *testing.T) {
	r, request := askingNode(t)
	told := record(t, r)
	cancel, end := beginAdd(t, r, request)
	told.want(t, "in IPSubnet floor yet")
	pool := fakenode.V4("10.0.0.2")
	pool.Spec.IPSubnet, pool.Spec.Application = "floor", &v1alpha1.Application{Kind: "Pod", Namespace: "shop", Name: "web-0", Interface: "0"}
	r.API.Put(fakenode.Held("10.0.0.2"))
	r.API.Put(pool)
	r.Eventually("an event", func() bool { r.Waiting.Changed(); return len(told.made) > 0 })
	told.want(t, "pool v4: it is exhausted")
	cancel()
	check.That(t, <-end != nil, "a cancelled ADD has an address")
}

func TestAnADDWhosePoolIsNotMadeInTimeSaysWhy(t *testing.T) {
	r, request := askingNode(t)
	r.API.Put(unserved("IPSubnet floor has no free address"))
	r.Patience = time.Second
	_, err := r.Add(t.Context(), request)
	if err == nil || refusal.Answer(err).Code != agentapi.CodeNoPool || !strings.Contains(err.Error(), "IPSubnet floor has no free address") {
		t.Errorf("got %v (%+v)", err, refusal.Answer(err))
	}
	r.Want()
}
