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

	"github.com/fenceline/fenceline/agent/refusal"
	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/cni/agentapi"
	"github.com/fenceline/fenceline/test/check"
	"github.com/fenceline/fenceline/test/fakenode"
)

// beginAdd starts an ADD, and returns its end.
func beginAdd(ctx context.Context, r *fakenode.Node, request agentapi.AddRequest) <-chan error {
	end := make(chan error, 1)
	go func() { end <- check.Err(r.Add(ctx, request)) }()
	return end
}

// waits has an ADD wait for a full pool, and returns its end.
func waits(ctx context.Context, r *fakenode.Node, request agentapi.AddRequest) <-chan error {
	before := r.Waits.Now()
	end := beginAdd(ctx, r, request)
	r.Eventually("the ADD waits", func() bool { return r.Waits.Now() > before })
	return end
}

// fullNode has a pool of one address, which a pod of another node has.
func fullNode(t *testing.T) (*fakenode.Node, *v1alpha1.IPLease) {
	r := fakenode.New(t, fakenode.V4("10.0.0.2"))
	l := fakenode.Held("10.0.0.2")
	r.API.Put(l)
	return r, l
}

func TestAReleaseWakesAnADDThatWaitsForAFullPool(t *testing.T) {
	r, l := fullNode(t)
	request := r.Pod("web-0", "u1")
	end := waits(t.Context(), r, request)
	check.Says(t, <-r.Recorder.Events, "AddressAwaited waits up to 1m30s for an address: no IPv4 address for pod shop/web-0 interface eth0",
		"pool v4: it is exhausted, 1 of its 1 addresses have a lease")
	r.Want("10.0.0.2 Bound") // and nothing else exists while it waits
	check.None(t, r.Attachments.All(), "while the ADD waits, the journal has")
	lists := r.Calls("list")
	r.API.Drop(l)
	check.OK(t, <-end)
	r.Want("10.0.0.2 Bound")
	check.That(t, r.Speaks(request, "10.0.0.2"), "the pod is mute: the guard of an earlier try is still on its interface")
	// A try lists pools, IPSubnets, reservations, Services and the leases of its pod in the cache, and nothing at the
	// API server.
	check.Equal(t, r.Calls("list")-lists, 5, "lists after the release:")
	r.Eventually("nothing is asked", func() bool { return len(r.Waiting.Waits()) == 0 && r.Waits.Now() == 0 })
}

// Another pod of the namespace may reach the limit of a pool while an ADD waits for it.
func TestAnOfferOfAPoolWhoseLimitWasReachedMeanwhile(t *testing.T) {
	r := fakenode.New(t, atMost(1, fakenode.V4("10.0.0.2-10.0.0.3")), other())
	elsewhere := leaseFor("bank", "10.1.0.2", func(s *v1alpha1.IPLeaseSpec) { s.Pool = "other" })
	for _, l := range []*v1alpha1.IPLease{leaseFor("bank", "10.0.0.2", nil), leaseFor("bank", "10.0.0.3", nil), elsewhere} {
		r.API.Put(l)
	}
	web := r.Pod("web-0", "u1")
	web.Network.DefaultIPv4IPPool = []string{"v4", "other"}
	end := waits(t.Context(), r, web)
	r.API.Put(leaseFor("shop", "10.0.0.2", nil))
	lists := r.Calls("list")
	r.API.Drop(leaseFor("bank", "10.0.0.3", nil))
	r.Eventually("the ADD looks at the offer", func() bool { return r.Calls("list") > lists })
	r.API.Drop(elsewhere)
	check.OK(t, <-end)
	r.Lease("10.1.0.2", v1alpha1.StateBound)
}

func TestANewcomerDoesNotOvertakeAnADDThatWaits(t *testing.T) {
	r, l := fullNode(t)
	requests := []agentapi.AddRequest{r.Pod("web-0", "u1"), r.Pod("web-1", "u2"), r.Pod("web-2", "u3")}
	var ends []<-chan error
	for _, request := range requests {
		ends = append(ends, waits(t.Context(), r, request))
	}
	r.API.Drop(l)
	for i, end := range ends {
		check.OK(t, <-end)
		l := r.Lease("10.0.0.2", v1alpha1.StateBound)
		check.Must(t, l.Spec.Holder.Pod == requests[i].Pod.Name, "%s got it, want %s", l.Spec.Holder.Pod, requests[i].Pod.Name)
		r.MustDel(requests[i])
		r.End(requests[i])
	}
}

