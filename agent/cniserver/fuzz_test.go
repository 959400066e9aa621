// SPDX-License-Identifier: Apache-2.0

package cniserver

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"testing"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/fenceline/fenceline/cni/agentapi"
	"github.com/fenceline/fenceline/cni/spool"
	"github.com/fenceline/fenceline/test/check"
)

// FuzzRequest: the backend sees a request that says the same when it is sent again, or the plugin
// gets a CNI error. No name in a request leads out of the spool.
func FuzzRequest(f *testing.F) {
	paths := []string{agentapi.PathAdd, agentapi.PathDel, agentapi.PathCheck, agentapi.PathGC, agentapi.PathStatus, "/"}
	for i := range paths {
		for _, body := range []string{
			``, `null`, `{}`, `[]`, `{"containerID":"c1","ifname":"eth0","netns":"/run/netns/c1","pod":{"namespace":"a","name":"b","uid":"u"}}`,
			`{"containerID":"../c1","ifname":"eth0"}`, `{"ips":["192.0.2.7","fe80::1%eth0"]}`, `{"valid":[]}`, `{"valid":null}`,
			`{"chained":true,"configured":[{"address":"192.0.2.7/24","gateway":"192.0.2.1"}],"routing":{"mode":"off","hostLink":false}}`,
			`{"network":{"name":"n","type":"macvlan","routes":[{"dst":"0.0.0.0/0","gw":"192.0.2.1"}]}}`, `{"network":"n","valid":[{}]}`,
		} {
			f.Add(byte(i), []byte(body))
		}
	}
	var seen [][2]any // each request, and a variable of its type
	see := func(r, again any) { seen = append(seen, [2]any{r, again}) }
	b := &brain{
		add: func(_ context.Context, r agentapi.AddRequest) (*agentapi.AddResponse, error) {
			see(r, &agentapi.AddRequest{})
			return &agentapi.AddResponse{}, nil
		},
		del: func(_ context.Context, r agentapi.DelRequest) error { see(r, &agentapi.DelRequest{}); return nil },
		check: func(_ context.Context, r agentapi.CheckRequest) error {
			see(r, &agentapi.CheckRequest{})
			return nil
		},
	}
	spooled := f.TempDir()
	s, err := New(Options{Backend: b, Spool: spool.Dir(spooled), Metrics: prometheus.NewRegistry(), Log: logr.Discard()})
	check.OK(f, err)
	handler := s.handler()
	f.Fuzz(func(t *testing.T, path byte, body []byte) {
		seen, b.dels, b.gcs = nil, nil, nil
		url, method := paths[int(path)%len(paths)], http.MethodPost
		if url == agentapi.PathStatus {
			method = http.MethodGet
		}
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, httptest.NewRequest(method, url, bytes.NewReader(body)))
		for _, gc := range b.gcs {
			check.That(t, gc.Valid != nil, "%s: a GC without a list", body)
			see(gc, &agentapi.GCRequest{})
		}
		switch {
		case w.Code == http.StatusNotFound && url == "/":
		case w.Code/100 == 2:
			if want := method == http.MethodPost; len(seen) == 1 != want {
				t.Errorf("%s %s: %d, and the backend saw %v", url, body, w.Code, seen)
			}
		default:
			var e agentapi.Error
			if err := json.Unmarshal(w.Body.Bytes(), &e); err != nil || e.Code == 0 || e.Msg == "" {
				t.Errorf("%s %s: %d %s", url, body, w.Code, w.Body)
			}
			if len(seen) > 0 {
				t.Errorf("%s %s: %s, and the backend saw %v", url, body, w.Body, seen)
			}
		}
		for _, r := range seen {
			sent := encoded(t, r[0])
			check.Is(t, json.Unmarshal(sent, r[1]), nil, "%s is seen as %s:", body, sent)
			again := encoded(t, r[1])
			check.That(t, bytes.Equal(again, sent), "%s is sent again as %s", sent, again)
		}
		left, err := os.ReadDir(spooled)
		check.That(t, err == nil && len(left) == 0, "the spool holds %v, %v", left, err)
	})
}

func encoded(t *testing.T, value any) []byte {
	t.Helper()
	return check.Value(json.Marshal(value))(t)
}
