// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"context"
	"encoding/json"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/fenceline/fenceline/test/await"
	"github.com/fenceline/fenceline/test/must"
)

// daemon is a program of a node that tests may end and start again.
type daemon struct {
	Args []string
	Env  []string
	Log  string
	// Socket is where the daemon serves, empty if its start is not waited for.
	Socket string
}

func (c Config) daemons() map[string]daemon {
	// A program reads the first PATH that it gets.
	env := append([]string{"PATH=" + c.searchPath()}, os.Environ()...)
	all := map[string]daemon{
		c.Runtime: {Args: c.runtime().args, Socket: c.runtime().socket},
		Kubelet: {Args: []string{
			"kubelet", "--config=/etc/kubernetes/kubelet.yaml", "--kubeconfig=/etc/kubernetes/kubeconfig",
			"--hostname-override=" + c.Name, "--node-ip=" + join(c.Addresses), "--v=2",
		}},
		// Conntrack limits belong to the whole machine and are left alone.
		KubeProxy: {Args: []string{
			"kube-proxy", "--kubeconfig=/etc/kubernetes/kube-proxy.conf", "--hostname-override=" + c.Name, "--proxy-mode=" + c.ProxyMode,
			"--conntrack-max-per-core=0", "--conntrack-tcp-timeout-established=0", "--conntrack-tcp-timeout-close-wait=0",
			"--metrics-bind-address=127.0.0.1:10249", "--healthz-bind-address=127.0.0.1:10256",
		}},
	}
	for name, d := range all {
		d.Env, d.Log = env, filepath.Join(c.Dir, "log", name+".log")
		all[name] = d
	}
	return all
}

// join lists addresses as flags want them.
func join(addresses []netip.Addr) string {
	var texts []string
	for _, a := range addresses {
		texts = append(texts, a.String())
	}
	return strings.Join(texts, ",")
}

func (c Config) searchPath() string {
	return strings.Join(append(append([]string{}, c.Path...), "/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"), ":")
}

func (c Config) writeDaemons() error {
	data, err := json.Marshal(c.daemons())
	if err != nil {
		return err
	}
	return os.WriteFile(daemonsFile, data, 0o600)
}

// StartDaemon starts one of the node's daemons. It runs inside the node, and
// leaves the daemon to the node's first process. If the daemon has a
// socket, it returns once that accepts connections.
func StartDaemon(name string) (err error) {
	defer must.CatchIn(&err, "start %s", name)
	var all map[string]daemon
	must.Done(json.Unmarshal(must.Value(os.ReadFile(daemonsFile)), &all), "read %s", daemonsFile)
	d, ok := all[name]
	must.That(ok, "no such daemon")
	d.start()
	return nil
}

func (d daemon) start() {
	log := must.Value(os.OpenFile(d.Log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644))
	defer log.Close()
	null := must.Value(os.Open(os.DevNull))
	defer null.Close()
	p := must.Value(os.StartProcess(lookPath(d.Args[0], d.Env), d.Args, &os.ProcAttr{
		Dir: "/", Env: d.Env, Files: []*os.File{null, log, log}, Sys: &syscall.SysProcAttr{Setsid: true},
	}))
	must.OK(p.Release())
	if d.Socket == "" {
		return
	}
	must.OK(await.Until(context.Background(), bootLimit, 20*time.Millisecond, "its socket", func(ctx context.Context) error {
		conn, err := (&net.Dialer{}).DialContext(ctx, "unix", d.Socket)
		if err != nil {
			return err
		}
		return conn.Close()
	}))
}

// lookPath finds the program in the first PATH of env.
func lookPath(name string, env []string) string {
	var search string
	if i := slices.IndexFunc(env, func(e string) bool { return strings.HasPrefix(e, "PATH=") }); i >= 0 {
		search = strings.TrimPrefix(env[i], "PATH=")
	}
	for _, dir := range filepath.SplitList(search) {
		path := filepath.Join(dir, name)
		if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0 {
			return path
		}
	}
	panic(must.Failure("no program %s in %s", name, search))
}
