// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"

	"github.com/fenceline/fenceline/test/await"
	"github.com/fenceline/fenceline/test/must"
	"github.com/fenceline/fenceline/test/thirdparty"
)

// usableLimit is how long nodes may take to register and become Ready.
const usableLimit = 3 * time.Minute

// Kubeconfig returns the administrator's kubeconfig file.
func (c *Cluster) Kubeconfig() string { return c.controlPlane.Config.Kubeconfig("admin") }

// RESTConfig returns the administrator's access.
func (c *Cluster) RESTConfig() (*rest.Config, error) { return c.controlPlane.RESTConfig() }

// Kubectl runs kubectl as administrator and returns what it printed.
func (c *Cluster) Kubectl(ctx context.Context, args ...string) (string, error) {
	return output(c.kubectl(ctx, args...))
}

// Apply applies the objects of a manifest.
func (c *Cluster) Apply(ctx context.Context, manifest string) error {
	return c.kubectlWith(ctx, manifest, "apply", "--filename=-")
}

// kubectlWith runs kubectl with an input.
func (c *Cluster) kubectlWith(ctx context.Context, input string, args ...string) error {
	cmd := c.kubectl(ctx, args...)
	cmd.Stdin = strings.NewReader(input)
	_, err := output(cmd)
	return err
}

// Helm runs helm as administrator and returns what it printed.
func (c *Cluster) Helm(ctx context.Context, args ...string) (string, error) {
	return output(c.command(ctx, c.binary(thirdparty.Helm, "helm"), args...))
}

// Tools returns the directories of kubectl, helm and `kubectl fenceline`, for a person's PATH.
func (c *Cluster) Tools() []string {
	return []string{c.state.Binaries[thirdparty.Kubernetes], c.state.Binaries[thirdparty.Helm], c.commandDir()}
}

// commandDir is the directory of `kubectl fenceline` after InstallFenceline.
func (c *Cluster) commandDir() string { return filepath.Join(c.dir, "bin") }

// command returns a command with the environment of a person who uses the cluster.
func (c *Cluster) command(ctx context.Context, program string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+c.Kubeconfig(), "PATH="+strings.Join(append(c.Tools(), os.Getenv("PATH")), ":"))
	return cmd
}

// output runs a command and returns what it printed.
func output(cmd *exec.Cmd) (string, error) {
	printed, err := cmd.CombinedOutput()
	if err != nil {
		err = fmt.Errorf("%v: %w: %s", cmd.Args, err, printed)
	}
	return string(printed), err
}

// WaitReady returns when every node is Ready.
func (c *Cluster) WaitReady(ctx context.Context) error { return c.waitUsable(ctx, true) }

// waitUsable returns when every node is registered, and Ready if ready is set, and bare pods can be
// made: without a ServiceAccount they are refused.
func (c *Cluster) waitUsable(ctx context.Context, ready bool) (err error) {
	defer must.Catch(&err)
	api := c.api()
	return await.Until(ctx, usableLimit, "the nodes", func(ctx context.Context) (err error) {
		defer must.Catch(&err)
		for _, n := range c.nodes {
			node := must.Value(api.Nodes().Get(ctx, n.Name(), metav1.GetOptions{}))
			must.That(!ready || slices.ContainsFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
				return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
			}), "node %s is not Ready", n.Name())
		}
		_, err = api.ServiceAccounts(metav1.NamespaceDefault).Get(ctx, "default", metav1.GetOptions{})
		return err
	})
}

// api returns the administrator's access to nodes and pods.
func (c *Cluster) api() corev1client.CoreV1Interface {
	clients, err := kubernetes.NewForConfig(must.Value(c.RESTConfig()))
	must.Done(err, "connect to the API server")
	return clients.CoreV1()
}

// Attach runs kubectl attach, sends a line to a pod's container, and returns the next line that the
// container prints.
func (c *Cluster) Attach(ctx context.Context, namespace, pod, line string) (_ string, err error) {
	defer must.CatchIn(&err, "attach to pod %s", pod)
	cmd := c.kubectl(ctx, "attach", "--namespace="+namespace, "--stdin", pod)
	input := must.Value(cmd.StdinPipe())
	output := must.Value(cmd.StdoutPipe())
	must.OK(cmd.Start())
	_, wrote := io.WriteString(input, line+"\n")
	answer, read := bufio.NewReader(output).ReadString('\n')
	// The session ends with the input. An earlier end of the input would lose the answer.
	return strings.TrimSpace(answer), errors.Join(wrote, read, input.Close(), cmd.Wait())
}

// PortForward runs kubectl port-forward to a pod's port until the context ends, and returns the port on
// this machine.
func (c *Cluster) PortForward(ctx context.Context, namespace, pod string, port int) (_ netip.AddrPort, err error) {
	defer must.CatchIn(&err, "forward a port of pod %s", pod)
	cmd := c.kubectl(ctx, "port-forward", "--namespace="+namespace, "--address=127.0.0.1", "pod/"+pod, fmt.Sprintf(":%d", port))
	output := must.Value(cmd.StdoutPipe())
	must.OK(cmd.Start())
	context.AfterFunc(ctx, func() { _ = cmd.Wait() }) // it has been killed
	line := must.Value(bufio.NewReader(output).ReadString('\n'))
	// Forwarding from 127.0.0.1:41283 -> 8080
	words := strings.Fields(line)
	must.That(len(words) >= 3, "kubectl says %q", line)
	return netip.ParseAddrPort(words[2])
}

// Session is a command that runs in a pod's container until Close or the end of its context.
type Session struct {
	pod    string
	cmd    *exec.Cmd
	input  io.WriteCloser
	output *bufio.Reader
	stderr strings.Builder
}

// Exec starts a command in a pod's container by kubectl exec, which gives it the capabilities of the
// container. The command answers each line of its input with a line.
func (c *Cluster) Exec(ctx context.Context, namespace, pod string, command ...string) (_ *Session, err error) {
	defer must.CatchIn(&err, "run %v in pod %s", command, pod)
	args := append([]string{"exec", "--namespace=" + namespace, "--stdin", pod, "--"}, command...)
	s := &Session{pod: pod, cmd: c.kubectl(ctx, args...)}
	s.cmd.Stderr = &s.stderr
	s.input = must.Value(s.cmd.StdinPipe())
	s.output = bufio.NewReader(must.Value(s.cmd.StdoutPipe()))
	return s, s.cmd.Start()
}

// Ask writes lines and returns as many lines of the answer. The lines must fit into the buffers
// between here and the pod.
func (s *Session) Ask(lines ...string) (answers []string, err error) {
	if err = must.Try(func() {
		must.Value(io.WriteString(s.input, strings.Join(lines, "\n")+"\n"))
		for range lines {
			answers = append(answers, strings.TrimSpace(must.Value(s.output.ReadString('\n'))))
		}
	}); err != nil {
		s.Close()
		err = fmt.Errorf("command in pod %s: %w: %s", s.pod, err, &s.stderr)
	}
	return answers, err
}

// Close ends the input, and waits for the end of the command. It ignores the exit status: an idle
// connection may break, and all answers have been read.
func (s *Session) Close() { _, _ = s.input.Close(), s.cmd.Wait() }

// kubectl returns a kubectl command with the administrator's access, which is not started yet.
func (c *Cluster) kubectl(ctx context.Context, args ...string) *exec.Cmd {
	return c.command(ctx, c.binary(thirdparty.Kubernetes, "kubectl"), args...)
}
