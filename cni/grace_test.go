// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/containernetworking/cni/pkg/skel"

	"github.com/fenceline/fenceline/cni/agentapi"
	"github.com/fenceline/fenceline/test/check"
)

func TestWhenAFailedSTATUSIsForgiven(t *testing.T) {
	at := func(up time.Duration) *time.Duration { return &up }
	const boot, grace = "b", time.Minute
	for _, c := range []struct {
		rule  string
		was   standing
		now   moment
		grace time.Duration
		want  bool
		since *time.Duration
	}{
		{"not of an agent that was never seen to serve", standing{}, moment{boot, time.Hour}, grace, false, nil},
		{"not of one that served in the boot before", standing{Boot: "a"}, moment{boot, time.Hour}, grace, false, nil},
		{"not of one that was away in the boot before", standing{Boot: "a", FailsSince: at(time.Hour)}, moment{boot, time.Hour}, grace, false, at(time.Hour)},
		{"the first time after it served, from when on the time counts", standing{Boot: boot}, moment{boot, time.Hour}, grace, true, at(time.Hour)},
		{"again within the grace", standing{Boot: boot, FailsSince: at(time.Hour)}, moment{boot, time.Hour + grace - 1}, grace, true, at(time.Hour)},
		{"not when the grace is over", standing{Boot: boot, FailsSince: at(time.Hour)}, moment{boot, time.Hour + grace}, grace, false, at(time.Hour)},
		{"not without a grace", standing{Boot: boot}, moment{boot, time.Hour}, 0, false, nil},
	} {
		t.Run(c.rule, func(t *testing.T) {
			next, got := c.was.afterFailure(c.now, c.grace)
			check.That(t, got == c.want && next.Boot == c.was.Boot, "forgiven %v, next %+v", got, next)
			if (next.FailsSince == nil) != (c.since == nil) || c.since != nil && *next.FailsSince != *c.since {
				t.Errorf("fails since %v", next.FailsSince)
			}
		})
	}
}

// status is a STATUS at a moment, each by a process of its own.
type status struct {
	node
	now  moment
	conf string // more of ipam
	said string // on stderr
}

func (s *status) call(t *testing.T) error {
	t.Helper()
	var stderr bytes.Buffer
	p := plugin{stdout: &bytes.Buffer{}, stderr: &stderr, now: func() (moment, error) { return s.now, nil }}
	conf := strings.Replace(string(s.node.conf("macvlan", "1.1.0", "")), `"socket"`, s.conf+`"socket"`, 1)
	err := p.verb("STATUS", p.status)(&skel.CmdArgs{StdinData: []byte(conf)})
	s.said = stderr.String()
	return err
}

// served calls STATUS while the agent serves.
func (s *status) served(t *testing.T) {
	t.Helper()
	_, stop := serve(t, s.node, answers{})
	check.Is(t, s.call(t), nil, "while it serves:")
	stop()
}

func TestSTATUSForgivesAnAgentThatStartsAgain(t *testing.T) {
	s := &status{node: newNode(t), now: moment{"b", time.Hour}}
	wantCNI(t, s.call(t), 50)
	s.served(t)
	for _, after := range []time.Duration{0, 5 * time.Second, 54 * time.Second} {
		s.now.up += after
		check.Is(t, s.call(t), nil, "after %s:", s.now.up-time.Hour)
		check.Says(t, s.said, s.socket(), "1m0s")
	}
	// Starting, it answers that it does not serve yet: that is the same absence.
	_, starting := serve(t, s.node, answers{err: agentapi.Errorf(agentapi.CodeNotAvailable, "not yet")})
	check.Is(t, s.call(t), nil, "while it starts:")
	s.now.up += time.Second
	wantCNI(t, s.call(t), 50, "not yet")
	starting()
	wantCNI(t, s.call(t), 50)

	// It serves, and the next absence counts anew.
	s.served(t)
	check.Is(t, s.call(t), nil, "the next absence:")
	s.now = moment{"c", time.Second}
	wantCNI(t, s.call(t), 50)
}

func TestSTATUSForgivesNoFault(t *testing.T) {
	s := &status{node: newNode(t), now: moment{"b", time.Hour}}
	s.served(t)
	listen(t, s.node, answers{err: agentapi.Errorf(agentapi.CodeInternal, "no programs")})
	wantCNI(t, s.call(t), agentapi.CodeInternal, "no programs")
}

func TestTheGraceCanBeSwitchedOff(t *testing.T) {
	s := &status{node: newNode(t), now: moment{"b", time.Hour}, conf: `"status_grace":"0s",`}
	s.served(t)
	wantCNI(t, s.call(t), 50)
}

// What STATUS cannot remember it does not forgive, and what serves is not called broken for it.
func TestSTATUSWithoutItsMemory(t *testing.T) {
	s := &status{node: newNode(t), now: moment{"b", time.Hour}}
	file := string(standingOf(s.socket()))
	check.OK(t, os.MkdirAll(filepath.Join(file, "x"), 0o700))
	s.served(t)
	check.Says(t, s.said, file)
	wantCNI(t, s.call(t), 50)
	check.OK(t, os.RemoveAll(file))
	check.OK(t, os.WriteFile(file, []byte("{cut"), 0o600))
	wantCNI(t, s.call(t), 50)
}

func TestTheMomentIsOfThisBoot(t *testing.T) {
	first, second := check.Value(thisMoment())(t), check.Value(thisMoment())(t)
	right := len(first.boot) == 36 && second.boot == first.boot && first.up > 0 && second.up >= first.up
	check.That(t, right, "%+v, then %+v", first, second)
}

// A clock that is set forward does not make the files of this boot older than the boot.
func TestNoFileOfThisBootPrecedesItsTime(t *testing.T) {
	made := check.Value(os.Stat(os.DevNull))(t).ModTime()
	for _, up := range []time.Duration{time.Second, 100 * 365 * 24 * time.Hour} {
		booted := bootTime(up)
		check.That(t, !booted.After(made) && !booted.After(time.Now().Add(-up)), "up for %s: %s, and /dev/null is of %s", up, booted, made)
	}
}
