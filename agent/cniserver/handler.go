// SPDX-License-Identifier: Apache-2.0

package cniserver

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"

	"github.com/fenceline/fenceline/cni/agentapi"
)

// maxRequest bounds a request, in bytes. The largest is a GC: 100 for each attachment.
const maxRequest = 1 << 20

func (s *Server) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST "+agentapi.PathAdd, serve(s, "ADD", s.add, s.added))
	mux.HandleFunc("POST "+agentapi.PathDel, serve(s, "DEL", s.del, nil))
	mux.HandleFunc("POST "+agentapi.PathCheck, serve(s, "CHECK", s.check, nil))
	mux.HandleFunc("POST "+agentapi.PathGC, serve(s, "GC", s.gc, nil))
	mux.HandleFunc("GET "+agentapi.PathStatus, serve(s, "STATUS", s.status, nil))
	mux.HandleFunc("POST "+agentapi.PathDiagnosis, serve(s, "diagnosis", s.Backend.Diagnose, nil))
	return mux
}

// nothing is a request or an answer without a body.
type nothing struct{}

// serve returns the handler of a verb: it decodes the request, runs the verb, measures it and
// answers. The argument after is a function to call when a success is answered, or nil.
func serve[Request, Answer any](
	s *Server, verb string, run func(context.Context, Request) (Answer, error), after func(Request),
) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		begin := s.Clock.Now()
		request, err := decode[Request](w, r)
		var answer Answer
		if err == nil {
			answer, err = run(r.Context(), request)
		}
		took := s.Clock.Since(begin)
		outcome := outcomeOf(r.Context(), err)
		chained, subject := about(request)
		counted := verb
		if chained { // it gives no address, so it counts by itself
			counted = "chained " + verb
		}
		s.durations.WithLabelValues(counted, string(outcome)).Observe(took.Seconds())
		log := s.Log.WithValues("verb", verb, "result", outcome, "took", took).WithValues(subject...)
		if err != nil {
			e := cniError(verb, err)
			log.Info("CNI call failed", "code", e.Code, "error", err.Error())
			writeJSON(w, e.HTTPStatus(), e)
			return
		}
		log.V(1).Info("CNI call")
		if _, empty := any(answer).(nothing); empty {
			w.WriteHeader(http.StatusNoContent)
			return
		}
		writeJSON(w, http.StatusOK, answer)
		if after != nil {
			// The plugin must not wait for the function after.
			_ = http.NewResponseController(w).Flush()
			after(request)
		}
	}
}

// decode reads the whole body. Then net/http cancels the context when the plugin disconnects.
func decode[Request any](w http.ResponseWriter, r *http.Request) (Request, error) {
	var request Request
	text, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxRequest))
	if err != nil {
		return request, fmt.Errorf("%w: %w", errUnreadable, err)
	}
	if _, empty := any(request).(nothing); empty {
		return request, nil
	}
	if err := json.Unmarshal(text, &request); err != nil {
		return request, fmt.Errorf("%w: %w", errUndecodable, err)
	}
	return request, nil
}

// about reports whether a request is chained, and returns its subject for the log.
func about(request any) (chained bool, subject []any) {
	of := func(a agentapi.Attachment, p agentapi.Pod) []any {
		return []any{"container", a.ContainerID, "interface", a.Interface, "namespace", p.Namespace, "pod", p.Name, "uid", p.UID}
	}
	switch r := request.(type) {
	case agentapi.AddRequest:
		return r.Chained, of(r.Attachment, r.Pod)
	case agentapi.DelRequest:
		return r.Chained, of(r.Attachment, r.Pod)
	case agentapi.CheckRequest:
		return r.Chained, of(r.Attachment, r.Pod)
	case agentapi.GCRequest:
		return false, []any{"network", r.Network, "valid", len(r.Valid)}
	}
	return false, nil
}

// writeJSON answers a call. It sets Content-Length, so the plugin knows the end of the answer
// without waiting for the end of the connection.
func writeJSON(w http.ResponseWriter, status int, body any) {
	text, err := json.Marshal(body)
	if err != nil {
		// This is unreachable: both kinds of body are plain structures.
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(text)))
	w.WriteHeader(status)
	// If the plugin has disconnected, the runtime's DEL releases the addresses.
	_, _ = w.Write(text)
}
