// SPDX-License-Identifier: Apache-2.0

package lease

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/url"
	"os"
	"syscall"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/test/check"
)

// The API server's own rules are tested against a real one (tag api); here it misbehaves on purpose.

// faulty returns a store whose calls go through the interceptor, and the errors that it counted, by verb.
func faulty(t *testing.T, f interceptor.Funcs, leases ...client.Object) (*Store, map[string]int) {
	t.Helper()
	scheme := runtime.NewScheme()
	check.OK(t, v1alpha1.AddToScheme(scheme))
	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(leases...).WithInterceptorFuncs(f).Build()
	counted := map[string]int{}
	return NewStore(Options{
		Client: c, Reader: c, Node: me.Node, Session: me.Session, Clock: clocktesting.NewFakePassiveClock(now),
		CountError: func(verb string, err error) { counted[verb]++ },
	}), counted
}

var resource = schema.GroupResource{Group: v1alpha1.GroupName, Resource: "ipleases"}

func TestACreateWithoutAnAnswerIsUncertain(t *testing.T) {
	s, counted := faulty(t, interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			if err := c.Create(ctx, o, opts...); err != nil {
				return err
			}
			return &netOpError{}
		},
	})
	_, err := s.Create(t.Context(), request("c1"))
	check.Must(t, errors.Is(err, ErrUncertain) && IsUnavailable(err), "got %v", err)
	check.That(t, counted["create"] == 1, "counted %v", counted)
	// The lease is there, and found by its name.
	l := check.Value(s.Get(t.Context(), "10.0.0.5"))(t)
	for range 2 {
		check.Is(t, s.Delete(t.Context(), l), nil, "got")
	}
}

// TestAWriteThatMayComeTrueLateIsReadForATime, so that the View has its lease.
func TestAWriteThatMayComeTrueLateIsReadForATime(t *testing.T) {
	gets := 0
	s, _ := faulty(t, interceptor.Funcs{
		Create: func(context.Context, client.WithWatch, client.Object, ...client.CreateOption) error {
			return &netOpError{}
		},
		Update: func(context.Context, client.WithWatch, client.Object, ...client.UpdateOption) error {
			return &netOpError{}
		},
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			gets++
			return c.Get(ctx, key, o, opts...)
		},
	}, &v1alpha1.IPLease{ObjectMeta: metav1.ObjectMeta{Name: "10.0.0.6"}, Spec: v1alpha1.IPLeaseSpec{State: v1alpha1.StateWarm, NodeName: me.Node, Session: me.Session}})
	clock := clocktesting.NewFakePassiveClock(now)
	s.o.Clock, s.o.View = clock, NewView(me.Node)
	reads := func(what string, want int) {
		t.Helper()
		gets = 0
		check.OK(t, s.ReadLate(t.Context()))
		check.Equal(t, gets, want, "%s: reads", what)
	}
	reads("at first", 0)
	_, err := s.Create(t.Context(), request("c1"))
	check.Is(t, err, ErrUncertain, "create:")
	_, err = s.BindWarm(t.Context(), check.Value(s.Get(t.Context(), "10.0.0.6"))(t), request("c2"))
	check.Is(t, err, ErrUncertain, "bind:")
	reads("soon", 2)
	clock.SetTime(now.Add(LateWrite - time.Second))
	reads("within the time", 2)
	clock.SetTime(now.Add(2 * LateWrite))
	reads("after it", 2)
	reads("then", 0)
}

// netOpError is a connection that broke after the request was sent.
type netOpError struct{}

func (*netOpError) Error() string   { return "read: connection reset by peer" }
func (*netOpError) Unwrap() error   { return syscall.ECONNRESET }
func (*netOpError) Timeout() bool   { return false }
func (*netOpError) Temporary() bool { return true }

func TestAnAddressFreedDuringTheCreateIsTriedAgain(t *testing.T) {
	s, counted := faulty(t, interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			if err := c.Delete(ctx, leaseOf(other, "u")); client.IgnoreNotFound(err) != nil {
				return err
			}
			return c.Get(ctx, key, o, opts...)
		},
	}, leaseOf(other, "u"))
	l, err := s.Create(t.Context(), request("c1"))
	check.That(t, err == nil && l.Spec.Holder.ContainerID == "c1", "got %v, %v", l, err)
	check.That(t, len(counted) == 0, "answers were counted as failures: %v", counted)
}

