// SPDX-License-Identifier: Apache-2.0

package nodes

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fenceline/fenceline/cni/agentapi"
	"github.com/fenceline/fenceline/cni/spool"
	"github.com/fenceline/fenceline/test/check"
	"github.com/fenceline/fenceline/test/controlplane"
	"github.com/fenceline/fenceline/test/namespaces"
	"github.com/fenceline/fenceline/test/process"
)

// logTail is the number of bytes of an agent's log that are shown.
const logTail = 16 << 10

// Node is a machine with an agent.
type Node struct {
	*namespaces.Node
	bystander
	Name   string
	Object *corev1.Node
	// Plugin has the keys of the plugin that calls the IPAM, from the agent's next start on; empty: a macvlan of the parent.
	Plugin string
	// Make makes the empty sandboxes of pods, if they have other interfaces than a macvlan.
	Make func(*corev1.Pod) (*Sandbox, error)
	// Flags are further flags of the agent, from its next start on.
	Flags []string

	cluster *Cluster
	dir     string // of state and sockets
	bpffs   string
	api     *apiDoor
	calls   *socketDoor

	starting sync.Mutex
	agent    process.Process
}

// newNode makes a node whose agent does not run yet.
func (c *Cluster) newNode(number int) *Node {
	c.t.Helper()
	n := &Node{Node: c.rig.Node(number), Name: fmt.Sprintf("n%d", number), cluster: c, dir: c.shortDir(), bpffs: c.t.TempDir()}
	c.check(unix.Mount("bpf", n.bpffs, "bpf", 0, ""))
	c.t.Cleanup(func() { c.check(unix.Unmount(n.bpffs, unix.MNT_DETACH)) })
	c.check(errors.Join(os.MkdirAll(n.state(), 0o700), os.MkdirAll(n.confDir(), 0o700)))
	n.api = check.Value(openAPIDoor(n.Namespace, c.Server.Admin(), n.see))(c.t)
	c.t.Cleanup(func() { n.api.server.Close() })
	c.check(n.writeKubeconfig())
	n.calls = check.Value(openSocketDoor(n.socket(), n.agentSocket(), n.see))(c.t)
	c.t.Cleanup(func() { n.calls.server.Close() })
	c.t.Cleanup(func() { c.check(n.RemovePins()) })
	c.t.Cleanup(func() { c.check(n.KillAgent()) })
	c.t.Cleanup(func() { c.closeLog("the agent of "+n.Name, n.log()) })
	return n
}

// shortDir makes a directory whose path leaves room for the name of a socket.
func (c *Cluster) shortDir() string {
	c.t.Helper()
	dir := check.Value(os.MkdirTemp("", "flt"))(c.t)
	c.t.Cleanup(func() { c.check(os.RemoveAll(dir)) })
	return dir
}

// writeKubeconfig leads the agent to the proxy.
func (n *Node) writeKubeconfig() error {
	return controlplane.WriteKubeconfig(&rest.Config{Host: n.api.url}, n.kubeconfig())
}

func (n *Node) state() string       { return filepath.Join(n.dir, "state") }
func (n *Node) socket() string      { return filepath.Join(n.dir, "door.sock") }
func (n *Node) agentSocket() string { return filepath.Join(n.dir, "agent.sock") }
func (n *Node) kubeconfig() string  { return filepath.Join(n.dir, "kubeconfig") }
func (n *Node) log() string         { return filepath.Join(n.dir, "agent.log") }
func (n *Node) conflist() string    { return filepath.Join(n.dir, "90-fenceline.conflist") }
func (n *Node) confDir() string     { return filepath.Join(n.dir, "net.d") }
func (n *Node) pins() string        { return filepath.Join(n.bpffs, "fenceline") }
func (n *Node) bootID() string      { return filepath.Join(n.dir, "boot_id") }
func (n *Node) spool() spool.Dir    { return spool.Dir(filepath.Join(n.state(), "spool")) }

// StartAgent starts the agent, unless it runs; see AwaitAgent.
func (n *Node) StartAgent() error {
	n.starting.Lock()
	defer n.starting.Unlock()
	if n.agent.Alive() {
		return nil
	}
	if err := os.WriteFile(n.conflist(), n.networkConfig(), 0o600); err != nil {
		return err
	}
	program := []string{filepath.Join(n.cluster.bin, "agent")}
	if _, err := os.Stat(n.bootID()); err == nil { // the nodes share a kernel
		program = append([]string{"unshare", "--mount", "--propagation=slave", "sh", "-c", `mount --bind "$0" /proc/sys/kernel/random/boot_id && exec "$@"`, n.bootID()}, program...)
	}
	cmd := exec.CommandContext(context.Background(), program[0], append(append(program[1:],
		"--node-name", n.Name, "--namespace", System, "--pod-name", "agent-"+n.Name,
		"--state-dir", n.state(), "--socket", n.agentSocket(), "--bpf-dir", n.pins(),
		"--cni-conflist", n.conflist(), "--cni-conf-dir", n.confDir(), "--cgroup-dir", "/sys/fs/cgroup",
	), n.Flags...)...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+n.kubeconfig())
	return n.Do(func() (err error) {
		n.agent, err = process.Start("agent of "+n.Name, cmd, n.log())
		return err
	})
}

