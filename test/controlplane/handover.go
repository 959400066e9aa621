// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/fenceline/fenceline/test/check"
	"github.com/fenceline/fenceline/test/must"
	"github.com/fenceline/fenceline/test/process"
)

// handOverVariable names the directory in which ended tests leave their servers to the next ones.
const handOverVariable = "FENCELINE_TEST_HANDOVER"

// mostIdle is how many servers wait for a test. Each takes 0.02 CPUs meanwhile.
const mostIdle = 4

// handedOver is a server that runs, and what etcd held when New had installed the custom resources.
type handedOver struct {
	Config  Config
	Running map[string]process.Process
	Content map[string]string // by key, both in base64
}

// HandOver calls run. In the processes that run starts, New hands the servers of ended tests over to the
// next ones, which saves 5 s of CPU each. HandOver stops the servers at the end.
func HandOver(run func()) (err error) {
	defer must.CatchIn(&err, "hand API servers over from test to test")
	ctx := context.Background()
	dir := makeDir(ctx)
	must.OK(os.Setenv(handOverVariable, dir))
	defer stopServers(ctx, filepath.Dir(dir), func(owner process.Process) bool { return owner.PID == os.Getpid() })
	run()
	return nil
}

// take takes one of the servers in dir, or returns nil.
func take(dir string) *handedOver {
	for _, file := range idle(dir) {
		s := &handedOver{}
		if data, err := os.ReadFile(file); err == nil && os.Remove(file) == nil {
			must.OK(json.Unmarshal(data, s))
			s.Config.Command = exec.CommandContext
			if s.lives() {
				return s
			}
			must.OK(s.server().Close())
		}
	}
	return nil
}

// idle returns the files of the servers in dir.
func idle(dir string) []string { return must.Value(filepath.Glob(filepath.Join(dir, "*.json"))) }

// lives reports whether all processes of the server run.
func (h *handedOver) lives() bool {
	for _, p := range h.Running {
		if !p.Alive() {
			return false
		}
	}
	return true
}

func (h *handedOver) server() *Server {
	s := &Server{ControlPlane: &ControlPlane{Config: h.Config, running: maps.Clone(h.Running)}}
	s.admin = must.Value(s.RESTConfig())
	return s
}

// ofEarlierTest returns a server of an earlier test, or a new one, and leaves it in dir when the test has
// ended. It stops the server of a test that failed, or that started or stopped one of its processes.
func ofEarlierTest(t testing.TB, dir string) *Server {
	t.Helper()
	h := take(dir)
	isNew := h == nil
	if isNew {
		launched := check.Value(Launch(t.Context()))(t)
		h = &handedOver{Config: launched.Config, Running: maps.Clone(launched.running)}
	}
	s := h.server()
	t.Cleanup(func() {
		err := errUnfit
		if !t.Failed() && maps.Equal(s.running, h.Running) {
			err = h.handOver(dir)
		}
		if err != nil {
			check.OK(t, s.Close())
		}
		check.That(t, err == nil || errors.Is(err, errUnfit), "hand an API server over to the next test: %v", err)
	})
	if isNew {
		s.installCRDs(t)
		h.Content = check.Value(h.content())(t)
	}
	return s
}

var errUnfit = errors.New("this server is not for the next test")

// handOver restores the content and leaves the server in dir.
func (h *handedOver) handOver(dir string) (err error) {
	defer must.Catch(&err)
	if len(idle(dir)) >= mostIdle || !h.lives() || h.isLate(must.Value(h.content())) {
		return errUnfit
	}
	for must.Value(h.restore()) > 0 { // until no call of a killed process has made anything meanwhile
	}
	file := filepath.Join(dir, filepath.Base(h.Config.Dir))
	must.OK(os.WriteFile(file, must.Value(json.Marshal(h)), 0o600))
	return os.Rename(file, file+".json")
}

// late are the prefixes of keys whose removal kube-apiserver learns with a delay: kinds, rights and
// admission policies. The next test could still meet them.
var late = []string{"/registry/apiextensions.k8s.io/", "/registry/clusterrole", "/registry/role", "/registry/validatingadmission"}

// isLate reports whether a test has made something that is late.
func (h *handedOver) isLate(now map[string]string) bool {
	for key := range now {
		if _, ok := h.Content[key]; ok {
			continue
		}
		name, _ := base64.StdEncoding.DecodeString(key)
		if slices.ContainsFunc(late, func(prefix string) bool { return strings.HasPrefix(string(name), prefix) }) {
			return true
		}
	}
	return false
}

// registry is the range of the keys of kube-apiserver.
var registry = map[string][]byte{"key": []byte("/registry/"), "range_end": []byte("/registry0")}

// content returns what etcd holds.
func (h *handedOver) content() (_ map[string]string, err error) {
	defer must.Catch(&err)
	var found struct {
		KVs []struct{ Key, Value string } `json:"kvs"`
	}
	must.OK(h.ask("range", registry, &found))
	content := map[string]string{}
	for _, kv := range found.KVs {
		content[kv.Key] = kv.Value
	}
	return content, nil
}

// restore takes etcd back to the content that it had, and returns how many foreign keys it removed.
// kube-apiserver learns it as the work of another kube-apiserver, so no finalizer delays it.
func (h *handedOver) restore() (foreign int, err error) {
	defer must.Catch(&err)
	var changes []map[string]map[string]string
	now := must.Value(h.content())
	for key := range now {
		if _, ok := h.Content[key]; !ok {
			changes = append(changes, map[string]map[string]string{"requestDeleteRange": {"key": key}})
			foreign++
		}
	}
	for key, value := range h.Content {
		if now[key] != value {
			changes = append(changes, map[string]map[string]string{"requestPut": {"key": key, "value": value}})
		}
	}
	const most = 100 // etcd takes 128 (--max-txn-ops)
	for part := range slices.Chunk(changes, most) {
		must.OK(h.ask("txn", map[string]any{"success": part}, &struct{}{}))
	}
	return foreign, nil
}

// ask sends a request to the JSON gateway of etcd.
func (h *handedOver) ask(method string, request, answer any) (err error) {
	defer must.CatchIn(&err, "ask etcd for a %s", method)
	body := must.Value(json.Marshal(request))
	response, err := http.Post(h.Config.etcdURL(h.Config.EtcdClientPort)+"/v3/kv/"+method, "application/json", bytes.NewReader(body))
	must.OK(err)
	defer response.Body.Close()
	data := must.Value(io.ReadAll(response.Body))
	must.That(response.StatusCode == http.StatusOK, "%s: %s", response.Status, strings.TrimSpace(string(data)))
	return json.Unmarshal(data, answer)
}
