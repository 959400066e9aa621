// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"net/http"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"
	"k8s.io/utils/clock"
)

// tolerance is the difference that is ignored: the header has a resolution of one second, and the
// time servers of both sides may differ a little.
const tolerance = 3 * time.Second

// Clock is a clock whose Now and Since follow the API server's answers. Its tickers and timers
// measure durations only. Safe for concurrent use.
//
// The API server, the agents and the controller all write times, and the clock of each machine may be
// wrong. Without one clock, addresses would be taken too early or too late, and kept addresses freed at
// once.
type Clock struct {
	clock.WithTicker
	// ahead is the time by which the API server's clock is ahead of this machine's, in nanoseconds.
	ahead atomic.Int64
}

// NewClock returns a Clock that follows own until an answer differs.
func NewClock(own clock.WithTicker) *Clock { return &Clock{WithTicker: own} }

// Now returns the API server's time.
func (c *Clock) Now() time.Time { return c.WithTicker.Now().Add(time.Duration(c.ahead.Load())) }

// Since returns the time that has passed by the API server's clock.
func (c *Clock) Since(t time.Time) time.Duration { return c.Now().Sub(t) }

// Transport reads the API server's clock from each answer. It leaves request and answer unchanged.
func (c *Clock) Transport(next http.RoundTripper) http.RoundTripper {
	return promhttp.RoundTripperFunc(func(r *http.Request) (*http.Response, error) {
		asked := c.WithTicker.Now()
		response, err := next.RoundTrip(r)
		if err == nil {
			c.learn(response.Header.Get("Date"), asked)
		}
		return response, err
	})
}

// learn sets the clock by a Date header (RFC 9110, section 6.6.1), which was written between
// request and answer. A header changes nothing if it is missing or invalid, or if it agrees with
// the clock. The longer an answer took, the less precise its header is.
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
