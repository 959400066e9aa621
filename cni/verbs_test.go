// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"

	"github.com/fenceline/fenceline/cni/agentapi"
	"github.com/fenceline/fenceline/cni/spool"
	"github.com/fenceline/fenceline/test/check"
)

const podArgs = "IgnoreUnknown=1;K8S_POD_NAMESPACE=default;K8S_POD_NAME=web-0;K8S_POD_UID=u"

// node is where a plugin runs: a directory with the agent's socket and the spool.
type node struct{ dir string }

func newNode(t testing.TB) node {
	t.Helper()
	// t.TempDir makes paths longer than the 108 bytes of a unix socket's address.
	dir := check.Value(os.MkdirTemp("", "flt"))(t)
	t.Cleanup(func() { os.RemoveAll(dir) })
	return node{dir}
}

func (n node) socket() string   { return filepath.Join(n.dir, "agent.sock") }
func (n node) spool() spool.Dir { return spool.Dir(filepath.Join(n.dir, "spool")) }

// conf returns a configuration of the type with the node's paths.
func (n node) conf(pluginType, version, more string) []byte {
	ipam := ""
	if pluginType != "fenceline" {
		ipam = `"type":"fenceline",`
	}
	return fmt.Appendf(nil, `{"cniVersion":%q,"name":"underlay","type":%q,"master":"eth1",%s"ipam":{%s"socket":%q,"spool":%q}}`,
		version, pluginType, more, ipam, n.socket(), n.spool())
}

const prevResult = `"prevResult":{"cniVersion":"1.1.0",
	"interfaces":[{"name":"eth0","mac":"02:00:00:00:00:01","sandbox":"/run/netns/a"}],
	"ips":[{"address":"192.0.2.7/24","gateway":"192.0.2.1","interface":0}],
	"routes":[{"dst":"0.0.0.0/0"}]},`

func args(stdin []byte) *skel.CmdArgs {
	return &skel.CmdArgs{ContainerID: "abc", Netns: "/run/netns/a", IfName: "eth0", Args: podArgs, StdinData: stdin}
}

// run calls a verb as skel would, and returns what went to stdout.
func run(verb string, a *skel.CmdArgs) (string, error) {
	var out bytes.Buffer
	p := plugin{stdout: &out, stderr: &bytes.Buffer{}, now: thisMoment}
	verbs := map[string]func(context.Context, *call) error{"ADD": p.add, "DEL": p.del, "CHECK": p.check, "GC": p.gc, "STATUS": p.status}
	err := p.verb(verb, verbs[verb])(a)
	return out.String(), err
}

func TestADelegatedADDPrintsTheAgentsAddresses(t *testing.T) {
	n := newNode(t)
	agent := listen(t, n, answers{add: dualStack()})
	out := check.Value(run("ADD", args(n.conf("macvlan", "1.1.0", `"runtimeConfig":{"ips":["192.0.2.7"]},`))))(t)
	wantJSON(t, []byte(out), `{"cniVersion":"1.1.0",
		"ips":[{"address":"192.0.2.7/24","gateway":"192.0.2.1"},{"address":"2001:db8::7/64"}],
		"routes":[{"dst":"0.0.0.0/0","gw":"192.0.2.1"},{"dst":"2001:db8:1::/48"}]}`)
	wantJSON(t, agent.request(agentapi.PathAdd), `{"containerID":"abc","interface":"eth0","netns":"/run/netns/a",
		"pod":{"namespace":"default","name":"web-0","uid":"u"},
		"network":{"name":"underlay","type":"macvlan","master":"eth1"},"ips":["192.0.2.7"]}`)
}

// A probe on a port that Open vSwitch has not taken yet would find every address free.
func TestAStandAloneADDRefusesOpenVSwitch(t *testing.T) {
	conf := `{"cniVersion":"1.0.0","name":"n","type":"ovs","bridge":"br0","ipam":{"type":"fenceline","standalone":true,"subnet":"192.0.2.0/24"}}`
	_, err := run("ADD", args([]byte(conf)))
	check.That(t, err != nil && strings.Contains(err.Error(), "ovs-cni asks for an address before"), "ADD says %v", err)
}

func TestAChainedADDPassesPrevResultOn(t *testing.T) {
	n := newNode(t)
	agent := listen(t, n, answers{add: &agentapi.AddResponse{}})
	out := check.Value(run("ADD", args(n.conf("fenceline", "1.1.0", prevResult))))(t)
	wantJSON(t, []byte(out), `{"cniVersion":"1.1.0",
		"interfaces":[{"name":"eth0","mac":"02:00:00:00:00:01","sandbox":"/run/netns/a"}],
		"ips":[{"address":"192.0.2.7/24","gateway":"192.0.2.1","interface":0}],
		"routes":[{"dst":"0.0.0.0/0"}]}`)
	wantJSON(t, agent.request(agentapi.PathAdd), `{"containerID":"abc","interface":"eth0","netns":"/run/netns/a",
		"pod":{"namespace":"default","name":"web-0","uid":"u"},
		"network":{"name":"underlay","type":"fenceline","master":"eth1"},"chained":true,
		"configured":[{"address":"192.0.2.7/24","gateway":"192.0.2.1","interface":"eth0","mac":"02:00:00:00:00:01"}]}`)
}