func TestARefusedWriteIsNeitherUncertainNorUnavailable(t *testing.T) {
	refused := apierrors.NewForbidden(resource, "10.0.0.5", errors.New("not its node"))
	s, counted := faulty(t, interceptor.Funcs{
		Create: func(context.Context, client.WithWatch, client.Object, ...client.CreateOption) error { return refused },
		Delete: func(context.Context, client.WithWatch, client.Object, ...client.DeleteOption) error { return refused },
	})
	_, err := s.Create(t.Context(), request("c1"))
	for _, err := range []error{err, s.Delete(t.Context(), leaseOf(mine, "u"))} {
		check.That(t, apierrors.IsForbidden(err) && !errors.Is(err, ErrUncertain) && !IsUnavailable(err), "got %v", err)
	}
	check.That(t, counted["create"] == 1 && counted["delete"] == 1, "counted %v", counted)
}

func TestAnAwayAPIServerSaysNothingAboutALease(t *testing.T) {
	away := func() error { return &netOpError{} }
	s, counted := faulty(t, interceptor.Funcs{
		Get: func(context.Context, client.WithWatch, client.ObjectKey, client.Object, ...client.GetOption) error {
			return away()
		},
		List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error { return away() },
	})
	_, getErr := s.Get(t.Context(), "10.0.0.5")
	_, listErr := s.OfIdentity(t.Context(), &v1alpha1.Holder{Namespace: "shop", Pod: "web-0"})
	_, takenErr := s.TakenIn(t.Context(), "a")
	for _, err := range []error{getErr, listErr, takenErr} {
		check.That(t, IsUnavailable(err) && !errors.Is(err, ErrGone), "got %v", err)
	}
	check.That(t, counted["get"] == 1 && counted["list"] == 2, "counted %v", counted)
}

func TestAnUpdateThatLosesEveryRaceEnds(t *testing.T) {
	tries := 0
	s, _ := faulty(t, interceptor.Funcs{
		Update: func(context.Context, client.WithWatch, client.Object, ...client.UpdateOption) error {
			tries++
			return apierrors.NewConflict(resource, "10.0.0.5", errors.New("changed"))
		},
	}, leaseOf(mine, "u"))
	_, err := s.Update(t.Context(), leaseOf(mine, "u"), Confirm)
	check.That(t, apierrors.IsConflict(err) && tries == attempts, "got %v after %d tries", err, tries)
}

// A claim asks the last holder by its token, which is the version of the write that bound the lease.
func TestEachWriteAfterTheBindingKeepsTheTokenOfTheHolder(t *testing.T) {
	s, _ := faulty(t, interceptor.Funcs{})
	ctx := t.Context()
	step := func(l *v1alpha1.IPLease, err error) *v1alpha1.IPLease {
		t.Helper()
		check.OK(t, err)
		return l
	}
	tokenOf := func(l *v1alpha1.IPLease) uint64 { return check.Value(Token(l))(t) }
	want := func(l *v1alpha1.IPLease, token uint64) {
		t.Helper()
		check.Equal(t, l.LastToken(), token, "version %s names token", l.ResourceVersion)
	}
	l := step(s.Create(ctx, request("c1")))
	first := tokenOf(l)
	want(l, first)
	l = step(s.Update(ctx, l, RecordConflict(stranger)))
	want(l, first)
	l = step(s.Update(ctx, l, SetMAC("0a:58:0a:00:00:05")))
	want(l, first)
	l = step(s.Update(ctx, l, Renew))
	first = tokenOf(l)
	want(l, first)
	l = step(s.Update(ctx, l, Quarantine(v1alpha1.ReasonUnverified, "")))
	want(l, first)
	l = step(s.TakeOver(ctx, l, request("c2")))
	want(l, first) // until it is proven
	second := tokenOf(l)
	l = step(s.Update(ctx, l, Confirm))
	want(l, second)
	l = step(s.Update(ctx, l, Retain))
	want(l, second)
	l = step(s.TakeOver(ctx, l, request("c3")))
	want(l, tokenOf(l))
}

