// SPDX-License-Identifier: Apache-2.0

package holder_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fenceline/fenceline/agent/holder/refusal"
	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/cni/agentapi"
	"github.com/fenceline/fenceline/test/check"
	"github.com/fenceline/fenceline/test/fakenode"
)

// waits has an ADD wait for a full pool, and returns its end.
func waits(ctx context.Context, r *fakenode.Node, request agentapi.AddRequest) <-chan error {
	before := r.Waits.Now()
	end := make(chan error, 1)
	go func() {
		_, err := r.Add(ctx, request)
		end <- err
	}()
	r.Eventually("the ADD waits", func() bool { return r.Waits.Now() > before && r.API.Follows() > 0 })
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
	if e := <-r.Recorder.Events; !strings.Contains(e, "AddressAwaited waits up to 1m30s for an address: no IPv4 address for pod shop/web-0 interface eth0") ||
		!strings.Contains(e, "pool v4: it is exhausted, 1 of its 1 addresses have a lease") {
		t.Errorf("the first event is %q", e)
	}
	r.Want("10.0.0.2 Bound") // and nothing else exists while it waits
	entries := r.Journal.All()
	check.That(t, len(entries) == 0, "the journal has %d entries while the ADD waits", len(entries))
	lists := r.Calls("list")
	began := time.Now()
	r.API.Drop(l)
	check.OK(t, <-end)
	t.Logf("served after %s", time.Since(began))
	r.Want("10.0.0.2 Bound")
	check.That(t, r.Speaks(request, "10.0.0.2"), "the pod is mute: the guard of an earlier try is still on its interface")
	// A try lists pools, IPSubnets, reservations and the leases of its pod in the cache, and nothing at the API
	// server.
	got := r.Calls("list") - lists
	check.That(t, got == 4, "%d lists after the release, want the 4 of the cache", got)
	r.Eventually("the watch is closed", func() bool { return r.API.Follows() == 0 && r.Waits.Now() == 0 })
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
		if l := r.Lease("10.0.0.2", v1alpha1.StateBound); l.Spec.Holder.Pod != requests[i].Pod.Name {
			t.Fatalf("%s got it, want %s", l.Spec.Holder.Pod, requests[i].Pod.Name)
		}
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
			r.API.Drop(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web-0"}})
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
			n := len(r.Journal.All())
			check.That(t, n == 0 && len(r.FreeSlots()) == free, "%d entries and %d of %d slots are left", n, len(r.FreeSlots()), free)
			r.Eventually("the watch is closed", func() bool { return r.API.Follows() == 0 && r.Waits.Now() == 0 })
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
	if err == nil || refusal.Answer(err).Code != agentapi.CodeTryAgainLater || !strings.Contains(err.Error(), "the API server does not answer") {
		t.Errorf("got %v", err)
	}
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
			creates := r.Calls("create")
			lists := r.Calls("list")
			r.Waiting.Changed()
			r.Eventually("it has looked again", func() bool { return r.Calls("list") > lists+1 })
			r.Want(six.Name + " Bound")
			serve(r, six)
			check.OK(t, <-end)
			n := r.Calls("create") - creates
			check.That(t, n == 2, "%d leases were created after the first try, want one of each family", n)
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
