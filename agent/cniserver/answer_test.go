// SPDX-License-Identifier: Apache-2.0

package cniserver

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"reflect"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/fenceline/fenceline/agent/ipam"
	"github.com/fenceline/fenceline/agent/refusal"
	"github.com/fenceline/fenceline/cni/agentapi"
	"github.com/fenceline/fenceline/cni/spool"
	"github.com/fenceline/fenceline/test/check"
)

func TestRequestAndAnswerOfAnADDArriveWhole(t *testing.T) {
	want := agentapi.AddRequest{
		Attachment: attachment("abc"),
		NetNS:      "/run/netns/abc",
		Pod:        agentapi.Pod{Namespace: "default", Name: "web-0", UID: "u"},
		Network: agentapi.Network{
			Name: "underlay", Type: "macvlan", Master: "eth1",
			DefaultIPv4IPPool: []string{"primary", "backup"}, DefaultIPv6IPPool: []string{"six"},
		},
		IPs:        []netip.Addr{netip.MustParseAddr("192.0.2.7")},
		Chained:    true,
		Configured: []agentapi.ConfiguredAddress{{Address: netip.MustParsePrefix("192.0.2.7/24"), Interface: "eth0", MAC: "02:00:00:00:00:01"}},
	}
	answer := agentapi.AddResponse{
		IPs: []agentapi.IP{
			{Address: netip.MustParsePrefix("192.0.2.7/24"), Gateway: netip.MustParseAddr("192.0.2.1")},
			{Address: netip.MustParsePrefix("2001:db8::7/64")},
		},
		Routes: []agentapi.Route{
			{Dst: netip.MustParsePrefix("0.0.0.0/0"), GW: netip.MustParseAddr("192.0.2.1")},
			{Dst: netip.MustParsePrefix("198.51.100.0/24")},
		},
	}
	var got agentapi.AddRequest
	r := start(t, &brain{add: func(_ context.Context, r agentapi.AddRequest) (*agentapi.AddResponse, error) {
		got = r
		return &answer, nil
	}})
	back := check.Value(r.Add(t.Context(), want))(t)
	check.That(t, reflect.DeepEqual(got, want), "the backend got  %+v\nthe client sent %+v", got, want)
	check.That(t, reflect.DeepEqual(*back, answer), "the client got     %+v\nthe backend answered %+v", *back, answer)
}

func TestWhatIsLeftForAfterTheAnswerKeepsNobodyWaiting(t *testing.T) {
	begun, done := make(chan agentapi.Attachment, 1), make(chan struct{})
	r := start(t, &brain{answered: func(a agentapi.Attachment) {
		begun <- a
		<-done
	}})
	defer close(done)
	check.Value(r.Add(t.Context(), agentapi.AddRequest{Attachment: attachment("abc")}))(t)
	check.Equal(t, <-begun, attachment("abc"), "it is done for")
}

func TestNothingIsLeftOfAnADDThatGaveNothing(t *testing.T) {
	var refuse error
	b := &brain{
		answered: func(a agentapi.Attachment) { t.Errorf("something is done for %v", a) },
		add: func(context.Context, agentapi.AddRequest) (*agentapi.AddResponse, error) {
			return &agentapi.AddResponse{}, refuse
		},
	}
	r := start(t, b)
	check.Value(r.Add(t.Context(), agentapi.AddRequest{Attachment: attachment("chained"), Chained: true}))(t)
	refuse = errors.New("no")
	check.Must(t, check.Err(r.Add(t.Context(), agentapi.AddRequest{Attachment: attachment("refused")})) != nil, "it was to be refused")
	check.OK(t, r.stop())
}

// full is an error of the rules.
var full = &ipam.NoPoolError{Rejected: []ipam.Rejection{{Pool: "p", Reason: ipam.Exhausted, Detail: "it is full"}}}

func TestErrorsReachTheRuntimeWithTheirCode(t *testing.T) {
	for name, c := range map[string]struct {
		err  error
		code uint
		msg  string
	}{
		"a typed error, wrapped":             {err: fmt.Errorf("add: %w", full), code: agentapi.CodeExhausted, msg: "enlarge a pool"},
		"any other error is internal":        {err: errors.New("boom"), code: agentapi.CodeInternal, msg: "boom"},
		"a full disk is the node's":          {err: &fs.PathError{Op: "write", Path: "entry", Err: syscall.ENOSPC}, code: agentapi.CodeIOFailure, msg: "no space left"},
		"a deadline inside means: try again": {err: fmt.Errorf("get lease: %w", context.DeadlineExceeded), code: agentapi.CodeTryAgainLater, msg: "get lease"},
	} {
		t.Run(name, func(t *testing.T) {
			r := start(t, &brain{add: func(context.Context, agentapi.AddRequest) (*agentapi.AddResponse, error) { return nil, c.err }})
			_, err := r.Add(t.Context(), addOf("abc"))
			e, ok := errors.AsType[*agentapi.Error](err)
			check.That(t, ok && e.Code == c.code && strings.Contains(e.Error(), c.msg), "got %T %v, want code %d and %q", err, err, c.code, c.msg)
		})
	}
}

