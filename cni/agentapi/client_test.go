// SPDX-License-Identifier: Apache-2.0

package agentapi

import (
	"context"
	"errors"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fenceline/fenceline/test/check"
)

// serve answers every call on a unix socket with h and returns its path.
func serve(t *testing.T, h http.HandlerFunc) string {
	t.Helper()
	// t.TempDir makes paths longer than the 108 bytes of a unix socket's address.
	dir := check.Value(os.MkdirTemp("", "flt"))(t)
	t.Cleanup(func() { os.RemoveAll(dir) })
	path := filepath.Join(dir, "agent.sock")
	l := check.Value(net.Listen("unix", path))(t)
	s := &http.Server{Handler: h}
	go func() { _ = s.Serve(l) }()
	t.Cleanup(func() { s.Close() })
	return path
}

func TestAnAgentThatIsNotThereIsAway(t *testing.T) {
	path := filepath.Join(t.TempDir(), "none.sock")
	err := NewClient(path).Status(t.Context())
	away, ok := errors.AsType[*NoAnswerError](err)
	check.Must(t, ok && away.Socket == path && errors.Is(err, os.ErrNotExist), "got %T %v", err, err)
	if strings.Count(err.Error(), path) != 1 || strings.Contains(err.Error(), "http://") {
		t.Errorf("%q should name the socket once and no URL", err)
	}
}

func TestAnAgentThatDiesDuringACallIsAway(t *testing.T) {
	path := serve(t, func(w http.ResponseWriter, r *http.Request) {
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		conn.Close()
	})
	err := NewClient(path).Del(t.Context(), DelRequest{})
	_, ok := errors.AsType[*NoAnswerError](err)
	check.That(t, ok, "got %T %v", err, err)
}

func TestACallThatIsGivenUpHadNoAnswer(t *testing.T) {
	hang := make(chan struct{})
	path := serve(t, func(http.ResponseWriter, *http.Request) { <-hang })
	defer close(hang)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	err := NewClient(path).Del(ctx, DelRequest{})
	_, ok := errors.AsType[*NoAnswerError](err)
	check.That(t, ok && errors.Is(err, context.Canceled), "got %T %v", err, err)
}

func TestAnAnswerInAnotherLanguageIsAnErrorThatAsksForTheRelease(t *testing.T) {
	for name, c := range map[string]struct {
		status int
		body   string
		code   uint
	}{
		"an error without code":    {http.StatusNotFound, "404 page not found", CodeInternal},
		"an error that is no JSON": {http.StatusBadGateway, "", CodeInternal},
		"a success that is none":   {http.StatusOK, "<html>", CodeDecodingFailure},
	} {
		t.Run(name, func(t *testing.T) {
			path := serve(t, func(w http.ResponseWriter, r *http.Request) {
				w.WriteHeader(c.status)
				_, _ = w.Write([]byte(c.body))
			})
			_, err := NewClient(path).Add(t.Context(), AddRequest{})
			e, ok := errors.AsType[*Error](err)
			check.That(t, ok && e.Code == c.code && strings.Contains(e.Msg, "same release"), "got %T %v", err, err)
		})
	}
}

func TestAnErrorKeepsItsCauseOnItsOwnSideOfTheSocket(t *testing.T) {
	e := Errorf(CodeTryAgainLater, "get lease %s: %w", "192.0.2.7", context.DeadlineExceeded)
	check.That(t, errors.Is(e, context.DeadlineExceeded) && e.Msg == "get lease 192.0.2.7: context deadline exceeded", "%v", e)
}