// LosePower ends the agent and sandboxes as a power failure does. The next agent starts in another boot.
func (n *Node) LosePower(sandboxes ...*Sandbox) error {
	all := []error{n.KillAgent(), n.RemovePins(), os.WriteFile(n.bootID(), []byte(rand.Text()+"\n"), 0o600)}
	for _, s := range sandboxes {
		all = append(all, s.Remove())
	}
	return errors.Join(all...)
}

// KillAgent ends the agent as kill -9 does.
func (n *Node) KillAgent() error {
	n.starting.Lock()
	defer n.starting.Unlock()
	return n.agent.Kill(context.Background())
}

// StopAgent ends the agent as a kubelet does.
func (n *Node) StopAgent() error {
	n.starting.Lock()
	defer n.starting.Unlock()
	return n.agent.Stop(context.Background(), Limit)
}

// AwaitAgent returns once ADD is served. It starts an ended agent again, as a kubelet does: a killed
// agent may hold its lock a moment longer, so that the next one ends too.
func (n *Node) AwaitAgent(ctx context.Context) error {
	agent := agentapi.NewClient(n.agentSocket())
	err := errors.New("not asked")
	for tick := time.NewTicker(10 * time.Millisecond); err != nil; <-tick.C {
		if ctx.Err() != nil {
			// SIGQUIT writes the stacks of the agent to its log.
			return errors.Join(fmt.Errorf("wait for the agent of %s: %w", n.Name, err), n.agent.Signal(syscall.SIGQUIT))
		}
		if err := n.StartAgent(); err != nil {
			return err
		}
		err = agent.Status(ctx)
	}
	return nil
}

// Report sets the readiness of the node, as the control plane does.
func (n *Node) Report(ctx context.Context, status corev1.ConditionStatus) error {
	if err := n.cluster.Get(ctx, client.ObjectKeyFromObject(n.Object), n.Object); err != nil {
		return err
	}
	n.Object.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: status, LastTransitionTime: metav1.Now()}}
	return n.cluster.Status().Update(ctx, n.Object)
}

// Fall ends the agent as kill -9 does, and has the control plane take the node for unreachable.
func (n *Node) Fall(ctx context.Context) error {
	return errors.Join(n.KillAgent(), n.Report(ctx, corev1.ConditionUnknown))
}

// Rise undoes Fall.
func (n *Node) Rise(ctx context.Context) error {
	return errors.Join(n.AwaitAgent(ctx), n.Report(ctx, corev1.ConditionTrue))
}

// Serves returns an error unless the agent serves ADD. It asks as a runtime does.
func (n *Node) Serves(ctx context.Context) error {
	return agentapi.NewClient(n.agentSocket()).Status(ctx)
}

// CloseConnections closes every connection between plugins and the agent.
func (n *Node) CloseConnections() { n.calls.closeAll() }

// KillPlugins kills every plugin that waits for an answer, as kill -9 does.
func (n *Node) KillPlugins() error { return n.calls.killPlugins() }

// ShutAPI cuts the agent off from the API server, or undoes that.
func (n *Node) ShutAPI(shut bool) { n.api.shut.Store(shut) }

// SilenceAPI has the calls of the agent get no answer, as if their packets were dropped, or undoes that.
func (n *Node) SilenceAPI(silent bool) { n.api.silent.Store(silent) }

// ShiftAPI sets the API server's clock ahead, or behind if ahead is negative, as this node sees it.
func (n *Node) ShiftAPI(ahead time.Duration) { n.api.ahead.Store(int64(ahead)) }

// Said reports whether a line of the agent's log has all the words.
func (n *Node) Said(words ...string) (bool, error) {
	data, err := os.ReadFile(n.log())
	if err != nil {
		return false, fmt.Errorf("read the log of the agent of %s: %w", n.Name, err)
	}
	for line := range strings.Lines(string(data)) {
		if !slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(line, w) }) {
			return true, nil
		}
	}
	return false, nil
}

// closeLog fails the test if the log of an ended program holds a panic. If the test has failed, it
// shows the end of the log.
func (c *Cluster) closeLog(program, file string) {
	data, err := os.ReadFile(file)
	if err != nil {
		c.t.Error(err)
		return
	}
	_, panicked, found := bytes.Cut(data, []byte("panic: "))
	check.That(c.t, !found, "%s panicked: %.2000s", program, panicked)
	if c.t.Failed() {
		c.t.Logf("log of %s:\n%s", program, data[max(0, len(data)-logTail):])
	}
}
