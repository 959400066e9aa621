// SPDX-License-Identifier: Apache-2.0

package access

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

// server answers as an API server whose tokens are the names of their users.
type server struct {
	authenticationclient.TokenReviewInterface
	rights func(authorizationv1.SubjectAccessReviewSpec) bool
	err    error
	asked  int
}

func (s *server) Create(_ context.Context, r *authenticationv1.TokenReview, _ metav1.CreateOptions) (*authenticationv1.TokenReview, error) {
	s.asked++
	if s.err != nil {
		return nil, s.err
	}
	r.Status.Authenticated = r.Spec.Token != "stranger"
	r.Status.User = authenticationv1.UserInfo{
		Username: r.Spec.Token, UID: "1", Groups: []string{"scrapers"}, Extra: map[string]authenticationv1.ExtraValue{"pod": {"p"}},
	}
	return r, nil
}

// accesses is the other half of a server.
type accesses struct {
	authorizationclient.SubjectAccessReviewInterface
	*server
}

func (a accesses) Create(_ context.Context, r *authorizationv1.SubjectAccessReview, _ metav1.CreateOptions) (*authorizationv1.SubjectAccessReview, error) {
	a.asked++
	r.Status.Allowed = a.rights(r.Spec)
	return r, nil
}

// byPath needs the request's own verb and path.
func byPath(r *http.Request) []Need {
	return []Need{{Verb: strings.ToLower(r.Method), Path: r.URL.Path}}
}

func TestOnlyATokenWithTheRightIsServed(t *testing.T) {
	const lasts = time.Minute
	api := &server{rights: func(s authorizationv1.SubjectAccessReviewSpec) bool {
		return s.User == "prometheus" && s.UID == "1" && slices.Equal(s.Groups, []string{"scrapers"}) && s.Extra["pod"][0] == "p" &&
			s.NonResourceAttributes.Path == "/metrics" && s.NonResourceAttributes.Verb == "get"
	}}
	now := clocktesting.NewFakeClock(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	j := Asking(api, accesses{server: api}, now, lasts)
	served := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) })
	handler := j.Filter(logr.Discard(), byPath, served)
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
		{"again, while the API server is away", "GET", "/metrics", "Bearer prometheus", lasts / 2, true, 200, 0},
		{"another path", "GET", "/debug", "Bearer prometheus", 0, false, 403, 2},
		{"another verb", "POST", "/metrics", "Bearer prometheus", 0, false, 403, 2},
		{"a minute later", "GET", "/metrics", "Bearer prometheus", lasts + 1, false, 200, 2},
		{"an API server that is away", "GET", "/metrics", "Bearer prometheus", lasts + 1, true, 500, 1},
	} {
		now.Step(row.after)
		api.asked, api.err = 0, nil
		if row.broken {
			api.err = errors.New("connection refused")
		}
		request := httptest.NewRequestWithContext(t.Context(), row.method, row.path, nil)
		request.Header.Set("Authorization", row.authorization)
		answer := httptest.NewRecorder()
		handler.ServeHTTP(answer, request)
		check.That(t, answer.Code == row.status && api.asked == row.asked,
			"%s: status %d after %d questions, want %d after %d", row.name, answer.Code, api.asked, row.status, row.asked)
		check.That(t, !strings.Contains(answer.Body.String(), "refused"), "%s: the answer says why: %s", row.name, answer.Body)
	}
}

func TestFewTokensAreRemembered(t *testing.T) {
	api := &server{rights: func(authorizationv1.SubjectAccessReviewSpec) bool { return true }}
	j := Asking(api, accesses{server: api}, clocktesting.NewFakeClock(time.Unix(1, 0)), time.Minute)
	for i := range 3 * rememberedRights {
		request := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", nil)
		request.Header.Set("Authorization", "Bearer "+strings.Repeat("x", i+1))
		check.OK(t, j.Allows(request, byPath(request)))
	}
	check.That(t, len(j.allowed.Keys()) <= rememberedRights, "%d rights are remembered", len(j.allowed.Keys()))
}

func TestEveryRightIsNeeded(t *testing.T) {
	leases, pools := Need{Verb: "list", Group: "fenceline.io", Resource: "ipleases"}, Need{Verb: "list", Group: "fenceline.io", Resource: "ippools"}
	for name, row := range map[string]struct {
		needs []Need
		want  error
		asked int
	}{
		"one that the token has":            {[]Need{leases}, nil, 2},
		"another one":                       {[]Need{pools}, ErrForbidden, 2},
		"both":                              {[]Need{leases, pools}, ErrForbidden, 3},
		"none, but the token must be known": {nil, nil, 1},
	} {
		api := &server{rights: func(s authorizationv1.SubjectAccessReviewSpec) bool {
			return *s.ResourceAttributes == authorizationv1.ResourceAttributes{Verb: "list", Group: "fenceline.io", Resource: "ipleases"}
		}}
		j := Asking(api, accesses{server: api}, clocktesting.NewFakeClock(time.Unix(1, 0)), time.Minute)
		request := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil)
		request.Header.Set("Authorization", "Bearer viewer")
		check.Is(t, j.Allows(request, row.needs), row.want, "%s: got", name)
		check.Equal(t, api.asked, row.asked, "%s: questions", name)
	}
}
