// Package servertime tells the time by the API server's clock. When something is
// due is judged by times that the API server, agents and the controller wrote,
// each on a machine whose own clock may be off: addresses would be taken within a
// pod's grace, or an hour after it, and kept addresses freed at once.
package servertime

import (
	"net/http"
	"sync/atomic"
	"time"

	"k8s.io/utils/clock"
)

// tolerance is the difference that means nothing: the header has a resolution of
// a second, and time servers of both sides may differ a little.
const tolerance = 3 * time.Second

// Clock is a clock set right by the API server's answers. Only Now and Since are;
// tickers and timers measure durations. Safe for concurrent use.
type Clock struct {
	clock.WithTicker
	// ahead is by how much the API server's clock is ahead of this one, in nanoseconds.
	ahead atomic.Int64
}

// New returns a Clock that is right until an answer says otherwise.
func New(own clock.WithTicker) *Clock { return &Clock{WithTicker: own} }

// Now is the API server's time.
func (c *Clock) Now() time.Time { return c.WithTicker.Now().Add(time.Duration(c.ahead.Load())) }

// Since is the time that has passed by the API server's clock.
func (c *Clock) Since(t time.Time) time.Duration { return c.Now().Sub(t) }

// Transport reads the API server's clock off each answer.
func (c *Clock) Transport(next http.RoundTripper) http.RoundTripper {
	return transport{c, next}
}

type transport struct {
	clock *Clock
	next  http.RoundTripper
}

// RoundTrip passes request and answer as they are.
func (t transport) RoundTrip(request *http.Request) (*http.Response, error) {
	asked := t.clock.WithTicker.Now()
	response, err := t.next.RoundTrip(request)
	if err == nil {
		t.clock.learn(response.Header.Get("Date"), asked)
	}
	return response, err
}

// learn sets the clock by a Date header (RFC 9110, section 6.6.1), which was
// written some time after the request. One that is missing or that nobody can
// read changes nothing, and neither does one that may be right by the clock as it
// is: the longer an answer took, the less it tells.
func (c *Clock) learn(date string, asked time.Time) {
	server, err := http.ParseTime(date)
	if err != nil {
		return
	}
	answered := c.WithTicker.Now()
	mayBe := func(ahead time.Duration) bool {
		own := server.Add(-ahead)
		return own.After(asked.Add(-tolerance)) && own.Before(answered.Add(tolerance))
	}
	switch {
	case mayBe(time.Duration(c.ahead.Load())):
	case mayBe(0):
		c.ahead.Store(0)
	default:
		c.ahead.Store(int64(server.Sub(answered)))
	}
}
