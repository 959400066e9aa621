package eventpace

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"
)

// over is a pace whose burst is over.
type over struct{}

var errOver = errors.New("over")

func (over) Wait(context.Context) error { return errOver }

type sent struct{}

func (sent) RoundTrip(*http.Request) (*http.Response, error) {
	return &http.Response{Body: http.NoBody}, nil
}

func TestEventsBeyondTheBurstWaitAndNothingElseDoes(t *testing.T) {
	const event = "/apis/events.k8s.io/v1/namespaces/default/events"
	for _, row := range []struct {
		name, method, path string
		waits              bool
	}{
		{"an event", http.MethodPost, event, true},
		{"an event that is repeated", http.MethodPatch, event + "/web-0.17", true},
		{"an event of the core API", http.MethodPost, "/api/v1/namespaces/default/events", true},
		{"a write of a lease", http.MethodPut, "/apis/fenceline.io/v1alpha1/ipleases/10.6.0.2", false},
		{"a read of an event", http.MethodGet, event + "/web-0.17", false},
		{"a patch of a pod", http.MethodPatch, "/api/v1/namespaces/fenceline-system/pods/agent", false},
	} {
		t.Run(row.name, func(t *testing.T) {
			response, err := transport{over{}, sent{}}.RoundTrip(httptest.NewRequest(row.method, row.path, http.NoBody))
			if err == nil {
				err = response.Body.Close()
			}
			if waits := errors.Is(err, errOver); waits != row.waits {
				t.Errorf("got %v", err)
			}
		})
	}
}

func TestClientsOfOneProcessShareThePace(t *testing.T) {
	wrap := Transport()
	one, other := wrap(sent{}).(transport), wrap(sent{}).(transport)
	if one.limiter != other.limiter {
		t.Error("each has its own")
	}
	// What would have to wait longer than its caller does is not sent.
	ctx, cancel := context.WithDeadline(t.Context(), time.Now())
	defer cancel()
	request := httptest.NewRequest(http.MethodPost, "/api/v1/namespaces/default/events", http.NoBody).WithContext(ctx)
	if response, err := one.RoundTrip(request); err == nil {
		t.Error("sent", response.Body.Close())
	}
}
