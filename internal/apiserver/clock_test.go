// SPDX-License-Identifier: Apache-2.0

package apiserver_test

import (
	"errors"
	"net/http"
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"

	"github.com/fenceline/fenceline/internal/apiserver"
	"github.com/fenceline/fenceline/test/check"
)

// answering is an API server that says what time it is.
type answering string

func (a answering) RoundTrip(*http.Request) (*http.Response, error) {
	if a == "nothing" {
		return nil, errors.New("connection refused")
	}
	return &http.Response{Header: http.Header{"Date": {string(a)}}, Body: http.NoBody}, nil
}

func TestTheClockFollowsTheAPIServer(t *testing.T) {
	noon := time.Date(2030, 1, 1, 12, 0, 0, 0, time.UTC)
	at := func(t time.Time) answering { return answering(t.UTC().Format(http.TimeFormat)) }
	for _, row := range []struct {
		name    string
		answers []answering
		want    time.Time
	}{
		{"without an answer the own clock is right", nil, noon},
		{"the own clock is an hour behind", []answering{at(noon.Add(time.Hour))}, noon.Add(time.Hour)},
		{"the own clock is an hour ahead", []answering{at(noon.Add(-time.Hour))}, noon.Add(-time.Hour)},
		{"a second is the header's resolution", []answering{at(noon.Add(-time.Second))}, noon},
		{"the clock was set right meanwhile", []answering{at(noon.Add(time.Hour)), at(noon)}, noon},
		{"no header changes nothing", []answering{at(noon.Add(time.Hour)), ""}, noon.Add(time.Hour)},
		{"nonsense changes nothing", []answering{at(noon.Add(time.Hour)), "high noon"}, noon.Add(time.Hour)},
		{"a lost connection changes nothing", []answering{at(noon.Add(time.Hour)), "nothing"}, noon.Add(time.Hour)},
	} {
		t.Run(row.name, func(t *testing.T) {
			clock := apiserver.NewClock(clocktesting.NewFakeClock(noon))
			for _, answer := range row.answers {
				request := check.Value(http.NewRequest(http.MethodGet, "http://server/api", http.NoBody))(t)
				response, err := clock.Transport(answer).RoundTrip(request)
				if err == nil {
					response.Body.Close()
				}
				if (err != nil) != (answer == "nothing") || (err == nil && response.Header.Get("Date") != string(answer)) {
					t.Errorf("the answer was changed: %v, %v", response, err)
				}
			}
			got := clock.Now()
			check.That(t, got.Equal(row.want), "it is %v, want %v", got, row.want)
			check.Equal(t, clock.Since(noon), row.want.Sub(noon), "since noon:")
		})
	}
}

// roundTrip is an API server that takes its time.
type roundTrip func() (*http.Response, error)

func (f roundTrip) RoundTrip(*http.Request) (*http.Response, error) { return f() }

// TestASlowAnswerTellsLittle: it may have been written at any time since the
// request, so that an own clock that is off by less seems right.
func TestASlowAnswerTellsLittle(t *testing.T) {
	const ahead, took = 20 * time.Second, 30 * time.Second
	own := clocktesting.NewFakeClock(time.Date(2030, 1, 1, 12, 0, 0, 0, time.UTC))
	clock := apiserver.NewClock(own)
	for _, wait := range []time.Duration{0, took} {
		request := check.Value(http.NewRequest(http.MethodGet, "http://server/api", http.NoBody))(t)
		response, err := clock.Transport(roundTrip(func() (*http.Response, error) {
			own.Step(wait)
			date := own.Now().Add(-ahead).Format(http.TimeFormat)
			return &http.Response{Header: http.Header{"Date": {date}}, Body: http.NoBody}, nil
		})).RoundTrip(request)
		check.OK(t, err)
		response.Body.Close()
		got, want := clock.Now(), own.Now().Add(-ahead)
		check.That(t, got.Equal(want), "after an answer that took %s it is %v, want %v", wait, got, want)
	}
}