func TestWhichErrorsMeanTryAgainLater(t *testing.T) {
	leases := schema.GroupResource{Group: v1alpha1.GroupName, Resource: "ipleases"}
	overURL := func(err error) error { return &url.Error{Op: "Post", URL: "https://api", Err: err} }
	for rule, c := range map[string]struct {
		err  error
		want bool
	}{
		"no error":                         {nil, false},
		"connection refused":               {overURL(&net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}), true},
		"connection reset":                 {overURL(syscall.ECONNRESET), true},
		"an answer that ends early":        {overURL(io.ErrUnexpectedEOF), true},
		"no answer in time":                {overURL(context.DeadlineExceeded), true},
		"our deadline":                     {context.DeadlineExceeded, true},
		"the caller went away":             {overURL(context.Canceled), false},
		"429 too many requests":            {apierrors.NewTooManyRequests("slow down", 1), true},
		"500 etcd timed out":               {apierrors.NewInternalError(errors.New("etcdserver: request timed out")), true},
		"503 service unavailable":          {apierrors.NewServiceUnavailable("starting"), true},
		"504 timeout":                      {apierrors.NewTimeoutError("slow", 1), true},
		"server timeout":                   {apierrors.NewServerTimeout(leases, "create", 1), true},
		"502 from a proxy":                 {apierrors.NewGenericServerResponse(502, "POST", leases, "x", "bad gateway", 0, true), true},
		"401 while a token is rotated":     {apierrors.NewUnauthorized("expired"), true},
		"403 forbidden":                    {apierrors.NewForbidden(leases, "x", errors.New("policy")), false},
		"404 not found":                    {apierrors.NewNotFound(leases, "x"), false},
		"409 already exists":               {apierrors.NewAlreadyExists(leases, "x"), false},
		"409 conflict":                     {apierrors.NewConflict(leases, "x", errors.New("changed")), false},
		"422 invalid":                      {apierrors.NewInvalid(schema.GroupKind{Kind: "IPLease"}, "x", nil), false},
		"a lease that is taken":            {&TakenError{&v1alpha1.IPLease{}}, false},
		"a full disk":                      {&fs.PathError{Op: "write", Path: "entry", Err: syscall.ENOSPC}, false},
		"a link that is down":              {os.NewSyscallError("sendto", syscall.ENETDOWN), false},
		"an errno":                         {syscall.EPERM, false},
		"something else":                   {errors.New("no such transition"), false},
		"an unanswered write":              {uncertain(overURL(syscall.ECONNRESET)), true},
		"a refused write is not uncertain": {uncertain(apierrors.NewForbidden(leases, "x", nil)), false},
	} {
		t.Run(rule, func(t *testing.T) {
			check.Equal(t, IsUnavailable(c.err), c.want, "%v:", c.err)
			if c.err == nil {
				return
			}
			check.Equal(t, IsUnavailable(fmt.Errorf("create lease x: %w", c.err)), c.want, "wrapped:")
		})
	}
}

func TestATakenAddressSaysWhose(t *testing.T) {
	err := error(&TakenError{leaseOf(other, "u")})
	check.That(t, errors.Is(fmt.Errorf("create: %w", err), ErrTaken), "it is no ErrTaken")
	check.Equal(t, err.Error(), "address 10.0.0.5 is taken: Bound for pod shop/web-0 on node n2", "it says")
	check.Says(t, &TakenError{leaseOf(quarantined, "u")}, "Quarantined (PodGone)")
}

func TestTokens(t *testing.T) {
	for version, want := range map[string]uint64{"1": 1, "18446744073709551615": 1<<64 - 1, "": 0, "abc": 0, "-1": 0} {
		l := leaseOf(mine, "u")
		l.ResourceVersion = version
		got, err := Token(l)
		check.That(t, got == want && (err == nil) == (want != 0), "resourceVersion %q: %d, %v", version, got, err)
	}
}

