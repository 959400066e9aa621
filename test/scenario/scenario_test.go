// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/test/capture"
	assert "github.com/fenceline/fenceline/test/check"
)

func TestAScenarioEndsWithItsFirstFailedStepAndIsUndoneBackwards(t *testing.T) {
	var done []string
	broken, stuck := errors.New("broken"), errors.New("stuck")
	s := Scenario{Name: "example", play: func(_ context.Context, a *act) {
		a.after("first", func(context.Context) { done = append(done, "undo first") })
		a.after("second", func(context.Context) { check(stuck) })
		done = append(done, value("step", nil))
		check(broken)
		done = append(done, "a step after the failure")
	}}
	err := s.Play(t.Context(), &Stage{}, &Story{}, func(context.Context) { done = append(done, "dump") })
	assert.That(t, errors.Is(err, broken) && errors.Is(err, stuck), "the scenario ended with %v", err)
	assert.List(t, done, []string{"step", "dump", "undo first"}, "done:")
}

func TestLeasesEqualLivingHolders(t *testing.T) {
	pod := func(uid, addr string, ready corev1.ConditionStatus) corev1.Pod {
		return corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: "web-" + uid, UID: types.UID(uid)},
			Status:     corev1.PodStatus{PodIP: addr, Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: ready}}},
		}
	}
	lease := func(addr string, state v1alpha1.LeaseState, uid string) v1alpha1.IPLease {
		return v1alpha1.IPLease{Spec: v1alpha1.IPLeaseSpec{Address: addr, State: state, Holder: &v1alpha1.Holder{PodUID: uid}}}
	}
	a, b := pod("a", "10.78.3.10", corev1.ConditionTrue), pod("b", "10.78.3.11", corev1.ConditionTrue)
	leaseA, leaseB := lease("10.78.3.10", v1alpha1.StateBound, "a"), lease("10.78.3.11", v1alpha1.StateBound, "b")
	for _, tc := range []struct {
		name    string
		leases  []v1alpha1.IPLease
		pods    []corev1.Pod
		problem string
	}{
		{"each pod has its lease", []v1alpha1.IPLease{leaseB, leaseA}, []corev1.Pod{a, b}, ""},
		{"a pod has no lease", []v1alpha1.IPLease{leaseA}, []corev1.Pod{a, b}, "pod b has"},
		{"a lease has no pod", []v1alpha1.IPLease{leaseA, leaseB}, []corev1.Pod{a}, "no living pod"},
		{"a pod has two leases", []v1alpha1.IPLease{leaseA, lease("10.78.3.11", v1alpha1.StateBound, "a")}, []corev1.Pod{a}, "no living pod"},
		{"a lease is in quarantine", []v1alpha1.IPLease{lease("10.78.3.10", v1alpha1.StateQuarantined, "a")}, []corev1.Pod{a}, "no living pod"},
		{"a lease has no holder", []v1alpha1.IPLease{{Spec: v1alpha1.IPLeaseSpec{Address: "10.78.3.10", State: v1alpha1.StateBound}}}, []corev1.Pod{a}, "no living pod"},
		{"a pod does not run", []v1alpha1.IPLease{leaseA}, []corev1.Pod{pod("a", "10.78.3.10", corev1.ConditionFalse)}, "does not run"},
	} {
		t.Run(tc.name, func(t *testing.T) { expectProblem(t, equal(tc.leases, tc.pods), tc.problem) })
	}
}

func TestSpeakersForAnAddressTakeTurns(t *testing.T) {
	among := (&act{scenario: Scenario{number: int(disputed.As4()[2])}}).addresses()
	other := speech(2, newMAC)
	other.Speaks = append(other.Speaks[:0:0], among.Addr().Next())
	abroad := other
	abroad.Speaks = append(abroad.Speaks[:0:0], underlay.Addr().Next())
	for _, tc := range []struct {
		name    string
		frames  []capture.Frame
		problem string
	}{
		{"one speaker speaks as often as it likes", []capture.Frame{speech(1, zombieMAC), speech(2, zombieMAC)}, ""},
		{"a second one follows the first", []capture.Frame{speech(1, zombieMAC), speech(2, newMAC), speech(3, newMAC)}, ""},
		{"a third one follows the second", []capture.Frame{speech(1, zombieMAC), speech(2, newMAC), speech(3, parentMAC)}, ""},
		{"the first is heard again after the second has begun", []capture.Frame{speech(1, zombieMAC), speech(2, newMAC), speech(2.5, zombieMAC)}, "500µs after"},
		{"the first comes back after the second has ended", []capture.Frame{speech(1, zombieMAC), speech(2, newMAC), speech(900, zombieMAC)}, "two speakers"},
		{"speakers for other addresses do not count", []capture.Frame{speech(1, zombieMAC), other, speech(3, zombieMAC)}, ""},
		{"claims speak for nobody", []capture.Frame{speech(1, zombieMAC), claimFrame(2, "ul-n3", "claim"), speech(3, zombieMAC)}, ""},
		{"addresses of others are not judged", []capture.Frame{abroad, func() capture.Frame { f := abroad; f.Source = zombieMAC; return f }(), abroad}, ""},
	} {
		t.Run(tc.name, func(t *testing.T) { expectProblem(t, takeTurns(tc.frames, among), tc.problem) })
	}
}

