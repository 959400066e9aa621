// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/cli/fault"
	"github.com/fenceline/fenceline/controller/podview"
	"github.com/fenceline/fenceline/internal/diagnosis"
	"github.com/fenceline/fenceline/internal/inventory"
	"github.com/fenceline/fenceline/test/check"
)

func TestABarShowsWhateverIsNotZero(t *testing.T) {
	for _, c := range []struct {
		pool poolLine
		want string
	}{
		{poolLine{Total: 24, Bound: 12, Warm: 6}, "████████████▒▒▒▒▒▒······"},
		{poolLine{Total: 65534, Bound: 1}, "█·······················"},
		{poolLine{Total: 65534, Bound: 65533, Quarantined: 1}, "███████████████████████▒"},
		{poolLine{}, "························"},
	} {
		check.Equal(t, bar(c.pool, longestBar), c.want, "%+v:", c.pool)
	}
}

func TestAnswersFitIntoATerminal(t *testing.T) {
	const long = "no address for interface eth0: pool shop-0-v4-77aaedaafbb9: it is exhausted, 4 of its 4 addresses have a lease"
	now := time.Now()
	st := state{
		Pools: []poolLine{
			{Name: "underlay", Subnet: "10.20.0.0/24", Total: 190, Bound: 4, Free: 186},
			{Name: "shop-0-v4-77aaedaafbb9", Subnet: "10.26.128.0/17", Total: 4096, Bound: 4000, Quarantined: 1, Conditions: []string{"Exhausted True: " + long}},
		},
		Leases: map[inventory.State]int{inventory.Bound: 4004},
		Faults: []trouble{{"node n1", "AgentNotReady", now, "agent fenceline-agent-x2k7m is not Ready"}},
		Waits:  []trouble{{"pod shop/web-7f9c5d8b64-x2k7m", "AddressAwaited", now, long}, {"IPSubnet of a very long name with a pool", "SubnetUnserved", now, long}},
	}
	for _, width := range []int{0, 100, 140} {
		var out bytes.Buffer
		writeState(paper{printable{&out}, width, func(_, text string) string { return text }}, st, now)
		for line := range strings.Lines(out.String()) {
			n := length(line) - 1
			check.That(t, width <= 0 || n <= width, "%d columns on a terminal of %d: %s", n, width, line)
		}
		said := strings.Join(strings.Fields(out.String()), " ")
		check.That(t, strings.Count(said, long) == 3, "a sentence is cut at %d columns:\n%s", width, &out)
		if width == 0 && strings.Count(out.String(), "  "+long+"\n") != 2 {
			t.Errorf("a row of a file has more than one line:\n%s", &out)
		}
	}
}

// hostile has a control sequence of a terminal in each of its forms, a change of direction, and a line
// that looks like a row of the answer.
const hostile = "a\x1b[2Jb\u009b2Jc\u202ed\x7fe\nnode n9 f\rg"

func TestNoTextOfOthersReachesTheTerminalAsItIs(t *testing.T) {
	now := time.Now()
	row := []string{hostile, hostile, hostile}
	for name, write := range map[string]func(paper){
		"a table":    func(w paper) { w.table([]string{"A", "B", "C"}, [][]string{slices.Clone(row), slices.Clone(row)}) },
		"a sentence": func(w paper) { w.say("head ", 5, hostile) },
		"status": func(w paper) {
			writeState(w, state{Pools: []poolLine{{Name: "p", Conditions: []string{hostile}}}, Waits: []trouble{{hostile, hostile, now, hostile}}}, now)
		},
		"doctor": func(w paper) {
			writeDiagnosed(w, diagnosed{Faults: []fault.Fault{{Object: hostile, What: hostile, Do: hostile}}})
		},
		"why": func(w paper) {
			whyAnswer{Pod: "p", Error: hostile, Choices: []whyChoice{{Interface: "eth0", Pools: []whyPool{{hostile, true, false, hostile}}, Error: hostile}},
				Events: []moment{{Source: hostile, Kind: hostile, Text: hostile}}}.write(w)
		},
		"explain": func(w paper) {
			l := &v1alpha1.IPLease{Spec: v1alpha1.IPLeaseSpec{Message: hostile, Since: metav1.NewTime(now)}}
			explained{Lease: l, Free: hostile, Past: []moment{{Source: hostile, Kind: hostile, Text: hostile}}, End: &end{sentence: hostile}}.write(w)
		},
		"map -o wide": func(w paper) { writePlaces(w, []place{{Reason: hostile, Interface: hostile, Node: hostile}}) },
		"export":      func(w paper) { writeCSV(w, []record{{Owner: hostile, Message: hostile}}) },
	} {
		for _, width := range []int{0, 100} {
			var out bytes.Buffer
			write(paper{printable{&out}, width, func(_, text string) string { return text }})
			check.Says(t, out.String(), `a\u001b[2Jb\u009b2Jc\u202ed\u007fe`)
			for line := range strings.Lines(out.String()) {
				check.That(t, !strings.ContainsAny(line, "\x1b\u009b\u202e\x7f\r"), "%s: %q", name, line)
				check.That(t, name == "export" || !strings.HasPrefix(line, "node n9"), "%s has a line of another: %q", name, line)
			}
		}
	}
	var out bytes.Buffer
	s := &session{output: "json"}
	s.Out = &out
	check.OK(t, s.print([]string{hostile}, nil))
	var read []string
	check.OK(t, json.Unmarshal(out.Bytes(), &read))
	check.That(t, read[0] == hostile && !strings.ContainsAny(out.String(), "\x1b\u009b\u202e\x7f\r"), "%q", &out)
}

