// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"cmp"
	"net/http"

	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// verbs returns the label verb of each method. Lists and watches count as get.
func verbs() map[string]string {
	return map[string]string{
		http.MethodGet: "get", http.MethodPost: "create", http.MethodPut: "update", http.MethodPatch: "patch", http.MethodDelete: "delete",
	}
}

// Transport wraps a round tripper so that failed requests are counted by verb.
func (m *Metrics) Transport(next http.RoundTripper) http.RoundTripper {
	return promhttp.RoundTripperFunc(func(r *http.Request) (*http.Response, error) {
		response, err := next.RoundTrip(r)
		// A request that its caller cancelled, as at the end of a watch, did not fail.
		if (err != nil && r.Context().Err() == nil) || (err == nil && failed(response.StatusCode)) {
			m.apiErrors.WithLabelValues(cmp.Or(verbs()[r.Method], "other")).Inc()
		}
		return response, err
	})
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
