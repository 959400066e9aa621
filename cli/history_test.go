// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/cli/cluster"
	"github.com/fenceline/fenceline/test/check"
)

const grantLine = `{"time":"2026-11-25T10:00:00Z","level":"INFO","msg":"grant","logger":"audit","address":"10.0.0.7","pool":"p","namespace":"shop","pod":"web-0","node":"n1","mac":"02:00:00:00:00:01","token":5,"reason":""}
`

func TestAuditLinesAreReadFromALog(t *testing.T) {
	log := grantLine + `no JSON with 10.0.0.7
{"time":"2026-11-25T10:00:01Z","msg":"grant","logger":"audit","address":"10.0.0.70","pool":"p"}
{"time":"2026-11-25T10:00:02Z","msg":"something else","address":"10.0.0.7"}`
	got := check.Value(auditLines(strings.NewReader(log), "agent-x", line{Address: "10.0.0.7"}))(t)
	if len(got) != 1 || got[0].Kind != "grant" || got[0].Text != "pod shop/web-0 on node n1, MAC 02:00:00:00:00:01, token 5" {
		t.Errorf("got %+v", got)
	}
}

func TestANoteNamesAWholeAddress(t *testing.T) {
	for _, c := range []struct {
		note, name string
		want       bool
	}{
		{"10.0.0.2 is kept for the pod", "10.0.0.2", true},
		{"02:00:00:00:00:07 also uses 10.0.0.2.", "10.0.0.2", true},
		{"lost (10.0.0.2/24)", "10.0.0.2", true},
		{"10.0.0.25 is kept for the pod", "10.0.0.2", false},
		{"210.0.0.2 is kept for the pod", "10.0.0.2", false},
		{"lease lab-1.10.0.0.2 is gone", "10.0.0.2", false},
		{"lease lab-1.10.0.0.2 is gone", "lab-1.10.0.0.2", true},
		{"fd00::1: no answer", "fd00::1", true},
		{"fd00::12 is kept for the pod", "fd00::1", false},
		{"fd00::1:2 is kept for the pod", "fd00::1", false},
		{"fd00::1 is kept for the pod", "fd00::", false},
		{"no answer from fd00::: timeout", "fd00::", true},
	} {
		check.Equal(t, isNamed(c.note, c.name), c.want, "%q names %s:", c.note, c.name)
	}
}

var addr = netip.MustParseAddr("10.0.0.7")

// logServer is an API server with an event of each lease of the network lab. The pods of its agents have the names of their nodes.
func logServer(t *testing.T, controllers, nodes []string, log func(pod string, w http.ResponseWriter, r *http.Request)) *cluster.Cluster {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		list := func(component string, names []string) {
			var pods []string
			for _, n := range names {
				pods = append(pods, fmt.Sprintf(`{"metadata":{"name":%q,"labels":{"app.kubernetes.io/component":%q}},"spec":{"nodeName":%[1]q}}`, n, component))
			}
			fmt.Fprintf(w, `{"kind":"PodList","apiVersion":"v1","items":[%s]}`, strings.Join(pods, ","))
		}
		if pod, isLog := strings.CutSuffix(r.URL.Path, "/log"); isLog {
			log(pod[strings.LastIndex(pod, "/")+1:], w, r)
			return
		}
		switch {
		case r.URL.Path == "/api/v1":
			fmt.Fprint(w, `{"kind":"APIResourceList","groupVersion":"v1","resources":[{"name":"pods","kind":"Pod","namespaced":true}]}`)
		case r.URL.Path == "/apis/events.k8s.io/v1":
			fmt.Fprint(w, `{"kind":"APIResourceList","groupVersion":"events.k8s.io/v1","resources":[{"name":"events","kind":"Event","namespaced":true}]}`)
		case strings.HasSuffix(r.URL.Path, "/events"):
			items := ""
			if strings.Contains(r.URL.RawQuery, "lab.") {
				items = `{"regarding":{"kind":"IPLease"},"reason":"Freed"}`
			}
			fmt.Fprintf(w, `{"kind":"EventList","apiVersion":"events.k8s.io/v1","items":[%s]}`, items)
		case strings.Contains(r.URL.RawQuery, "agent"):
			list("agent", nodes)
		default:
			list("controller", controllers)
		}
	}))
	t.Cleanup(server.Close)
	return check.Value(cluster.Open(&rest.Config{Host: server.URL}, "fenceline-system"))(t)
}

