// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"cmp"
	"net/http"
)

// verbs returns the label verb of each method. Lists and watches count as get.
func verbs() map[string]string {
	return map[string]string{
		http.MethodGet: "get", http.MethodPost: "create", http.MethodPut: "update", http.MethodPatch: "patch", http.MethodDelete: "delete",
	}
}

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
		t.metrics.apiErrors.WithLabelValues(cmp.Or(verbs()[request.Method], "other")).Inc()
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