func TestKubectlCompletesTheCommands(t *testing.T) {
	var out bytes.Buffer
	c := command(genericiooptions.IOStreams{Out: &out, ErrOut: &out})
	c.SetArgs(argsOf([]string{"/usr/local/bin/kubectl_complete-fenceline", "st"}))
	check.OK(t, c.Execute())
	check.Says(t, out.String(), "status\tShow pools")
}

func TestWhereAControllerServesThePage(t *testing.T) {
	for _, c := range []struct {
		arg, scheme, port string
		isOff             bool
	}{
		{"--ui-address=127.0.0.1:9478", "http", "9478", false},
		{"--ui-address=:9500", "https", "9500", false},
		{"--metrics-bind-address=:9478", "", "", true},
	} {
		scheme, port, err := pageOf([]string{"--leader-elect", c.arg})
		check.That(t, scheme == c.scheme && port == c.port && (err != nil) == c.isOff, "%s: %s %s %v", c.arg, scheme, port, err)
	}
}

func drawn(t *testing.T, subnet string, leased ...string) string {
	t.Helper()
	var leases []v1alpha1.IPLease
	for _, a := range leased {
		leases = append(leases, v1alpha1.IPLease{Spec: v1alpha1.IPLeaseSpec{Address: a, Pool: "p", State: v1alpha1.StateBound}})
	}
	pool := &v1alpha1.IPPool{ObjectMeta: metav1.ObjectMeta{Name: "p"}, Spec: v1alpha1.IPPoolSpec{Subnet: subnet}}
	var out bytes.Buffer
	plain := func(_, letter string) string { return letter }
	inventory.Grid{Pool: check.Value(inventory.Of(pool, leases, nil))(t), Paint: plain}.Write(&out)
	return out.String()
}

func TestAMapFoldsRowsWithoutALease(t *testing.T) {
	got := drawn(t, "10.1.0.0/16", "10.1.7.1", "10.1.255.254")
	check.Says(t, got, "… 55 rows without a lease", "10.1.7.0  .B......", "10.1.255.224  ........ ........ ........ ......B", "Free 65532   B Bound 2")
}

func TestAMapOfALargePoolCountsAllOfIt(t *testing.T) {
	got := drawn(t, "2001:db8::/64", "2001:db8::ffff:7")
	check.Says(t, got, "2001:db8::ffff:0  .......B", "… 134215679 rows without a lease", "2001:db8::ffff:ffff:ffff:ffe0  ........", "Free 18446744073709551614   B Bound 1")
	check.That(t, strings.Count(got, "\n") == 7, "got\n%s", got)
	got = drawn(t, "10.0.0.0/10", "10.63.0.1")
	check.Says(t, got, "10.63.255.224  ........", "Free 4194301   B Bound 1")
}

func eventOn(kind, name, reason, severity string, at time.Time) eventsv1.Event {
	return eventsv1.Event{
		Regarding: corev1.ObjectReference{Kind: kind, Namespace: "shop", Name: name, UID: "u-" + "1"}, Reason: reason, Type: severity, Note: reason,
		ReportingController: "fenceline-agent", EventTime: metav1.NewMicroTime(at),
	}
}

func TestAFaultOfANodeLastsUntilItsEndIsReported(t *testing.T) {
	now := time.Now()
	got := nodeTroubles([]eventsv1.Event{
		eventOn("Node", "n1", "ParentMute", "Warning", now.Add(-3*time.Minute)),
		eventOn("Node", "n1", "ParentHeard", "Normal", now.Add(-time.Minute)),
		eventOn("Node", "n2", "ParentHeard", "Normal", now.Add(-3*time.Minute)),
		eventOn("Node", "n2", "ParentMute", "Warning", now.Add(-time.Minute)),
		eventOn("Node", "n3", "ForwardingOff", "Warning", now.Add(-2*time.Hour)),
		eventOn("Pod", "n4", "AddressRefused", "Warning", now),
	}, now)
	check.That(t, len(got) == 1 && got[0].Object == "node n2", "got %+v", got)
}

