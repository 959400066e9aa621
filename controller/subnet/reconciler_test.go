// SPDX-License-Identifier: Apache-2.0

package subnet

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/events"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/internal/owner"
	"github.com/fenceline/fenceline/test/check"
)

// TestAStaleObjectHidesNoOtherFailure: a stale pass comes again at once, and says nothing.
func TestAStaleObjectHidesNoOtherFailure(t *testing.T) {
	stale := fmt.Errorf("resize pool a: %w", apierrors.NewConflict(schema.GroupResource{}, "a", errors.New("changed")))
	refused := errors.New("make pool b: admission webhook denied the request")
	for name, row := range map[string]struct {
		errs  []error
		want  error
		stale bool
	}{
		"nothing failed":                      {[]error{nil, nil}, nil, false},
		"an object is stale":                  {[]error{nil, stale, nil}, stale, true},
		"a stale object, and another failure": {[]error{stale, nil, refused}, refused, false},
	} {
		got := failureOf(row.errs)
		check.Is(t, got, row.want, "%s: got", name)
		check.Equal(t, isStale(got), row.stale, "%s: %v is stale:", name, got)
	}
}

// An application that lacks addresses of both families is told so once for each, not at every pass.
func TestApplicationIsToldOnce(t *testing.T) {
	recorder := events.NewFakeRecorder(8)
	r := Reconciler{Events: recorder, Owners: owner.Asker{Mapper: meta.NewDefaultRESTMapper(nil)}}
	lacks := func(v4, v6 string) Plan {
		u := func(message string, ipv6 bool) Unserved {
			return Unserved{Ref: owner.Ref{Kind: "Deployment", Name: "web"}, Unserved: v1alpha1.Unserved{Message: message}, IPv6: ipv6}
		}
		return Plan{Unserved: []Unserved{u(v4, false), u(v6, true)}}
	}
	for i, c := range []struct {
		plan Plan
		want int
	}{
		{lacks("no IPv4", "no IPv6"), 2},
		{lacks("no IPv4", "no IPv6"), 2},
		{lacks("no IPv4", "IPSubnet v6 does not exist"), 3},
		{Plan{}, 3},
		{lacks("no IPv4", "no IPv6"), 5},
	} {
		r.tell(c.plan)
		check.Equal(t, len(recorder.Events), c.want, "pass %d: events", i)
	}
}

// An answer is used while the pods of the owner stay the same, and for some time only.
func TestAnswersAreAskedOnce(t *testing.T) {
	var a answers
	asked, failure := 0, error(nil)
	begin := time.Unix(1000, 0)
	ask := func(after time.Duration, q question) (int, error) {
		a.begin(begin.Add(after))
		return a.ask(t.Context(), q, begin.Add(after), func(context.Context, owner.Ref) (int, error) {
			asked++
			return asked, failure
		})
	}
	two := question{ref: owner.Ref{Kind: "Rollout", Name: "web"}, newest: "b", pods: 2}
	three := two
	three.pods = 3
	for i, c := range []struct {
		after    time.Duration
		question question
		failure  error
		want     int
	}{
		{0, two, nil, 1},
		{remembered - 1, two, nil, 1},
		{remembered - 1, three, nil, 2},
		{remembered, two, nil, 3},
		{remembered + 1, question{ref: owner.Ref{Name: "broken"}}, errors.New("internal error"), 4},
		{remembered + askAgain, question{ref: owner.Ref{Name: "broken"}}, nil, 4},
		{remembered + askAgain + 1, question{ref: owner.Ref{Name: "broken"}}, nil, 5},
		{remembered + askAgain + 1, question{ref: owner.Ref{Name: "unscaled"}}, owner.ErrNoScale, 6},
		{2*remembered + askAgain, question{ref: owner.Ref{Name: "unscaled"}}, nil, 6},
		{2*remembered + askAgain + 1, question{ref: owner.Ref{Name: "unscaled"}}, nil, 7},
	} {
		failure = c.failure
		_, _ = ask(c.after, c.question)
		check.That(t, asked == c.want, "question %d: asked %d times, want %d", i, asked, c.want)
	}
}

// A kind whose API does not answer holds a pass up once, not once for each owner.
func TestSilentKindIsAskedOnceInAPass(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var a answers
		began, asked := time.Now(), 0
		silent := func(ctx context.Context, _ owner.Ref) (int, error) {
			asked++
			<-ctx.Done()
			return 0, ctx.Err()
		}
		a.begin(began)
		for _, name := range []string{"a", "b", "c"} {
			_, err := a.ask(t.Context(), question{ref: owner.Ref{Kind: "Rollout", Name: name}}, began, silent)
			check.That(t, err != nil, "%s is counted", name)
		}
		took := time.Since(began)
		check.That(t, asked == 1 && took == longestAnswer, "asked %d times in %s", asked, took)
		a.begin(began.Add(askAgain - 1))
		_, err := a.ask(t.Context(), question{ref: owner.Ref{Kind: "Rollout", Name: "b"}}, began, silent)
		check.That(t, err != nil && asked == 1, "the next pass asks for another owner of the kind: asked %d times, %v", asked, err)
		n, err := a.ask(t.Context(), question{ref: owner.Ref{Kind: "CloneSet"}}, began, func(context.Context, owner.Ref) (int, error) { return 2, nil })
		check.That(t, n == 2 && err == nil, "another kind: %d, %v", n, err)
	})
}