func TestHowAHolderStandsToTheStore(t *testing.T) {
	told := func(s *spec) { s.Reason = v1alpha1.ReasonStoreWentBack }
	for rule, c := range map[string]struct {
		version string // of the lease
		spec    spec
		live    uint64
		want    Standing
	}{
		"written with the token":                            {"5000", mine, 6000, InStep},
		"edited since":                                      {"5500", mine, 6000, InStep},
		"another word of its record is none of this":        {"5500", with(mine, func(s *spec) { s.Reason = v1alpha1.ReasonPoolGone }), 6000, InStep},
		"the store went back":                               {"1010", mine, 1200, Ahead},
		"the store went back, as the lease says":            {"1020", with(mine, told), 1200, AheadRecorded},
		"the store has come as far again":                   {"1020", with(mine, told), 5000, CaughtUp},
		"the store has jumped ahead":                        {"1020", with(mine, told), 1_000_000_000, CaughtUp},
		"it did before the lease could say so":              {"1010", mine, 1_000_000_000, CaughtUp},
		"what the lease says was restored from that backup": {"5500", with(mine, told), 6000, CaughtUp},
	} {
		t.Run(rule, func(t *testing.T) {
			l := leaseOf(c.spec, "u")
			l.ResourceVersion = c.version
			check.Equal(t, StandingOf(l, 5000, c.live), c.want, "got")
		})
	}
}

func TestOnlyABoundLeaseSaysThatTheStoreWentBack(t *testing.T) {
	said, err := WentBack("why")(mine, me)
	check.That(t, err == nil && said.Reason == v1alpha1.ReasonStoreWentBack && said.Message == "why" && said.State == v1alpha1.StateBound,
		"%+v, %v", said, err)
	renewed, err := Renew(said, Owner{Now: time.Unix(9, 0)})
	check.That(t, err == nil && renewed.Reason == "" && renewed.Message == "" && renewed.Holder != nil && renewed.Since.Unix() == 9,
		"%+v, %v", renewed, err)
	for _, transition := range []Transition{WentBack("why"), Renew} {
		check.That(t, check.Err(transition(quarantined, me)) != nil, "a Quarantined lease is written")
	}
}

func TestARequestWithoutAHolderIsKeptReady(t *testing.T) {
	s, _ := faulty(t, interceptor.Funcs{})
	r := request("c1")
	r.Holder = v1alpha1.Holder{}
	l := check.Value(s.Create(t.Context(), r))(t)
	check.Same(t, l.Spec, with(kept, func(s *spec) { s.Since = metav1.NewTime(now) }), "the value")
}

func TestAWarmLeaseThatIsInOtherHandsIsNotBound(t *testing.T) {
	for rule, c := range map[string]struct {
		now  spec
		want error
	}{
		"thrown out":                              {with(kept, func(s *spec) { s.State = v1alpha1.StateQuarantined }), ErrNotMine},
		"bound to another container":              {mine, ErrNotMine},
		"bound to this one, unnoticed":            {with(mine, func(s *spec) { s.Holder.ContainerID = "c1" }), nil},
		"remarked on, and Warm as it was":         {with(kept, func(s *spec) { s.Message = "x" }), nil},
		"bound to this one in an earlier session": {with(rebooted, func(s *spec) { s.Holder.ContainerID = "c1" }), ErrNotMine},
	} {
		t.Run(rule, func(t *testing.T) {
			s, _ := faulty(t, interceptor.Funcs{}, leaseOf(kept, "u"))
			l := check.Value(s.Get(t.Context(), "10.0.0.5"))(t)
			changed := l.DeepCopy()
			changed.Spec = c.now
			check.OK(t, s.o.Client.Update(t.Context(), changed))
			bound, err := s.BindWarm(t.Context(), l, request("c1"))
			check.Must(t, errors.Is(err, c.want), "got %v, want %v", err, c.want)
			check.That(t, err != nil || bound.Spec.Holder.ContainerID == "c1", "bound to %v", bound)
		})
	}
}

func TestABindingWithoutAnAnswerIsUncertain(t *testing.T) {
	s, _ := faulty(t, interceptor.Funcs{
		Update: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.UpdateOption) error {
			if err := c.Update(ctx, o, opts...); err != nil {
				return err
			}
			return &netOpError{}
		},
	}, leaseOf(kept, "u"))
	_, err := s.BindWarm(t.Context(), check.Value(s.Get(t.Context(), "10.0.0.5"))(t), request("c1"))
	check.That(t, errors.Is(err, ErrUncertain) && IsUnavailable(err), "got %v", err)
}