func TestAChainedPluginAtTheHeadOfTheChainIsRefused(t *testing.T) {
	n := newNode(t)
	for _, verb := range []string{"ADD", "CHECK"} {
		_, err := run(verb, args(n.conf("fenceline", "1.1.0", "")))
		wantCNI(t, err, 7, `"prevResult"`, "chain fenceline after")
	}
}

func TestWhileTheAgentIsAway(t *testing.T) {
	n := newNode(t)
	t.Run("ADD says try again later, why and what to look at", func(t *testing.T) {
		_, err := run("ADD", args(n.conf("macvlan", "1.1.0", "")))
		wantCNI(t, err, 11, "ADD of eth0 in pod default/web-0", n.socket(), "no such file", "fenceline-system")
	})
	t.Run("CHECK and GC say try again later", func(t *testing.T) {
		_, err := run("CHECK", args(n.conf("macvlan", "1.1.0", prevResult)))
		wantCNI(t, err, 11)
		_, err = run("GC", args(n.conf("macvlan", "1.1.0", `"cni.dev/valid-attachments":[],`)))
		wantCNI(t, err, 11)
	})
	t.Run("STATUS says not available", func(t *testing.T) {
		_, err := run("STATUS", &skel.CmdArgs{StdinData: n.conf("macvlan", "1.1.0", "")})
		wantCNI(t, err, 50, "STATUS of network underlay", n.socket())
	})
	t.Run("DEL succeeds and is spooled, netns or not", func(t *testing.T) {
		a := args(n.conf("macvlan", "0.3.1", ""))
		a.Netns = ""
		for range 2 {
			out, err := run("DEL", a)
			check.Must(t, err == nil && out == "", "%q, %v", out, err)
		}
		r, ok, err := n.spool().Get(agentapi.Attachment{ContainerID: "abc", Interface: "eth0"})
		want := agentapi.DelRequest{
			Attachment: agentapi.Attachment{ContainerID: "abc", Interface: "eth0"},
			Pod:        agentapi.Pod{Namespace: "default", Name: "web-0", UID: "u"},
			Network:    agentapi.Network{Name: "underlay", Type: "macvlan", Master: "eth1"},
		}
		check.That(t, err == nil && ok && reflect.DeepEqual(r, want), "spooled %+v, %v, %v", r, ok, err)
	})
}

// What it left would be removed while the DEL of the interface's IPAM, the one that frees, takes its place.
func TestAChainedDELIsNotSpooled(t *testing.T) {
	n := newNode(t)
	out, err := run("DEL", args(n.conf("fenceline", "1.1.0", prevResult)))
	check.Must(t, err == nil && out == "", "%q, %v", out, err)
	check.None(t, check.Value(n.spool().List())(t), "spooled")
}

func TestADELThatTheAgentCannotDoIsSpooled(t *testing.T) {
	n := newNode(t)
	listen(t, n, answers{err: agentapi.Errorf(agentapi.CodeInternal, "the disk is full")})
	check.Value(run("DEL", args(n.conf("macvlan", "1.1.0", ""))))(t)
	check.Equal(t, len(check.Value(n.spool().List())(t)), 1, "spooled:")
}

func TestADELThatCanNeitherBeDoneNorSpooledFails(t *testing.T) {
	n := newNode(t)
	// A file where the spool's directory should be; root is not stopped by modes.
	check.OK(t, os.WriteFile(string(n.spool()), nil, 0o600))
	_, err := run("DEL", args(n.conf("macvlan", "1.1.0", "")))
	wantCNI(t, err, 5, n.socket(), string(n.spool()), "stays in use")
}

func TestADELNeedsNothingOfCNIARGS(t *testing.T) {
	n := newNode(t)
	listen(t, n, answers{})
	a := args(n.conf("macvlan", "1.1.0", ""))
	for _, env := range []string{"", "garbled"} {
		a.Args = env
		_, err := run("DEL", a)
		check.That(t, err == nil, "with CNI_ARGS=%q: %v", env, err)
	}
}

func TestTheAgentsErrorsKeepCodeMessageAndDetails(t *testing.T) {
	n := newNode(t)
	listen(t, n, answers{err: &agentapi.Error{Code: agentapi.CodeNoPool, Msg: "no pool is left for default/web-0", Details: "p1: disabled\np2: exhausted"}})
	_, err := run("ADD", args(n.conf("macvlan", "1.1.0", "")))
	wantCNI(t, err, 100, "ADD of eth0 in pod default/web-0: no pool is left for default/web-0", "p2: exhausted")
}