func TestOnlyPendingPodsWait(t *testing.T) {
	now := time.Now()
	events := []eventsv1.Event{eventOn("Pod", "web-0", "AddressAwaited", "Warning", now.Add(-time.Minute)), eventOn("Pod", "web-0", "AddressRefused", "Warning", now)}
	check.None(t, podTroubles(events, nil), "a pod that runs waits:")
	got := podTroubles(events, []podview.Pod{{ObjectMeta: metav1.ObjectMeta{UID: "u-1"}}})
	check.That(t, len(got) == 1 && got[0].What == "AddressRefused", "got %+v", got)
}

func TestStatusCountsTheMovesOfTheLastHour(t *testing.T) {
	now := time.Now()
	m := movesOf([]eventsv1.Event{
		eventOn("Pod", "web-0", "AddressMoved", "Warning", now.Add(-2*time.Minute)),
		eventOn("Pod", "web-1", "AddressMoved", "Warning", now.Add(-time.Minute)),
		eventOn("Pod", "web-2", "AddressMoved", "Warning", now.Add(-2*time.Hour)),
		eventOn("Pod", "web-3", "AddressRefused", "Warning", now),
	}, now)
	check.That(t, m.Addresses == 2 && m.Last.Equal(now.Add(-time.Minute)), "got %+v", m)
	var out bytes.Buffer
	writeState(paper{printable{&out}, 0, func(_, text string) string { return text }}, state{Moves: m}, now)
	check.Says(t, out.String(), "next sandboxes of their pods while the API server was away: 2")
}

func TestPoolsOfANetworkConfiguration(t *testing.T) {
	for _, c := range []struct {
		config string
		serves bool
		pools  int
	}{
		{`{"type":"macvlan","ipam":{"type":"fenceline","default_ipv4_ippool":["a","b"]}}`, true, 2},
		{`{"plugins":[{"type":"macvlan","ipam":{"type":"fenceline","default_ipv4_ippool":["a"]}},{"type":"tuning"}]}`, true, 1},
		{`{"type":"macvlan","ipam":{"type":"host-local"}}`, false, 0},
		{"no JSON", false, 0},
	} {
		pools, serves := configPools(c.config)
		check.That(t, serves == c.serves && len(pools.V4) == c.pools, "%s: %v %+v", c.config, serves, pools)
	}
}

func TestAVerdictNamesTheHolder(t *testing.T) {
	hears := &diagnosis.Parent{Carrier: true, Observed: true}
	bound := &v1alpha1.IPLease{Spec: v1alpha1.IPLeaseSpec{State: v1alpha1.StateBound, NodeName: "n2", Holder: &v1alpha1.Holder{Namespace: "shop", Pod: "web-0", MAC: "02:00:00:00:00:07"}}}
	for _, c := range []struct {
		mac   string
		state *diagnosis.Parent
		lease *v1alpha1.IPLease
		want  string
	}{
		{"02:00:00:00:00:07", hears, bound, "which is its holder, pod shop/web-0 on node n2"},
		{"00:11:22:33:44:55", hears, bound, "a conflict"},
		{"00:11:22:33:44:55", hears, &v1alpha1.IPLease{}, "00:11:22:33:44:55 answers"},
		{"", hears, bound, "nobody answers"},
		{"", &diagnosis.Parent{Carrier: true}, bound, "this proves nothing"},
	} {
		p := probed{State: c.state, Answer: diagnosis.Answer{MAC: c.mac}}
		if got := verdict(p, c.lease); !strings.HasSuffix(got, c.want) && !strings.Contains(got, c.want) {
			t.Errorf("%q, want %q", got, c.want)
		}
	}
}

func TestWhoKeepsAnAddressBack(t *testing.T) {
	machine := v1alpha1.ReservedIP{ObjectMeta: metav1.ObjectMeta{Name: "bare"}, Spec: v1alpha1.ReservedIPSpec{
		IPs: []string{"10.0.0.2", "10.0.0.3"}, For: &v1alpha1.ReservedFor{MAC: "02:00:00:00:00:0a"},
	}}
	machine.Status.Speakers = []v1alpha1.Speaker{{Address: "10.0.0.3", Node: "n1", MAC: "02:00:00:00:00:0b", Since: metav1.NewMicroTime(time.Unix(0, 0))}}
	balancer := v1alpha1.ReservedIP{TypeMeta: metav1.TypeMeta{Kind: "Service"}, ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}, Spec: v1alpha1.ReservedIPSpec{IPs: []string{"10.0.0.4"}}}
	for _, row := range []struct{ addr, name, says string }{
		{"10.0.0.2", "bare", "ReservedIP bare keeps it for the machine with MAC 02:00:00:00:00:0a."},
		{"10.0.0.3", "bare", "The host with MAC 02:00:00:00:00:0b uses it, heard by node n1 since 1970-01-01T00:00:00Z"},
		{"10.0.0.4", "", "Service shop/web of type LoadBalancer keeps it back from every pool."},
	} {
		name, said, _ := reservedBy([]v1alpha1.ReservedIP{machine, balancer}, netip.MustParseAddr(row.addr))
		check.That(t, name == row.name && strings.Contains(said, row.says), "%s: %q says %q, want %q and %q", row.addr, name, said, row.name, row.says)
	}
}
