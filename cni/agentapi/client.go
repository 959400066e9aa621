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
)

// maxAnswer bounds what is read of an answer, in bytes.
const maxAnswer = 1 << 20

// Client calls the agent. Its methods return an *Error when the agent answered
// with one, and an *AwayError when it did not answer. They may be called
// concurrently.
type Client struct {
	socket string
	http   *http.Client
}

// NewClient returns a client of the agent at the unix socket. It opens nothing yet.
func NewClient(socket string) *Client {
	return &Client{
		socket: socket,
		http: &http.Client{
			Timeout: ClientTimeout,
			Transport: &http.Transport{
				DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
					var d net.Dialer
					return d.DialContext(ctx, "unix", socket)
				},
				// One process makes one call, and an idle connection would look
				// to the agent like a plugin that is still there.
				DisableKeepAlives:  true,
				DisableCompression: true,
			},
		},
	}
}

// Add asks for addresses.
func (c *Client) Add(ctx context.Context, r AddRequest) (*AddResponse, error) {
	var answer AddResponse
	if err := c.call(ctx, http.MethodPost, PathAdd, r, &answer); err != nil {
		return nil, err
	}
	return &answer, nil
}

// Del gives back what the attachment holds.
func (c *Client) Del(ctx context.Context, r DelRequest) error {
	return c.call(ctx, http.MethodPost, PathDel, r, nil)
}

// Check asks whether the attachment is as it should be.
func (c *Client) Check(ctx context.Context, r CheckRequest) error {
	return c.call(ctx, http.MethodPost, PathCheck, r, nil)
}

// GC gives back what attachments hold that are not valid any more.
func (c *Client) GC(ctx context.Context, r GCRequest) error {
	return c.call(ctx, http.MethodPost, PathGC, r, nil)
}

// Status asks whether the agent is ready for ADD.
func (c *Client) Status(ctx context.Context) error {
	return c.call(ctx, http.MethodGet, PathStatus, nil, nil)
}

func (c *Client) call(ctx context.Context, method, path string, request, answer any) error {
	var body io.Reader
	if request != nil {
		b, err := json.Marshal(request)
		if err != nil {
			return fmt.Errorf("encode the request for %s: %w", path, err)
		}
		body = bytes.NewReader(b)
	}
	// The host is never resolved; HTTP wants one.
	r, err := http.NewRequestWithContext(ctx, method, "http://agent"+path, body)
	if err != nil {
		return fmt.Errorf("build the request for %s: %w", path, err)
	}
	if body != nil {
		r.Header.Set("Content-Type", "application/json")
	}
	resp, err := c.http.Do(r)
	if err != nil {
		return &AwayError{Socket: c.socket, Err: cause(err)}
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return &AwayError{Socket: c.socket, Err: cause(err)}
	}
	if resp.StatusCode >= http.StatusMultipleChoices {
		return decodeError(path, resp.Status, text)
	}
	if answer == nil {
		return nil
	}
	if err := json.Unmarshal(text, answer); err != nil {
		return Errorf(CodeDecodingFailure, "decode the agent's answer to %s: %w; are plugin and agent of the same release?", path, err)
	}
	return nil
}

// decodeError reads an answer that is not a success. A body that is no Error
// comes from something that is not the agent's API, or from another version of it.
func decodeError(path, status string, text []byte) *Error {
	var e Error
	if err := json.Unmarshal(text, &e); err != nil || e.Code == 0 {
		return Errorf(CodeInternal, "the agent answered %s to %s: %.200q; are plugin and agent of the same release?", status, path, text)
	}
	return &e
}

// cause drops what net/http and net put before the reason: a made-up URL and
// the socket's path, which AwayError tells already.
func cause(err error) error {
	var op *net.OpError
	if errors.As(err, &op) {
		return op.Err
	}
	var u *url.Error
	if errors.As(err, &u) {
		return u.Err
	}
	return err
}
