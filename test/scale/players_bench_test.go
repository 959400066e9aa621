// SPDX-License-Identifier: Apache-2.0

//go:build bench

package scale

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/rest"

	"github.com/fenceline/fenceline/test/check"
)

// The resources that agents watch.
const (
	leasesPath = "/apis/fenceline.io/v1alpha1/ipleases"
)

// streamsEach is how many watches share an HTTP/2 connection. A request beyond the API server's limit of streams would
// wait for the end of a watch.
const streamsEach = 80

// players are the agents of all nodes. They share a few HTTP/2 connections.
type players struct {
	*testing.T
	access *rest.Config
	calls  *http.Client
	mu     sync.Mutex
	// free has each client of watches as often as further watches may use it.
	free []*http.Client
	// refused counts the requests that the API server put off (429).
	refused atomic.Int64
	// ended counts the watches that the API server ended.
	ended atomic.Int64
}

func newPlayers(t *testing.T, access *rest.Config) *players {
	t.Helper()
	p := &players{T: t, access: access}
	p.calls = p.connect()
	return p
}

// connect returns a client with a connection of its own: clients with equal configurations share one.
func (p *players) connect() *http.Client {
	own := rest.CopyConfig(p.access)
	own.Dial = (&net.Dialer{}).DialContext
	return check.Value(rest.HTTPClientFor(own))(p)
}

// take returns a client for one more watch, which is given back by give.
func (p *players) take() *http.Client {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.free) == 0 {
		p.free = slices.Repeat([]*http.Client{p.connect()}, streamsEach)
	}
	last := len(p.free) - 1
	c := p.free[last]
	p.free = p.free[:last]
	return c
}

func (p *players) give(c *http.Client) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.free = append(p.free, c)
}

// ask sends a request until the API server does not put it off. The caller closes the body.
func (p *players) ask(ctx context.Context, by *http.Client, method, path string, query url.Values, body []byte) (*http.Response, error) {
	for {
		request, err := http.NewRequestWithContext(ctx, method, p.access.Host+path+"?"+query.Encode(), bytes.NewReader(body))
		if err != nil {
			return nil, err
		}
		request.Header.Set("Accept", "application/json")
		if method == http.MethodPatch {
			request.Header.Set("Content-Type", "application/merge-patch+json")
		} else if body != nil {
			request.Header.Set("Content-Type", "application/json")
		}
		response, err := by.Do(request)
		if err != nil {
			return nil, err
		}
		switch {
		case response.StatusCode == http.StatusTooManyRequests:
			response.Body.Close()
			p.refused.Add(1)
			seconds, _ := strconv.Atoi(response.Header.Get("Retry-After"))
			select {
			case <-time.After(time.Duration(max(seconds, 1)) * time.Second): // as client-go does
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		case response.StatusCode >= http.StatusBadRequest:
			said, _ := io.ReadAll(io.LimitReader(response.Body, 1000))
			response.Body.Close()
			return nil, fmt.Errorf("%s %s: %s: %s", method, path, response.Status, said)
		default:
			return response, nil
		}
	}
}

// call is ask for a request whose answer ends. It decodes the answer into out, unless that is nil.
func (p *players) call(ctx context.Context, method, path string, query url.Values, body []byte, out any) error {
	response, err := p.ask(ctx, p.calls, method, path, query, body)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if out == nil {
		_, err = io.Copy(io.Discard, response.Body)
		return err
	}
	return json.NewDecoder(response.Body).Decode(out)
}

// revision is the present version of the objects of a resource.
func (p *players) revision(ctx context.Context, path string) (string, error) {
	var list struct {
		Metadata struct{ ResourceVersion string }
	}
	err := p.call(ctx, http.MethodGet, path, url.Values{"limit": {"1"}}, nil, &list)
	return list.Metadata.ResourceVersion, err
}

// event is what a player reads of an event of a watch.
type event struct {
	Type   string
	Object struct {
		Metadata struct {
			Name, ResourceVersion string
			Annotations           map[string]string
		}
		Spec struct {
			State, NodeName, Pool, Start string
		}
		Status struct {
			Start   string
			Changed []struct{ Name, Version string }
		}
	}
}

// watch opens a watch and returns when the API server has accepted it. Each event goes to heard until ctx ends, also
// after the API server has ended a watch, as it does if a client is slow. heard returns the version from which the watch
// goes on, or "" for the same one.
func (p *players) watch(ctx context.Context, running *sync.WaitGroup, path string, query url.Values, heard func(line []byte) string) error {
	query.Set("watch", "true")
	query.Set("allowWatchBookmarks", "true")
	query.Set("timeoutSeconds", "3600")
	by := p.take()
	response, err := p.ask(ctx, by, http.MethodGet, path, query, nil)
	if err != nil {
		p.give(by)
		return err
	}
	running.Go(func() {
		defer p.give(by)
		for {
			if last := listen(response, heard); last != "" {
				query.Set("resourceVersion", last)
				query.Del("sendInitialEvents")
				query.Del("resourceVersionMatch")
			}
			if ctx.Err() != nil {
				return
			}
			p.ended.Add(1)
			if response, err = p.ask(ctx, by, http.MethodGet, path, query, nil); err != nil { //nolint:bodyclose // listen closes it
				check.That(p, ctx.Err() != nil, "watch again: %v", err)
				return
			}
		}
	})
	return nil
}

// listen passes the events of a watch until it ends, and returns the last version that heard returned.
func listen(response *http.Response, heard func([]byte) string) (last string) {
	defer response.Body.Close()
	for lines := bufio.NewReader(response.Body); ; {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			return last
		}
		last = cmp.Or(heard(line), last)
	}
}

// decoded has each event decoded. After an error, which is a version that is too old, the watch begins again with
// the present object, as a reflector does.
func decoded(t *testing.T, heard func(event)) func([]byte) string {
	return func(line []byte) string {
		if bytes.Contains(line[:min(len(line), 24)], []byte(`"ERROR"`)) {
			return "0"
		}
		var e event
		check.OK(t, json.Unmarshal(line, &e))
		heard(e)
		return e.Object.Metadata.ResourceVersion
	}
}

// streams are open watches.
type streams struct {
	end     context.CancelFunc
	running sync.WaitGroup
	heard   atomic.Int64 // events
}

func (s *streams) close() {
	s.end()
	s.running.Wait()
}

// open opens a watch of each of n agents, from now on. of returns the field selector of an agent.
func (c *cluster) open(n int, path string, of func(node string) string) *streams {
	c.Helper()
	ctx, cancel := context.WithCancel(c.Context())
	s := &streams{end: cancel}
	now := check.Value(c.players.revision(ctx, path))(c)
	var all errgroup.Group
	all.SetLimit(workers)
	for i := range n {
		all.Go(func() error {
			query := url.Values{"fieldSelector": {of(nodeOf(i))}, "resourceVersion": {now}}
			return c.players.watch(ctx, &s.running, path, query, func([]byte) string {
				s.heard.Add(1)
				return ""
			})
		})
	}
	check.OK(c, all.Wait())
	return s
}

func leasesOf(node string) string { return "spec.nodeName=" + node }
func hintOf(node string) string   { return "metadata.name=" + node }
