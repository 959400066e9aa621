// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fenceline/fenceline/test/await"
	"github.com/fenceline/fenceline/test/must"
)

// bootLimit is how long the daemons of a node may take to start.
const bootLimit = 2 * time.Minute

// Boot is the life of a node's first process: it prepares the node, starts its
// daemons, and then reaps what others leave behind until it is killed.
func Boot(c Config) (err error) {
	defer must.Catch(&err)
	must.That(os.Getpid() == 1, "boot %s: process %d is not the first of a PID namespace", c.Name, os.Getpid())
	ctx, cancel := context.WithTimeout(context.Background(), bootLimit)
	defer cancel()
	must.OK(os.Setenv("PATH", c.searchPath()))
	type step struct {
		what string
		do   func() error
	}
	steps := []step{
		{"set the host name", func() error { return unix.Sethostname([]byte(c.Name)) }},
		{"mount file systems", c.mountAll},
		{"write configuration", c.writeFiles},
		{"list daemons", c.writeDaemons},
		{"start the container runtime", func() error { return StartDaemon(c.Runtime) }},
		{"import images", func() error { return c.importImages(ctx) }},
		{"start kubelet", func() error { return StartDaemon(Kubelet) }},
	}
	if len(c.Proxy) > 0 {
		steps = append(steps, step{"start kube-proxy", func() error { return StartDaemon(KubeProxy) }})
	}
	for _, step := range steps {
		must.Done(step.do(), "boot %s: %s", c.Name, step.what)
	}
	must.OK(os.WriteFile(c.bootedFile(), nil, 0o644))
	reap()
	return nil
}

// bootedFile appears when the node's daemons have been started.
func (c Config) bootedFile() string { return filepath.Join(c.Dir, "booted") }

// importImages imports the tarballs that this node's disk does not know yet.
func (c Config) importImages(ctx context.Context) (err error) {
	defer must.Catch(&err)
	for _, tarball := range c.Images {
		mark := filepath.Join(c.Dir, "disk", "imported-"+digestOf(tarball))
		if _, err := os.Stat(mark); err == nil {
			continue
		}
		must.Done(c.run(ctx, must.Value(c.runtime().imports(tarball))), "import %s", tarball)
		must.OK(os.WriteFile(mark, []byte(tarball), 0o644))
	}
	return nil
}

func digestOf(path string) string {
	f := must.Value(os.Open(path))
	defer f.Close()
	sum := sha256.New()
	must.Value(io.Copy(sum, f))
	return hex.EncodeToString(sum.Sum(nil)[:8])
}

// reap collects orphans until SIGTERM. No other code of the process waits for children from here on.
func reap() {
	signals := make(chan os.Signal, 64)
	signal.Notify(signals, syscall.SIGCHLD, syscall.SIGTERM)
	for {
		for {
			pid, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil)
			if errors.Is(err, syscall.EINTR) {
				continue
			}
			if err != nil || pid <= 0 {
				break
			}
		}
		if <-signals == syscall.SIGTERM {
			return
		}
	}
}

// daemon is a program of a node that tests may end and start again.
type daemon struct {
	Args []string
	Env  []string
	Log  string
	// Network and Address are where the daemon serves, empty if its start is not waited for.
	Network, Address string
}

func (c Config) daemons() map[string]daemon {
	all := map[string]daemon{
		c.Runtime: {Args: c.runtime().args, Network: "unix", Address: c.runtime().socket},
		// A kubelet that finds no runtime when it starts ends, and no systemd is here to start it again.
		Kubelet: {Network: "tcp", Address: "127.0.0.1:10248", Args: []string{
			"kubelet", "--config=/etc/kubernetes/kubelet.yaml", "--kubeconfig=/etc/kubernetes/kubeconfig",
			"--hostname-override=" + c.Name, "--node-ip=" + join(c.Addresses), "--v=2", "--housekeeping-interval=1m",
		}},
		// Conntrack limits belong to the whole machine and are left alone.
		KubeProxy: {Args: []string{
			"kube-proxy", "--kubeconfig=/etc/kubernetes/kube-proxy.conf", "--hostname-override=" + c.Name, "--proxy-mode=" + c.ProxyMode,
			"--conntrack-max-per-core=0", "--conntrack-tcp-timeout-established=0", "--conntrack-tcp-timeout-close-wait=0",
			"--metrics-bind-address=127.0.0.1:10249", "--healthz-bind-address=127.0.0.1:10256",
		}},
	}
	for name, d := range all {
		d.Env, d.Log = append(os.Environ(), "GOGC=400", "GOMAXPROCS=1"), filepath.Join(c.Dir, "log", name+".log") // 7 % less CPU
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
	return os.WriteFile(daemonsFile, must.Value(json.Marshal(c.daemons())), 0o600)
}

// StartDaemon starts one of the node's daemons. It runs inside the node, and leaves the daemon to the node's first
// process. It returns once the daemon accepts connections, if it has an address.
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
	p := must.Value(os.StartProcess(must.Value(exec.LookPath(d.Args[0])), d.Args, &os.ProcAttr{
		Dir: "/", Env: d.Env, Files: []*os.File{null, log, log}, Sys: &syscall.SysProcAttr{Setsid: true},
	}))
	must.OK(p.Release())
	if d.Address == "" {
		return
	}
	must.OK(await.Until(context.Background(), bootLimit, "its socket", func(ctx context.Context) error {
		conn, err := (&net.Dialer{}).DialContext(ctx, d.Network, d.Address)
		if err != nil {
			return err
		}
		return conn.Close()
	}))
}
