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
	"strings"

	"github.com/fenceline/fenceline/test/must"
	"github.com/fenceline/fenceline/test/thirdparty"
)

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
func (s *Session) Ask(lines ...string) ([]string, error) {
	if _, err := io.WriteString(s.input, strings.Join(lines, "\n")+"\n"); err != nil {
		return nil, s.failed(err)
	}
	var answers []string
	for range lines {
		answer, err := s.output.ReadString('\n')
		if err != nil {
			return answers, s.failed(err)
		}
		answers = append(answers, strings.TrimSpace(answer))
	}
	return answers, nil
}

// failed ends the command, and adds its standard error to err.
func (s *Session) failed(err error) error {
	s.Close()
	return fmt.Errorf("command in pod %s: %w: %s", s.pod, err, &s.stderr)
}

// Close ends the input, and waits for the end of the command. It ignores the exit status: an idle
// connection may break, and all answers have been read.
func (s *Session) Close() {
	_, _ = s.input.Close(), s.cmd.Wait()
}

// kubectl returns a kubectl command with the administrator's access, which is not started yet.
func (c *Cluster) kubectl(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, c.binary(thirdparty.Kubernetes, "kubectl"), args...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+c.Kubeconfig())
	return cmd
}