func TestAHistorySaysWhichLogsWereRead(t *testing.T) {
	grants := func(_ string, w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, grantLine) }
	many := make([]string, mostLogs+20)
	for i := range many {
		many[i] = fmt.Sprintf("n%02d", i)
	}
	lease := &v1alpha1.IPLease{Spec: v1alpha1.IPLeaseSpec{NodeName: "n3", Previous: &v1alpha1.PreviousHolder{Node: "n1"}}}
	for _, c := range []struct {
		name  string
		nodes []string
		lease *v1alpha1.IPLease
		all   bool
		lines int
		want  string
	}{
		{"a lease names two nodes", []string{"n1", "n2", "n3"}, lease, false, 4, "Logs of agents read: n1, n3. Not read: n2. --all-nodes reads all 3."},
		{"all nodes are asked for", []string{"n1", "n2", "n3"}, lease, true, 5, "Logs of agents read: n1, n2, n3."},
		{"a lease names nodes without an agent", []string{"n2"}, lease, false, 2, "Logs of agents read: none. Not read: n2. --all-nodes reads all 1."},
		{"no lease names a node", many, nil, false, mostLogs + 2, "Logs of agents read: those of 50 nodes. Not read: those of 20 nodes. --all-nodes reads all 70."},
		{"no lease, all nodes", many, nil, true, len(many) + 2, "Logs of agents read: those of 70 nodes."},
	} {
		t.Run(c.name, func(t *testing.T) {
			cl := logServer(t, []string{"leader", "other"}, c.nodes, grants)
			moments, logs, err := readHistory(t.Context(), cl, "", addr, c.lease, "", c.all)
			check.OK(t, err)
			check.Equal(t, len(moments), c.lines, "lines of two controllers and of agents:")
			check.None(t, cl.Missed(), "missed:")
			check.Equal(t, logs.sentence(), c.want, "logs:")
		})
	}
}

func TestAHistoryIsOfOneNetwork(t *testing.T) {
	inLab := strings.Replace(grantLine, `"address"`, `"network":"lab","address"`, 1)
	cl := logServer(t, []string{"leader"}, nil, func(_ string, w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, grantLine, inLab, inLab) })
	for network, want := range map[string][]string{"lab": {"Freed", "grant", "grant"}, "": {"grant"}} {
		moments, _, err := readHistory(t.Context(), cl, network, addr, nil, "", true)
		check.OK(t, err)
		var got []string
		for _, m := range moments {
			got = append(got, m.Kind)
		}
		check.List(t, got, want, "on network %q: history", network)
	}
}

// A node that is cut off lets the API server wait for its kubelet, or get an error.
func TestALogThatBreaksOffIsNamed(t *testing.T) {
	t.Parallel()
	cl := logServer(t, nil, []string{"whole", "starting", "late", "broken", "failed"}, func(pod string, w http.ResponseWriter, r *http.Request) {
		switch pod {
		case "starting":
			w.WriteHeader(http.StatusBadRequest)
			fmt.Fprint(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"BadRequest","code":400}`)
		case "late":
			<-r.Context().Done()
		case "failed":
			w.WriteHeader(http.StatusInternalServerError)
			fmt.Fprint(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","message":"dial kubelet: no route to host","code":500}`)
		default:
			fmt.Fprint(w, grantLine)
			w.(http.Flusher).Flush()
			if pod == "broken" {
				panic(http.ErrAbortHandler)
			}
		}
	})
	moments, logs, err := readHistory(t.Context(), cl, "", addr, nil, "", true)
	check.OK(t, err)
	check.Equal(t, len(moments), 2, "lines of the whole and of the broken log:")
	check.Equal(t, logs.sentence(), "Logs of agents read: starting, whole. Not read: broken, failed, late.", "with --all-nodes:")
	missed := strings.Join(cl.Missed(), "\n")
	check.Equal(t, len(cl.Missed()), 3, "%s:", missed)
	check.Says(t, missed, "the log of agent late, or its end: it did not come within 5s",
		"the log of agent broken, or its end: unexpected EOF", "the log of agent failed, or its end: dial kubelet: no route to host")
}