func TestAPoolThatIsExtendedServesTheADDsThatWait(t *testing.T) {
	r, _ := fullNode(t)
	ends := []<-chan error{waits(t.Context(), r, r.Pod("web-0", "u1")), waits(t.Context(), r, r.Pod("web-1", "u2"))}
	r.API.Put(fakenode.V4("10.0.0.2-10.0.0.4"))
	r.Waiting.Changed()
	for _, end := range ends {
		check.OK(t, <-end)
	}
	r.Want("10.0.0.2 Bound", "10.0.0.3 Bound", "10.0.0.4 Bound")
}

func TestAnADDThatWaitsEndsWithoutATrace(t *testing.T) {
	cancelled := errors.New("a DEL came")
	for name, c := range map[string]struct {
		end  func(*fakenode.Node, context.CancelCauseFunc)
		code uint
		says string
	}{
		"the runtime cancels it": {func(_ *fakenode.Node, cancel context.CancelCauseFunc) { cancel(cancelled) }, agentapi.CodeInternal, "a DEL came"},
		"the agent stops":        {func(r *fakenode.Node, _ context.CancelCauseFunc) { r.Stop() }, agentapi.CodeTryAgainLater, "the agent is stopping"},
		"its pod ends": {func(r *fakenode.Node, _ context.CancelCauseFunc) {
			now := metav1.Now()
			r.Pod("web-0", "u1", func(p *corev1.Pod) { p.DeletionTimestamp = &now })
			r.Waiting.Changed()
		}, agentapi.CodeTryAgainLater, "pod shop/web-0 ends"},
		"its pod is gone": {func(r *fakenode.Node, _ context.CancelCauseFunc) {
			r.API.Drop(fakenode.PodOf("web-0"))
			r.Waiting.Changed()
		}, agentapi.CodeTryAgainLater, "does not exist"},
		"its pool is disabled": {func(r *fakenode.Node, _ context.CancelCauseFunc) {
			p, yes := fakenode.V4("10.0.0.2"), true
			p.Spec.Disable = &yes
			r.API.Put(p)
			r.Waiting.Changed()
		}, agentapi.CodeNoPool, "it is disabled"},
	} {
		t.Run(name, func(t *testing.T) {
			r, _ := fullNode(t)
			ctx, cancel := context.WithCancelCause(t.Context())
			defer cancel(nil)
			end := waits(ctx, r, r.Pod("web-0", "u1"))
			free := len(r.FreeSlots())
			c.end(r, cancel)
			err := <-end
			check.That(t, err != nil && refusal.Answer(err).Code == c.code && strings.Contains(err.Error(), c.says), "got %v", err)
			r.Want("10.0.0.2 Bound")
			n := len(r.Attachments.All())
			check.That(t, n == 0 && len(r.FreeSlots()) == free, "%d entries and %d of %d slots are left", n, len(r.FreeSlots()), free)
			r.Eventually("nothing is asked", func() bool { return len(r.Waiting.Waits()) == 0 && r.Waits.Now() == 0 })
		})
	}
}

func TestAWaitWithoutTheAPIServerEndsInTime(t *testing.T) {
	r, _ := fullNode(t)
	ctx, cancel := context.WithTimeout(t.Context(), refusedLater)
	defer cancel()
	end := waits(ctx, r, r.Pod("web-0", "u1"))
	r.API.SetAway(true)
	err := <-end
	check.That(t, isCode(err, agentapi.CodeTryAgainLater), "got %v", err)
	check.Says(t, err, "the API server does not answer")
	check.That(t, ctx.Err() == nil, "the answer came after the deadline")
}

// refusedLater is the deadline of an ADD that waits for a second.
const refusedLater = 4 * time.Second

// A pod with two families holds no address of one family while it waits for the other.
func TestADualStackPodHoldsNothingWhileItWaits(t *testing.T) {
	for name, serve := range map[string]func(r *fakenode.Node, six *v1alpha1.IPLease){
		"until an address is released": func(r *fakenode.Node, six *v1alpha1.IPLease) { r.API.Drop(six) },
		"until the pool is enlarged": func(r *fakenode.Node, _ *v1alpha1.IPLease) {
			r.API.Put(fakenode.Pool("v6", "fd00::/120", v1alpha1.ModeEnforce, "fd00::2-fd00::3"))
			r.Waiting.Changed()
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := fakenode.New(t, fakenode.V4("10.0.0.2-10.0.0.9"), fakenode.Pool("v6", "fd00::/120", v1alpha1.ModeEnforce, "fd00::2"))
			six := fakenode.Held("fd00::2")
			six.Spec.Pool = "v6"
			r.API.Put(six)
			request := r.Pod("web-0", "u1")
			end := waits(t.Context(), r, request)
			check.Says(t, <-r.Recorder.Events, "AddressAwaited", "pool v6: it is exhausted, 1 of its 1 addresses have a lease")
			r.Want(six.Name + " Bound")
			creates, lists := r.Calls("create"), r.Calls("list")
			r.Waiting.Changed()
			r.Eventually("it has looked again", func() bool { return r.Calls("list") > lists+1 })
			r.Want(six.Name + " Bound")
			serve(r, six)
			check.OK(t, <-end)
			check.Equal(t, r.Calls("create")-creates, 2, "leases created after the first try, one of each family:")
			families := map[string]int{}
			for _, l := range r.API.Leases() {
				if l.Spec.Holder.ContainerID == request.ContainerID && l.Spec.State == v1alpha1.StateBound {
					families[l.Spec.Pool]++
				}
			}
			check.That(t, families["v4"] == 1 && families["v6"] == 1, "the pod has addresses of %v; left %v", families, r.Names())
		})
	}
}

