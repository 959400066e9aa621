// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

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
	steps := []struct {
		what string
		do   func() error
	}{
		{"set the host name", func() error { return unix.Sethostname([]byte(c.Name)) }},
		{"mount file systems", c.mountAll},
		{"write configuration", c.writeFiles},
		{"list daemons", c.writeDaemons},
		{"start the container runtime", func() error { return StartDaemon(c.Runtime) }},
		{"import images", func() error { return c.importImages(ctx) }},
		{"start kubelet", func() error { return StartDaemon(Kubelet) }},
		{"start kube-proxy", c.startProxy},
		{"report", func() error { return os.WriteFile(c.bootedFile(), nil, 0o644) }},
	}
	for _, step := range steps {
		must.Done(step.do(), "boot %s: %s", c.Name, step.what)
	}
	reap()
	return nil
}

// bootedFile appears when the node's daemons have been started.
func (c Config) bootedFile() string { return filepath.Join(c.Dir, "booted") }

func (c Config) startProxy() error {
	if len(c.Proxy) == 0 {
		return nil
	}
	return StartDaemon(KubeProxy)
}

// importImages imports the tarballs that this node's disk does not know yet.
func (c Config) importImages(ctx context.Context) (err error) {
	defer must.Catch(&err)
	for _, tarball := range c.Images {
		mark := filepath.Join(c.Dir, "disk", "imported-"+digestOf(tarball))
		if _, err := os.Stat(mark); err == nil {
			continue
		}
		commands, err := c.runtime().imports(tarball)
		if err == nil {
			err = c.run(ctx, commands)
		}
		must.Done(err, "import %s", tarball)
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

// reap collects orphans until SIGTERM. No other code of the process waits for
// children from here on.
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
