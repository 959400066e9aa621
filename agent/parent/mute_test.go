// SPDX-License-Identifier: Apache-2.0

package parent

import (
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr/testr"
	"k8s.io/client-go/tools/events"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/fenceline/fenceline/internal/event"
	"github.com/fenceline/fenceline/test/check"
)

func TestANodeTellsWhenAParentIsMuteAndWhenItIsHeardAgain(t *testing.T) {
	type asked struct {
		at     time.Duration
		parent string
		heard  bool
	}
	for _, row := range []struct {
		name  string
		asked []asked
		want  []string
	}{
		{"a parent that is heard", []asked{{0, "eth1", true}, {1, "eth1", true}}, nil},
		{"a parent that becomes mute", []asked{{0, "eth1", true}, {1, "eth1", false}}, []string{"Warning ParentMute"}},
		{"it stays mute", []asked{{0, "eth1", false}, {time.Hour, "eth1", false}}, []string{"Warning ParentMute"}},
		{"it is heard again", []asked{{0, "eth1", false}, {1, "eth1", true}, {2, "eth1", true}}, []string{"Warning ParentMute", "Normal ParentHeard"}},
		{"it comes and goes", []asked{{0, "eth1", false}, {1, "eth1", true}, {2, "eth1", false}, {3, "eth1", true}},
			[]string{"Warning ParentMute", "Normal ParentHeard"}},
		{"it went, and is still mute ten minutes later",
			[]asked{{0, "eth1", false}, {1, "eth1", true}, {2, "eth1", false}, {tellInterval, "eth1", false}},
			[]string{"Warning ParentMute", "Normal ParentHeard", "Warning ParentMute"}},
		{"each parent counts alone", []asked{{0, "eth1", false}, {1, "eth2", true}, {2, "eth2", false}}, []string{"Warning ParentMute", "Warning ParentMute"}},
	} {
		t.Run(row.name, func(t *testing.T) {
			midnight := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
			clock := clocktesting.NewFakeClock(midnight)
			recorder := events.NewFakeRecorder(10)
			r := NewMute(event.Reporter{Node: "n1", Events: recorder, Log: testr.New(t), Clock: clock})
			for _, a := range row.asked {
				clock.SetTime(midnight.Add(a.at))
				r.Asked(a.parent, a.heard)
			}
			close(recorder.Events)
			var got []string
			for text := range recorder.Events {
				words := strings.Fields(text)
				got = append(got, strings.Join(words[:2], " "))
				last, first := row.asked[len(row.asked)-1].parent, row.asked[0].parent
				check.That(t, strings.Contains(text, last) || strings.Contains(text, first), "the event names no parent: %q", text)
			}
			check.Same(t, got, row.want, "events")
		})
	}
}
