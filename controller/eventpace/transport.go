// Package eventpace keeps events from competing with what they tell of: thousands
// at once would take a third of the API server's time, so they wait instead. Those
// that still wait when the controller ends are lost; leases, metrics and audit lines
// tell the same. Reclaims, of which there may be most, are told of in sum before
// they would wait (controller/reclaim).
package eventpace

import (
	"context"
	"fmt"
	"net/http"
	"strings"

	"k8s.io/client-go/util/flowcontrol"
)

const (
	// rate is how many events are written per second when there are many. Each
	// takes about 2 ms of the API server's CPU.
	rate = 10
	// burst is how many go out at once, which is all of them on an ordinary day.
	burst = 50
)

// Transport returns a wrapper of round trippers that share one pace.
func Transport() func(http.RoundTripper) http.RoundTripper {
	limiter := flowcontrol.NewTokenBucketRateLimiter(rate, burst)
	return func(next http.RoundTripper) http.RoundTripper { return transport{limiter, next} }
}

type transport struct {
	limiter interface{ Wait(context.Context) error }
	next    http.RoundTripper
}

func (t transport) RoundTrip(request *http.Request) (*http.Response, error) {
	if isEvent(request) {
		if err := t.limiter.Wait(request.Context()); err != nil {
			return nil, fmt.Errorf("wait for the turn of an event: %w", err)
		}
	}
	return t.next.RoundTrip(request)
}

// isEvent says whether a request writes an event, of either API.
func isEvent(request *http.Request) bool {
	if request.Method != http.MethodPost && request.Method != http.MethodPatch {
		return false
	}
	path := request.URL.Path
	return strings.HasSuffix(path, "/events") || strings.Contains(path, "/events/")
}
