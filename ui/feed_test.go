// SPDX-License-Identifier: Apache-2.0

package ui

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/test/check"
)

func TestWhichChangesAreInTheFeed(t *testing.T) {
	bound := leaseNamed("10.0.0.5", v1alpha1.StateBound, "web-0")
	gone, conflict := taken(bound, v1alpha1.ReasonPodGone), taken(leaseNamed("10.0.0.5", v1alpha1.StateWarm, ""), v1alpha1.ReasonConflict)
	conflict.Spec.Previous, conflict.Spec.Conflict = nil, &v1alpha1.Conflict{MAC: "02:00:00:00:00:09"}
	warm := leaseNamed("10.0.0.6", v1alpha1.StateWarm, "")
	for name, row := range map[string]struct {
		was, is *v1alpha1.IPLease
		want    string
	}{
		"a grant is not":                        {nil, bound, ""},
		"an end of a pod is not":                {bound, nil, ""},
		"a reclaim":                             {bound, gone, "reclaim: taken from pod shop/web-0 on node n1: PodGone"},
		"a reclaim of a Warm address":           {warm, taken(warm, v1alpha1.ReasonAgentGone), "reclaim: taken from node n1: AgentGone"},
		"a change of the verifier is not":       {gone, gone, ""},
		"a proof that frees":                    {gone, nil, "fence: pod shop/web-0 on node n1 is fenced, gone or silent"},
		"a take-over":                           {gone, bound, "fence: pod shop/web-0 on node n1 is fenced, gone or silent"},
		"a conflict":                            {nil, conflict, "conflict: the host with MAC 02:00:00:00:00:09 uses the address"},
		"a conflict of a reclaimed address":     {gone, conflict, "conflict: the host with MAC 02:00:00:00:00:09 uses the address"},
		"the end of a conflict is not":          {conflict, nil, ""},
		"another frame of the same host is not": {conflict, conflict, ""},
	} {
		h, ok := happened(row.was, row.is, time.Unix(0, 0))
		got := h.Kind + ": " + h.Text
		check.That(t, ok == (row.want != "") && (!ok || got == row.want), "%s: %q (%t), want %q", name, got, ok, row.want)
	}
}

func TestANewPageGetsTheLastHappenings(t *testing.T) {
	f := newFeed()
	for i := range 2 * remembered {
		l := taken(leaseNamed(fmt.Sprintf("10.0.0.%d", i), v1alpha1.StateBound, "web-0"), v1alpha1.ReasonPodGone)
		l.Spec.Since.Time = time.Unix(int64(1000-i), 0) // the informer's order is not that of time
		f.Present(l)
	}
	messages, leave, _ := f.join()
	defer leave()
	hello := string(<-messages)
	n := strings.Count(hello, `"kind":"reclaim"`)
	check.That(t, n == remembered && strings.Contains(hello, `"10.0.0.0"`) && !strings.Contains(hello, `"10.0.0.199"`), "%d happenings: %s", n, hello)
	check.That(t, strings.HasPrefix(hello, "event: hello\ndata: [") && strings.HasSuffix(hello, "]\n\n"), "no server-sent event: %s", hello)
}

func TestASlowPageIsDisconnectedAndOthersAreNot(t *testing.T) {
	f := newFeed()
	slow, leaveSlow, _ := f.join()
	defer leaveSlow()
	quick, leaveQuick, _ := f.join()
	defer leaveQuick()
	<-quick
	lease := leaseNamed("10.0.0.5", v1alpha1.StateBound, "web-0")
	for range backlog {
		f.Lease(nil, lease, time.Time{})
		<-quick
	}
	n := 0
	for range slow { // ends because the channel is closed
		n++
	}
	check.That(t, n == backlog, "the slow page got %d messages, want %d", n, backlog)
	f.Lease(lease, nil, time.Time{})
	m := string(<-quick)
	check.That(t, strings.HasPrefix(m, "event: lease-gone\n"), "the quick page got %s", m)
}

func TestThePagesAreBounded(t *testing.T) {
	f := newFeed()
	for range maxViewers {
		_, _, ok := f.join()
		check.Must(t, ok, "a page was refused")
	}
	if _, _, ok := f.join(); ok {
		t.Error("there is no bound")
	}
}