// askingNode has a pod that asks for a pool of an IPSubnet, which nobody has made yet.
func askingNode(t *testing.T) (*fakenode.Node, agentapi.AddRequest) {
	t.Helper()
	r := fakenode.New(t)
	r.API.Put(&v1alpha1.IPSubnet{ObjectMeta: metav1.ObjectMeta{Name: "floor"}, Spec: v1alpha1.IPSubnetSpec{Subnet: "10.0.0.0/24"}})
	return r, r.Pod("web-0", "u1", fakenode.Annotated(v1alpha1.AnnotationPrefix+"subnet", `{"ipv4":["floor"]}`),
		fakenode.Annotated(v1alpha1.AnnotationPrefix+"ippool-ip-number", "1"))
}

func TestAnADDGetsAnAddressOnceItsPoolIsMade(t *testing.T) {
	r, request := askingNode(t)
	end := beginAdd(t.Context(), r, request)
	check.Says(t, <-r.Recorder.Events, "the controller has not made the pool of Pod shop/web-0 in IPSubnet floor yet")
	// It looks again when pools change, and asks for no address.
	lists := r.Calls("list")
	r.Eventually("another look", func() bool { r.Waiting.Changed(); return r.Calls("list") > lists })
	check.None(t, r.Waiting.Waits(), "it waits for")
	r.API.Put(madePool("10.0.0.7"))
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
	check.Says(t, check.Receive(t, time.Minute, "an event that says "+part, n.made), part)
}

// application is web-0 to the controller.
var application = v1alpha1.Application{Kind: "Pod", Namespace: "shop", Name: "web-0", Interface: "0"}

// madePool is the pool that the controller makes for web-0.
func madePool(ips ...string) *v1alpha1.IPPool {
	p := fakenode.V4(ips...)
	p.Spec.IPSubnet, p.Spec.Application = "floor", &application
	return p
}

// unserved says in the status of the IPSubnet why the pool of web-0 is not made.
func unserved(reason string) *v1alpha1.IPSubnet {
	s := &v1alpha1.IPSubnet{ObjectMeta: metav1.ObjectMeta{Name: "floor"}, Spec: v1alpha1.IPSubnetSpec{Subnet: "10.0.0.0/24"}}
	s.Status.Unserved = []v1alpha1.Unserved{{Application: application, Message: reason}}
	return s
}

// The controller finds out later why it makes no pool. Then an event of the pod says so, once for each
// reason.
func TestAnADDTellsEachReasonForWhichItsPoolIsNotMade(t *testing.T) {
	r, request := askingNode(t)
	told := record(t, r)
	ctx, cancel := context.WithCancel(t.Context())
	end := beginAdd(ctx, r, request)
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
	ctx, cancel := context.WithCancel(t.Context())
	end := beginAdd(ctx, r, request)
	told.want(t, "in IPSubnet floor yet")
	r.API.Put(fakenode.Held("10.0.0.2"))
	r.API.Put(madePool("10.0.0.2"))
	r.Eventually("an event", func() bool { r.Waiting.Changed(); return len(told.made) > 0 })
	told.want(t, "pool v4: it is exhausted")
	cancel()
	check.That(t, <-end != nil, "a cancelled ADD has an address")
}

func TestAnADDWhosePoolIsNotMadeInTimeSaysWhy(t *testing.T) {
	r, request := askingNode(t)
	r.API.Put(unserved("IPSubnet floor has no free address"))
	r.Patience = time.Second
	err := check.Err(r.Add(t.Context(), request))
	check.That(t, isCode(err, agentapi.CodeNoPool), "got %v", err)
	check.Says(t, err, "IPSubnet floor has no free address")
	r.Want()
}
