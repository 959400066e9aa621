// SPDX-License-Identifier: Apache-2.0

package metricsendpoint

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	authenticationclient "k8s.io/client-go/kubernetes/typed/authentication/v1"
	authorizationclient "k8s.io/client-go/kubernetes/typed/authorization/v1"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/fenceline/fenceline/test/check"
)

// judge answers as an API server whose tokens are the names of their users.
type judge struct {
	authenticationclient.TokenReviewInterface
	rights func(authorizationv1.SubjectAccessReviewSpec) bool
	err    error
	asked  int
}

func (j *judge) Create(_ context.Context, r *authenticationv1.TokenReview, _ metav1.CreateOptions) (*authenticationv1.TokenReview, error) {
	j.asked++
	if j.err != nil {
		return nil, j.err
	}
	r.Status.Authenticated = r.Spec.Token != "stranger"
	r.Status.User = authenticationv1.UserInfo{
		Username: r.Spec.Token, UID: "1", Groups: []string{"scrapers"}, Extra: map[string]authenticationv1.ExtraValue{"pod": {"p"}},
	}
	return r, nil
}

// accesses is the other half of a judge.
type accesses struct {
	authorizationclient.SubjectAccessReviewInterface
	*judge
}

func (a accesses) Create(_ context.Context, r *authorizationv1.SubjectAccessReview, _ metav1.CreateOptions) (*authorizationv1.SubjectAccessReview, error) {
	a.asked++
	r.Status.Allowed = a.rights(r.Spec)
	return r, nil
}

func TestOnlyATokenThatMayReadTheMetricsGetsThem(t *testing.T) {
	j := &judge{rights: func(s authorizationv1.SubjectAccessReviewSpec) bool {
		return s.User == "prometheus" && s.UID == "1" && slices.Equal(s.Groups, []string{"scrapers"}) && s.Extra["pod"][0] == "p" &&
			s.NonResourceAttributes.Path == "/metrics" && s.NonResourceAttributes.Verb == "get"
	}}
	now := clocktesting.NewFakeClock(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	a := &authorizer{tokens: j, access: accesses{judge: j}, clock: now, allowed: map[question]time.Time{}, asking: make(chan struct{}, questionsAtOnce)}
	served := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) })
	handler := check.Value(a.filter(logr.Discard(), served))(t)
	for _, row := range []struct {
		name, method, path, authorization string
		after                             time.Duration
		broken                            bool
		status, asked                     int
	}{
		{"no token", "GET", "/metrics", "", 0, false, 401, 0},
		{"no bearer", "GET", "/metrics", "Basic prometheus", 0, false, 401, 0},
		{"an empty token", "GET", "/metrics", "Bearer ", 0, false, 401, 0},
		{"a token of nobody", "GET", "/metrics", "Bearer stranger", 0, false, 401, 1},
		{"a token without the right", "GET", "/metrics", "Bearer tenant", 0, false, 403, 2},
		{"the right one", "GET", "/metrics", "Bearer prometheus", 0, false, 200, 2},
		{"again", "GET", "/metrics", "bearer prometheus", 0, false, 200, 0},
		{"again, while the API server is away", "GET", "/metrics", "Bearer prometheus", allowedFor / 2, true, 200, 0},
		{"another path", "GET", "/debug", "Bearer prometheus", 0, false, 403, 2},
		{"another verb", "POST", "/metrics", "Bearer prometheus", 0, false, 403, 2},
		{"a minute later", "GET", "/metrics", "Bearer prometheus", allowedFor, false, 200, 2},
		{"an API server that is away", "GET", "/metrics", "Bearer prometheus", allowedFor, true, 500, 1},
	} {
		now.Step(row.after)
		j.asked, j.err = 0, nil
		if row.broken {
			j.err = errors.New("connection refused")
		}
		request := httptest.NewRequestWithContext(t.Context(), row.method, row.path, nil)
		request.Header.Set("Authorization", row.authorization)
		answer := httptest.NewRecorder()
		handler.ServeHTTP(answer, request)
		if answer.Code != row.status || j.asked != row.asked {
			t.Errorf("%s: status %d after %d questions, want %d after %d", row.name, answer.Code, j.asked, row.status, row.asked)
		}
		if strings.Contains(answer.Body.String(), "refused") {
			t.Errorf("%s: the answer says why: %s", row.name, answer.Body)
		}
	}
}

func TestFewTokensAreRemembered(t *testing.T) {
	j := &judge{rights: func(authorizationv1.SubjectAccessReviewSpec) bool { return true }}
	a := &authorizer{tokens: j, access: accesses{judge: j}, clock: clocktesting.NewFakeClock(time.Unix(1, 0)), allowed: map[question]time.Time{}, asking: make(chan struct{}, questionsAtOnce)}
	for i := range 3 * rememberedTokens {
		request := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", nil)
		request.Header.Set("Authorization", "Bearer "+strings.Repeat("x", i+1))
		check.OK(t, a.authorize(request))
	}
	if n := len(a.allowed); n > rememberedTokens {
		t.Errorf("%d tokens are remembered", n)
	}
}
