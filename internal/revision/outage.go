// SPDX-License-Identifier: Apache-2.0

package revision

import (
	"net/http"
	"sync/atomic"
)

// Outages reports when an API server answers again after an outage. A store can go back only during
// an outage, since the server is stopped for a restore.
type Outages struct {
	failed atomic.Bool
	over   chan struct{}
}

// NewOutages returns Outages for the requests of one process.
func NewOutages() *Outages { return &Outages{over: make(chan struct{}, 1)} }

// Transport observes requests and answers. Pass it to the Wrap of a rest.Config.
func (o *Outages) Transport(next http.RoundTripper) http.RoundTripper {
	return transport(func(r *http.Request) (*http.Response, error) {
		response, err := next.RoundTrip(r)
		switch {
		case err != nil && r.Context().Err() != nil:
			// The caller has cancelled the request.
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