func TestSTATUSHasTheCodeOfTheSpecification(t *testing.T) {
	for name, c := range map[string]struct {
		err  error
		code uint
	}{
		"caches not synced":      {refusal.New(refusal.TryAgain, "caches"), agentapi.CodeNotAvailable},
		"an error without code":  {errors.New("boom"), agentapi.CodeNotAvailable},
		"no BPF file system":     {refusal.New(refusal.NotReady, "bpffs"), agentapi.CodeNotAvailable},
		"ready, nothing to tell": {nil, 0},
	} {
		t.Run(name, func(t *testing.T) {
			r := start(t, &brain{status: func(context.Context) error { return c.err }})
			err := r.Status(t.Context())
			e, _ := errors.AsType[*agentapi.Error](err)
			check.That(t, (err == nil) == (c.code == 0) && (e == nil || e.Code == c.code), "got %v, want code %d", err, c.code)
		})
	}
}

func TestACallEndsAtItsDeadlineWithTryAgainLater(t *testing.T) {
	r := start(t, &brain{add: func(ctx context.Context, _ agentapi.AddRequest) (*agentapi.AddResponse, error) {
		<-ctx.Done()
		return nil, errors.New("gave up somewhere deep inside")
	}}, withCallTimeout(20*time.Millisecond))
	_, err := r.Add(t.Context(), addOf("abc"))
	e, ok := errors.AsType[*agentapi.Error](err)
	check.That(t, ok && e.Code == agentapi.CodeTryAgainLater, "got %v, want code 11", err)
}

func TestAGCWithoutAListReleasesNothing(t *testing.T) {
	r := start(t, &brain{})
	err := r.GC(t.Context(), agentapi.GCRequest{Network: "underlay"})
	e, ok := errors.AsType[*agentapi.Error](err)
	check.That(t, ok && e.Code == agentapi.CodeInvalidNetworkConfig, "got %v, want code 7", err)
	check.OK(t, r.GC(t.Context(), agentapi.GCRequest{Network: "underlay", Valid: []agentapi.Attachment{}}))
	check.That(t, len(r.brain.gcs) == 1 && r.brain.gcs[0].Valid != nil, "the backend got %+v, want the one with an empty list", r.brain.gcs)
}

func TestARequestThatIsNoJSONIsADecodingFailure(t *testing.T) {
	r := start(t, &brain{})
	conn := check.Value(net.Dial("unix", r.socket))(t)
	defer conn.Close()
	h := http.Client{Transport: &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) { return conn, nil }}}
	resp, err := h.Post("http://agent"+agentapi.PathAdd, "application/json", strings.NewReader("{"))
	check.OK(t, err)
	defer resp.Body.Close()
	check.That(t, resp.StatusCode == http.StatusBadRequest, "got %s", resp.Status)
}

func TestEachCallIsMeasuredByVerbAndResult(t *testing.T) {
	r := start(t, &brain{
		add:    func(context.Context, agentapi.AddRequest) (*agentapi.AddResponse, error) { return nil, full },
		check:  func(context.Context, agentapi.CheckRequest) error { return refusal.New(refusal.NotHeld, "gone") },
		status: func(context.Context) error { return errors.New("boom") },
	})
	ctx := t.Context()
	_, _ = r.Add(ctx, addOf("abc"))
	_ = r.Check(ctx, agentapi.CheckRequest{Attachment: attachment("abc")})
	_ = r.Del(ctx, delOf("abc"))
	_ = r.Status(ctx)
	families, err := r.metrics.Gather()
	check.Must(t, err == nil && len(families) == 1, "%d families, %v", len(families), err)
	got := map[string]bool{}
	for _, m := range families[0].Metric {
		got[m.Label[1].GetValue()+" "+m.Label[0].GetValue()] = true
		check.Equal(t, m.Histogram.Bucket[0].GetUpperBound(), .0005, "end of the first bucket in seconds:")
	}
	check.Same(t, got, map[string]bool{"ADD exhausted": true, "CHECK refused": true, "DEL ok": true, "STATUS error": true}, "measured")
}

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
		del:   func(_ context.Context, r agentapi.DelRequest) error { see(r, &agentapi.DelRequest{}); return nil },
		check: func(_ context.Context, r agentapi.CheckRequest) error { see(r, &agentapi.CheckRequest{}); return nil },
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
			check.Equal(t, len(seen) == 1, method == http.MethodPost, "%s %s: %d, the backend saw %v: one request", url, body, w.Code, seen)
		default:
			var e agentapi.Error
			err := json.Unmarshal(w.Body.Bytes(), &e)
			check.That(t, err == nil && e.Code != 0 && e.Msg != "", "%s %s: %d %s", url, body, w.Code, w.Body)
			check.That(t, len(seen) == 0, "%s %s: %s, and the backend saw %v", url, body, w.Body, seen)
		}
		for _, r := range seen {
			sent := encoded(t, r[0])
			check.Is(t, json.Unmarshal(sent, r[1]), nil, "%s is seen as %s:", body, sent)
			check.Equal(t, string(encoded(t, r[1])), string(sent), "it is sent again as")
		}
		left, err := os.ReadDir(spooled)
		check.That(t, err == nil && len(left) == 0, "the spool holds %v, %v", left, err)
	})
}

