package cniserver

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strconv"
	"syscall"

	"github.com/fenceline/fenceline/cni/agentapi"
)

// maxRequest bounds a request, in bytes. The largest is a GC: 100 bytes for
// each attachment of the node.
const maxRequest = 1 << 20

func (s *Server) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST "+agentapi.PathAdd, serve(s, "ADD", s.add, s.added))
	mux.HandleFunc("POST "+agentapi.PathDel, serve(s, "DEL", s.del, nil))
	mux.HandleFunc("POST "+agentapi.PathCheck, serve(s, "CHECK", s.check, nil))
	mux.HandleFunc("POST "+agentapi.PathGC, serve(s, "GC", s.gc, nil))
	mux.HandleFunc("GET "+agentapi.PathStatus, serve(s, "STATUS", s.status, nil))
	return mux
}

// nothing is a request without body, or an answer without one.
type nothing struct{}

// serve makes a handler of a verb: decode, run, measure, answer. What is to be
// done after the answer to a success may be nil.
func serve[Request, Answer any](
	s *Server, verb string, run func(context.Context, Request) (Answer, error), after func(Request),
) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		begin := s.clock.Now()
		request, err := decode[Request](w, r)
		var answer Answer
		if err == nil {
			answer, err = run(r.Context(), request)
		}
		took := s.clock.Since(begin)
		outcome := outcomeOf(r.Context(), err)
		s.durations.WithLabelValues(verb, string(outcome)).Observe(took.Seconds())
		log := s.log.WithValues("verb", verb, "result", outcome, "took", took).WithValues(subject(request)...)
		if err != nil {
			e := asError(verb, err)
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
			// What comes after must not keep the plugin waiting.
			_ = http.NewResponseController(w).Flush()
			after(request)
		}
	}
}

// decode reads the whole body: only after that does net/http watch the
// connection and end the context when the plugin goes away.
func decode[Request any](w http.ResponseWriter, r *http.Request) (Request, error) {
	var request Request
	text, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxRequest))
	if err != nil {
		return request, agentapi.Errorf(agentapi.CodeIOFailure, "read the request: %w", err)
	}
	if _, empty := any(request).(nothing); empty {
		return request, nil
	}
	if err := json.Unmarshal(text, &request); err != nil {
		return request, agentapi.Errorf(agentapi.CodeDecodingFailure,
			"decode the plugin's request: %w; are plugin and agent of the same release?", err)
	}
	return request, nil
}

// subject says in the log whom a request was about.
func subject(request any) []any {
	about := func(a agentapi.Attachment, p agentapi.Pod) []any {
		return []any{"container", a.ContainerID, "interface", a.Interface, "namespace", p.Namespace, "pod", p.Name, "uid", p.UID}
	}
	switch r := request.(type) {
	case agentapi.AddRequest:
		return about(r.Attachment, r.Pod)
	case agentapi.DelRequest:
		return about(r.Attachment, r.Pod)
	case agentapi.CheckRequest:
		return about(r.Attachment, r.Pod)
	case agentapi.GCRequest:
		return []any{"network", r.Network, "valid", len(r.Valid)}
	default:
		return nil
	}
}

// writeJSON answers a call. The plugin need not wait for the connection's end
// to know that the answer is whole.
func writeJSON(w http.ResponseWriter, status int, body any) {
	text, err := json.Marshal(body)
	if err != nil {
		// Both kinds of body are plain structures of ours.
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(text)))
	w.WriteHeader(status)
	// A plugin that is gone cannot be told so; the runtime's DEL settles it.
	_, _ = w.Write(text)
}

// isErrno tells whether the node's kernel refused something, as a full disk does.
func isErrno(err error) bool {
	_, ok := errors.AsType[syscall.Errno](err)
	return ok
}

// asError finds the CNI code for what a verb returned.
func asError(verb string, err error) *agentapi.Error {
	e, typed := errors.AsType[*agentapi.Error](err)
	switch {
	case typed:
	case errors.Is(err, errSuperseded), errors.Is(err, context.Canceled):
		e = agentapi.Errorf(agentapi.CodeTryAgainLater, "the call was cancelled: %w", err)
	case errors.Is(err, context.DeadlineExceeded):
		e = agentapi.Errorf(agentapi.CodeTryAgainLater, "the call took too long: %w; the agent's log says what it waited for", err)
	case isErrno(err):
		e = agentapi.Errorf(agentapi.CodeIOFailure, "%w", err)
	default:
		e = agentapi.Errorf(agentapi.CodeInternal, "%w", err)
	}
	if verb == "STATUS" {
		// The specification's for "not ready".
		c := *e
		c.Code = agentapi.CodeNotAvailable
		return &c
	}
	return e
}
