package revision

import (
	"net/http"
	"sync/atomic"
)

// Outages tell that an API server answers again that did not. Its store does not
// go back while it serves: it has to be stopped to be restored.
type Outages struct {
	failed atomic.Bool
	over   chan struct{}
}

// NewOutages returns the outages as one process meets them.
func NewOutages() *Outages { return &Outages{over: make(chan struct{}, 1)} }

// Transport looks at what passes; use it with rest.Config's Wrap.
func (o *Outages) Transport(next http.RoundTripper) http.RoundTripper {
	return transport(func(r *http.Request) (*http.Response, error) {
		response, err := next.RoundTrip(r)
		switch {
		case err != nil && r.Context().Err() != nil:
			// The caller went away.
		case err != nil || response.StatusCode >= http.StatusInternalServerError:
			o.failed.Store(true)
		case o.failed.Swap(false):
			select {
			case o.over <- struct{}{}:
			default:
			}
		}
		return response, err
	})
}

type transport func(*http.Request) (*http.Response, error)

func (t transport) RoundTrip(r *http.Request) (*http.Response, error) { return t(r) }