var (
	disputed  = netip.MustParseAddr("10.78.3.10")
	zombieMAC = net.HardwareAddr{2, 0, 0, 0, 0, 1}
	newMAC    = net.HardwareAddr{2, 0, 0, 0, 0, 2}
	parentMAC = net.HardwareAddr{2, 0, 0, 0, 0, 3}
	began     = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
)

func at(ms float64) time.Time { return began.Add(time.Duration(ms * float64(time.Millisecond))) }

func speech(ms float64, mac net.HardwareAddr) capture.Frame {
	return capture.Frame{Time: at(ms), Source: mac, Kind: "ARP reply", Speaks: []netip.Addr{disputed}}
}

func claimFrame(ms float64, port, kind string) capture.Frame {
	return capture.Frame{Time: at(ms), Port: port, Source: parentMAC, Kind: kind, Target: disputed}
}

func TestAPassageIsJudgedByTheFrames(t *testing.T) {
	c := capture.Change{Addr: disputed, Old: zombieMAC, New: newMAC, OldPort: "ul-n2"}
	claim, ack := claimFrame(10, "ul-n3", "claim"), claimFrame(10.05, "ul-n2", "ack")
	for _, tc := range []struct {
		name    string
		frames  []capture.Frame
		problem string // part of the error, empty if the passage is clean
	}{
		{"the zombie is silent from the ack on", []capture.Frame{speech(9, zombieMAC), claim, ack, speech(30, newMAC)}, ""},
		{"a frame that was under way when the fence came does not count", []capture.Frame{claim, ack, speech(10.5, zombieMAC), speech(30, newMAC)}, ""},
		{"claims of the zombie's own node do not count", []capture.Frame{claimFrame(9, "ul-n2", "claim"), speech(9.5, zombieMAC), claim, ack, speech(30, newMAC)}, ""},
		{"one late frame of the zombie breaks the promise", []capture.Frame{claim, ack, speech(12, zombieMAC), speech(30, newMAC)}, "old holder"},
		{"a stranger breaks it too", []capture.Frame{claim, ack, speech(30, newMAC), speech(31, parentMAC)}, "not only its new holder"},
		{"silence of everybody proves nothing", []capture.Frame{claim, ack}, "not only its new holder"},
		{"without a claim nothing is fenced", []capture.Frame{speech(9, zombieMAC), speech(30, newMAC)}, "no claim"},
		{"without an ack nobody knows", []capture.Frame{claim, speech(30, newMAC)}, "no ack"},
		{"an ack of another node is none", []capture.Frame{claim, claimFrame(10.05, "ul-n1", "ack"), speech(30, newMAC)}, "no ack"},
		{"a late ack is told", []capture.Frame{claim, claimFrame(500, "ul-n2", "ack"), speech(600, newMAC)}, "came 490ms after"},
		{"what happened earlier does not matter", []capture.Frame{claimFrame(-9, "ul-n3", "claim"), claimFrame(-8, "ul-n2", "ack"), speech(5, zombieMAC), claim, ack, speech(30, newMAC)}, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p, err := c.PassageOf(tc.frames, began)
			expectProblem(t, err, tc.problem)
			assert.That(t, err != nil || p.Claim.Time.Equal(claim.Time), "the claim is %s, want %s", p.Claim, claim)
		})
	}
}

func TestClientsMustHearTheNewPodAndNobodyElse(t *testing.T) {
	reply := func(ms float64, pod string) answer { return answer{begun: at(ms), at: at(ms + 1), pod: pod} }
	nothing := func(ms float64) answer { return answer{begun: at(ms), at: at(ms + 1000), err: errors.New("timeout")} }
	for _, tc := range []struct {
		name    string
		answers []answer
		problem string
	}{
		{"the old pod may answer before", []answer{reply(-5, "old"), reply(20, "new")}, ""},
		{"nobody may answer for a while", []answer{nothing(1), nothing(10), reply(20, "new")}, ""},
		{"the old pod must not answer any more", []answer{reply(1, "old"), reply(20, "new")}, "answered by old"},
		{"nor come back", []answer{reply(20, "new"), reply(30, "old")}, "answered by old"},
		{"the new pod must not be lost again", []answer{reply(20, "new"), nothing(30)}, "no answer from new any more"},
		{"the new pod must be heard", []answer{nothing(1)}, "no client was answered"},
	} {
		t.Run(tc.name, func(t *testing.T) { expectProblem(t, onlyAnswersOf("new", tc.answers, began), tc.problem) })
	}
}

func TestPingsAreLostAfterTheirTime(t *testing.T) {
	pings := []ping{
		{sent: at(0)},                       // before
		{sent: at(10)},                      // lost
		{sent: at(20), answered: at(21)},    // answered
		{sent: at(1900)},                    // may still be answered
		{sent: at(30), answered: at(30.01)}, // answered
	}
	assert.Equal(t, lostSince(pings, at(5), at(2000)), 1, "lost pings")
}

func expectProblem(t *testing.T, err error, problem string) {
	t.Helper()
	assert.That(t, (err == nil) == (problem == "") && strings.Contains(fmt.Sprint(err), problem), "error %v, want one with %q", err, problem)
}
