// SPDX-License-Identifier: Apache-2.0

package metrics

import "net/http"

// Values of the label verb. Lists and watches count as get.
const (
	verbGet    = "get"
	verbCreate = "create"
	verbUpdate = "update"
	verbPatch  = "patch"
	verbDelete = "delete"
	verbOther  = "other"
)

// Transport wraps a round tripper so that failed requests are counted by verb.
func (m *Metrics) Transport(next http.RoundTripper) http.RoundTripper {
	return transport{m, next}
}

type transport struct {
	metrics *Metrics
	next    http.RoundTripper
}

func (t transport) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := t.next.RoundTrip(request)
	// A request that its caller cancelled, as at the end of a watch, did not fail.
	if (err != nil && request.Context().Err() == nil) || (err == nil && failed(response.StatusCode)) {
		t.metrics.apiErrors.WithLabelValues(verb(request.Method)).Inc()
	}
	return response, err
}

// failed reports whether a status code is an error. Three codes are normal: a conflict (409), an
// absent object (404), and an expired watch (410).
func failed(code int) bool {
	switch code {
	case http.StatusConflict, http.StatusNotFound, http.StatusGone:
		return false
	default:
		return code >= http.StatusBadRequest
	}
}

// verb returns the Kubernetes verb of a request.
func verb(method string) string {
	switch method {
	case http.MethodGet:
		return verbGet
	case http.MethodPost:
		return verbCreate
	case http.MethodPut:
		return verbUpdate
	case http.MethodPatch:
		return verbPatch
	case http.MethodDelete:
		return verbDelete
	default:
		return verbOther
	}
}