func encoded(t *testing.T, value any) []byte {
	t.Helper()
	return check.Value(json.Marshal(value))(t)
}

// hang is an Add that says when it has begun and returns when its context ends.
type hang struct {
	begun chan string
	ended chan error
}

func newHang() *hang { return &hang{begun: make(chan string, 16), ended: make(chan error, 16)} }

func (h *hang) add(ctx context.Context, r agentapi.AddRequest) (*agentapi.AddResponse, error) {
	h.begun <- r.ContainerID
	<-ctx.Done()
	h.ended <- context.Cause(ctx)
	return nil, ctx.Err()
}

func TestAPluginThatLeavesEndsItsADD(t *testing.T) {
	h := newHang()
	r := start(t, &brain{add: h.add})
	ctx, leave := context.WithCancel(t.Context())
	go func() { _, _ = r.Add(ctx, addOf("abc")) }()
	check.Receive(t, patience, "ADD at the backend", h.begun)
	leave()
	check.Is(t, check.Receive(t, patience, "end of the ADD", h.ended), context.Canceled, "the ADD ended by")
}

func TestAnADDThatSucceedsForNobodyIsUndone(t *testing.T) {
	begun := make(chan struct{})
	r := start(t, &brain{add: func(ctx context.Context, _ agentapi.AddRequest) (*agentapi.AddResponse, error) {
		close(begun)
		<-ctx.Done()
		return &agentapi.AddResponse{}, nil
	}})
	ctx, leave := context.WithCancel(t.Context())
	go func() { _, _ = r.Add(ctx, addOf("abc")) }()
	check.Receive(t, patience, "ADD at the backend", begun)
	leave()
	check.Becomes(t, patience, "the ADD is undone by a DEL", func() bool { return slices.Equal(r.brain.deleted(), []string{"abc"}) })
}

func TestADELGoesOnWhenThePluginLeaves(t *testing.T) {
	begun, proceed := make(chan struct{}), make(chan struct{})
	r := start(t, &brain{del: func(ctx context.Context, _ agentapi.DelRequest) error {
		close(begun)
		<-proceed
		return ctx.Err()
	}})
	ctx, leave := context.WithCancel(t.Context())
	left := make(chan error, 1)
	go func() { left <- r.Del(ctx, delOf("abc")) }()
	check.Receive(t, patience, "DEL at the backend", begun)
	leave()
	check.That(t, check.Receive(t, patience, "return of the client", left) != nil, "the client had an answer before the DEL was done")
	close(proceed)
	check.Becomes(t, patience, "the DEL succeeded", func() bool { return len(r.brain.deleted()) == 1 })
}

func TestADELEndsTheADDThatIsInItsWay(t *testing.T) {
	h := newHang()
	r := start(t, &brain{add: h.add})
	answered := make(chan error, 1)
	go func() { answered <- check.Err(r.Add(t.Context(), addOf("abc"))) }()
	check.Receive(t, patience, "ADD at the backend", h.begun)
	check.OK(t, r.Del(t.Context(), delOf("abc")))
	check.Is(t, check.Receive(t, patience, "end of the ADD", h.ended), errSuperseded, "the ADD ended by")
	err := check.Receive(t, patience, "answer to the ADD", answered)
	e, ok := errors.AsType[*agentapi.Error](err)
	check.That(t, ok && e.Code == agentapi.CodeTryAgainLater, "the ADD was answered %v, want code 11", err)
}

func TestCallsForOneAttachmentRunOneByOne(t *testing.T) {
	begun, proceed := make(chan string, 4), make(chan struct{})
	r := start(t, &brain{check: func(_ context.Context, r agentapi.CheckRequest) error {
		begun <- r.ContainerID
		<-proceed
		return nil
	}})
	done := make(chan error, 3)
	for _, id := range []string{"one", "two", "one"} {
		go func() { done <- r.Check(t.Context(), agentapi.CheckRequest{Attachment: attachment(id)}) }()
	}
	first := []string{check.Receive(t, patience, "first call", begun), check.Receive(t, patience, "second call", begun)}
	slices.Sort(first)
	check.Must(t, slices.Equal(first, []string{"one", "two"}), "%v run at the same time", first)
	select {
	case id := <-begun:
		t.Fatalf("a second call for %s runs", id)
	case <-time.After(50 * time.Millisecond): // the absence of a call has no event to wait for
	}
	close(proceed)
	for range 3 {
		check.Is(t, check.Receive(t, patience, "answer", done), nil, "got")
	}
}

func TestLanesLeaveNothingBehind(t *testing.T) {
	l := newLanes()
	_, leave, err := l.enter(t.Context(), attachment("abc"), yields)
	check.OK(t, err)
	impatient, cancel := context.WithCancel(t.Context())
	cancel()
	_, _, err = l.enter(impatient, attachment("abc"), insists)
	check.That(t, errors.Is(err, context.Canceled), "entered an occupied lane: %v", err)
	leave()
	check.That(t, len(l.occupied) == 0, "%d lanes are left", len(l.occupied))
}
