// SPDX-License-Identifier: Apache-2.0

//go:build bench

package page

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/fenceline/fenceline/test/check"
	"github.com/fenceline/fenceline/test/figure"
)

// TestCostOfThePage measures what ten viewers of 20 000 leases cost the controller. The CPU time contains
// that of their clients, which are in this process.
func TestCostOfThePage(t *testing.T) {
	const viewers = 10
	all := newCrowd()
	off := heap()
	page := serverOf(all)
	server := httptest.NewServer(page.Handler())
	defer server.Close()
	all.churn(page.feed)
	before, idle := heap(), cpu(t, func() { all.churn(page.feed) })

	ctx, leave := context.WithCancel(t.Context())
	var read atomic.Int64
	for range viewers {
		request := check.Value(http.NewRequestWithContext(ctx, http.MethodGet, server.URL+"/api/events", nil))(t)
		request.Header.Set("Authorization", "Bearer viewer")
		answer, err := http.DefaultClient.Do(request) //nolint:bodyclose // its reader closes it
		check.OK(t, err)
		go func() {
			defer answer.Body.Close()
			_, _ = io.Copy(counter{&read}, answer.Body) // ends with ctx
		}()
	}
	defer leave()
	first := cpu(t, func() {
		for range viewers {
			if code, _, _ := get(t, server.URL+"/api/pools/underlay", "viewer"); code != http.StatusOK {
				t.Fatalf("status %d", code)
			}
		}
	})
	busy := cpu(t, func() { all.churn(page.feed) })
	check.Becomes(t, time.Minute, "the viewers to have all changes", func() bool { return read.Load() > viewers*500*100 })
	figure.Report(t, "page: heap with ten viewers, beside 20 000 leases", heap()/off, "× page off", figure.AtMost(1.3))
	figure.Report(t, "page: heap for each of ten viewers", (heap()-before)/viewers/1e3, "kB", figure.AtMost(300))
	figure.Report(t, "page: CPU of the first look at 20 000 leases", first.Seconds()*1e3/viewers, "ms", figure.AtMost(150))
	figure.Report(t, "page: CPU of 500 changes with ten viewers", (busy-idle).Seconds()*1e3, "ms", figure.AtMost(150))
}

// counter counts bytes.
type counter struct{ n *atomic.Int64 }

func (c counter) Write(b []byte) (int, error) {
	c.n.Add(int64(len(b)))
	return len(b), nil
}

// heap returns the bytes in use.
func heap() float64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc)
}

// cpu returns the CPU time of this process for a deed.
func cpu(t *testing.T, deed func()) time.Duration {
	t.Helper()
	used := func() time.Duration {
		var u syscall.Rusage
		check.OK(t, syscall.Getrusage(syscall.RUSAGE_SELF, &u))
		return time.Duration(u.Utime.Nano() + u.Stime.Nano())
	}
	before := used()
	deed()
	return used() - before
}
