// SPDX-License-Identifier: Apache-2.0

// Package agentapi is the protocol between the CNI plugin and the agent: JSON over HTTP on the
// agent's unix socket.
//
//	POST /v1/add     AddRequest   → AddResponse
//	POST /v1/del     DelRequest   → nothing
//	POST /v1/check   CheckRequest → nothing
//	POST /v1/gc      GCRequest    → nothing
//	GET  /v1/status               → nothing
//
// The status of a success is 200 or 204. Any other answer holds an Error, whose code is a CNI error
// code. The connection is the call: when the plugin closes it before the answer, the agent undoes
// the ADD.
//
// The package imports the standard library only. The plugin process loads all imports once for each
// ADD on the node.
package agentapi

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"time"
)

// maxAnswer is the largest part of an answer that is read, in bytes.
const maxAnswer = 1 << 20

// Client calls the agent. Its methods return an *Error if the agent answered with one, and a
// *NoAnswerError if it did not answer. They may be called concurrently.
type Client struct {
	socket string
	http   *http.Client
}

// NewClient returns a client of the agent on a unix socket. Each call opens its own connection.
func NewClient(socket string) *Client {
	return &Client{socket: socket, http: &http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, "unix", socket)
		},
		// A plugin process makes one call. The agent would take an idle connection for a plugin that
		// still waits.
		DisableKeepAlives:  true,
		DisableCompression: true,
	}}}
}

// Add gets addresses for an interface, or has it guarded.
func (c *Client) Add(ctx context.Context, r AddRequest) (*AddResponse, error) {
	var answer AddResponse
	if err := c.call(ctx, AddClientTimeout, http.MethodPost, PathAdd, r, &answer); err != nil {
		return nil, err
	}
	return &answer, nil
}

// Del releases the addresses of an attachment.
func (c *Client) Del(ctx context.Context, r DelRequest) error {
	return c.call(ctx, ClientTimeout, http.MethodPost, PathDel, r, nil)
}

// Check checks that an attachment holds its addresses and is guarded.
func (c *Client) Check(ctx context.Context, r CheckRequest) error {
	return c.call(ctx, ClientTimeout, http.MethodPost, PathCheck, r, nil)
}

// GC releases the addresses of attachments that are no longer valid.
func (c *Client) GC(ctx context.Context, r GCRequest) error {
	return c.call(ctx, ClientTimeout, http.MethodPost, PathGC, r, nil)
}

// Status checks that the agent is ready for ADD.
func (c *Client) Status(ctx context.Context) error {
	return c.call(ctx, ClientTimeout, http.MethodGet, PathStatus, nil, nil)
}

// Diagnose asks the agent about its node. answer is a pointer to what it reports.
func (c *Client) Diagnose(ctx context.Context, request, answer any) error {
	return c.call(ctx, AddClientTimeout, http.MethodPost, PathDiagnosis, request, answer)
}

func (c *Client) call(ctx context.Context, timeout time.Duration, method, path string, request, answer any) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	var body io.Reader
	if request != nil {
		b, err := json.Marshal(request)
		if err != nil {
			return fmt.Errorf("encode the request for %s: %w", path, err)
		}
		body = bytes.NewReader(b)
	}
	// HTTP requires a host. It is never resolved.
	r, err := http.NewRequestWithContext(ctx, method, "http://agent"+path, body)
	if err != nil {
		return fmt.Errorf("build the request for %s: %w", path, err)
	}
	if body != nil {
		r.Header.Set("Content-Type", "application/json")
	}
	resp, err := c.http.Do(r)
	if err != nil {
		return &NoAnswerError{Socket: c.socket, Err: cause(err)}
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return &NoAnswerError{Socket: c.socket, Err: cause(err)}
	}
	if resp.StatusCode >= http.StatusMultipleChoices {
		// Without an Error, the other side is not the agent, or an agent of another release.
		var e Error
		if err := json.Unmarshal(text, &e); err != nil || e.Code == 0 {
			return Errorf(CodeInternal, "the agent answered %s to %s: %.200q; are plugin and agent of the same release?", resp.Status, path, text)
		}
		return &e
	}
	if answer == nil {
		return nil
	}
	if err := json.Unmarshal(text, answer); err != nil {
		return Errorf(CodeDecodingFailure, "decode the agent's answer to %s: %w; are plugin and agent of the same release?", path, err)
	}
	return nil
}

// cause removes the prefixes of net/http and net from an error: the URL, which has no real host, and
// the path of the socket, which NoAnswerError contains already.
func cause(err error) error {
	if op, ok := errors.AsType[*net.OpError](err); ok {
		return op.Err
	}
	if u, ok := errors.AsType[*url.Error](err); ok {
		return u.Err
	}
	return err
}