func TestADDWithoutAPodIsAnInvalidEnvironment(t *testing.T) {
	n := newNode(t)
	a := args(n.conf("macvlan", "1.1.0", ""))
	a.Args = ""
	_, err := run("ADD", a)
	wantCNI(t, err, 4, "K8S_POD_NAMESPACE and K8S_POD_NAME")
}

func TestGCSendsTheNetworkAndItsValidAttachments(t *testing.T) {
	n := newNode(t)
	agent := listen(t, n, answers{})
	conf := n.conf("fenceline", "1.1.0", `"cni.dev/valid-attachments":[{"containerID":"abc","ifname":"eth0"}],`)
	check.Value(run("GC", &skel.CmdArgs{StdinData: conf}))(t)
	wantJSON(t, agent.request(agentapi.PathGC), `{"network":"underlay","valid":[{"containerID":"abc","interface":"eth0"}]}`)
}

// TestThePluginStaysSmall guards its start-up time: it is executed for each
// pod, and a Kubernetes client alone costs more than the whole call.
func TestThePluginStaysSmall(t *testing.T) {
	out, err := exec.Command("go", "list", "-deps", ".").Output()
	check.Must(t, err == nil, "go list -deps: %v", err)
	for path := range strings.Lines(string(out)) {
		path = strings.TrimSpace(path)
		for _, heavy := range []string{"k8s.io/", "sigs.k8s.io/", "github.com/cilium/", "github.com/prometheus/", "google.golang.org/", "go.opentelemetry.io/"} {
			// host-local's allocator needs knftables through pkg/ip. It costs 0.1 MB and no time.
			check.That(t, !strings.HasPrefix(path, heavy) || path == "sigs.k8s.io/knftables", "the plugin depends on %s", path)
		}
	}
}

// wantCNI checks what skel would print.
func wantCNI(t *testing.T, err error, code uint, says ...string) {
	t.Helper()
	e, ok := errors.AsType[*types.Error](err)
	check.Must(t, ok && e.Code == code, "got %T %v, want code %d", err, err, code)
	check.Says(t, e.Msg+"\n"+e.Details, says...)
}

// answers are what the agent of these tests says. It is a fake, because the
// plugin's part alone is under test here: what it asks, and what it makes of
// each answer. The kernel tests run it against the agent's own server.
type answers struct {
	add *agentapi.AddResponse
	err *agentapi.Error
}

// fakeAgent records the last request for each path.
type fakeAgent struct {
	mu       sync.Mutex
	requests map[string][]byte
}

func listen(t testing.TB, n node, a answers) *fakeAgent {
	t.Helper()
	agent, stop := serve(t, n, a)
	t.Cleanup(stop)
	return agent
}

// serve listens until stop is called.
func serve(t testing.TB, n node, a answers) (agent *fakeAgent, stop func()) {
	t.Helper()
	agent = &fakeAgent{requests: map[string][]byte{}}
	l := check.Value(net.Listen("unix", n.socket()))(t)
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		text, _ := io.ReadAll(r.Body)
		agent.mu.Lock()
		agent.requests[r.URL.Path] = text
		agent.mu.Unlock()
		switch {
		case a.err != nil:
			w.WriteHeader(a.err.HTTPStatus())
			_ = json.NewEncoder(w).Encode(a.err)
		case r.URL.Path == agentapi.PathAdd:
			_ = json.NewEncoder(w).Encode(a.add)
		default:
			w.WriteHeader(http.StatusNoContent)
		}
	})}
	go func() { _ = server.Serve(l) }()
	return agent, func() { server.Close() }
}

func (a *fakeAgent) request(path string) []byte {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.requests[path]
}

func TestACallEndsWhenNobodyReadsItsResult(t *testing.T) {
	r, w, err := os.Pipe()
	check.OK(t, err)
	defer w.Close()
	ctx := whileRead(t.Context(), w)
	// What has been written and not been read yet is no reason.
	check.Value(w.WriteString("x"))(t)
	select {
	case <-ctx.Done():
		t.Fatal("the call ended while its reader was there")
	case <-time.After(50 * time.Millisecond): // that nothing happens has no event to wait for
	}
	r.Close()
	check.Receive(t, time.Minute, "the end of the call after its reader left", ctx.Done())
	check.Is(t, context.Cause(ctx), errUnread, "it ended by")
}

func TestACallWhoseResultGoesIntoAFileGoesOn(t *testing.T) {
	f := check.Value(os.CreateTemp(t.TempDir(), "result"))(t)
	defer f.Close()
	select {
	case <-whileRead(t.Context(), f).Done():
		t.Fatal("the call ended")
	case <-time.After(50 * time.Millisecond): // as above
	}
}
