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

	"github.com/fenceline/fenceline/test/thirdparty"
)

// Attach runs kubectl attach, sends a line to a pod's container, and returns the next line that the
// container prints.
func (c *Cluster) Attach(ctx context.Context, namespace, pod, line string) (_ string, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("attach to pod %s: %w", pod, err)
		}
	}()
	cmd := c.kubectl(ctx, "attach", "--namespace="+namespace, "--stdin", pod)
	input, err := cmd.StdinPipe()
	if err != nil {
		return "", err
	}
	output, err := cmd.StdoutPipe()
	if err != nil {
		return "", err
	}
	if err := cmd.Start(); err != nil {
		return "", err
	}
	_, wrote := io.WriteString(input, line+"\n")
	answer, read := bufio.NewReader(output).ReadString('\n')
	// The session ends with the input. An earlier end of the input would lose the answer.
	return strings.TrimSpace(answer), errors.Join(wrote, read, input.Close(), cmd.Wait())
}

// PortForward runs kubectl port-forward to a pod's port until the context ends, and returns the port on
// this machine.
func (c *Cluster) PortForward(ctx context.Context, namespace, pod string, port int) (netip.AddrPort, error) {
	cmd := c.kubectl(ctx, "port-forward", "--namespace="+namespace, "--address=127.0.0.1", "pod/"+pod, fmt.Sprintf(":%d", port))
	output, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return netip.AddrPort{}, fmt.Errorf("forward a port of pod %s: %w", pod, err)
	}
	context.AfterFunc(ctx, func() { _ = cmd.Wait() }) // it has been killed
	line, err := bufio.NewReader(output).ReadString('\n')
	if err != nil {
		return netip.AddrPort{}, fmt.Errorf("forward a port of pod %s: %w", pod, err)
	}
	// Forwarding from 127.0.0.1:41283 -> 8080
	words := strings.Fields(line)
	if len(words) < 3 {
		return netip.AddrPort{}, fmt.Errorf("forward a port of pod %s: kubectl says %q", pod, line)
	}
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
func (c *Cluster) Exec(ctx context.Context, namespace, pod string, command ...string) (*Session, error) {
	args := append([]string{"exec", "--namespace=" + namespace, "--stdin", pod, "--"}, command...)
	s := &Session{pod: pod, cmd: c.kubectl(ctx, args...)}
	s.cmd.Stderr = &s.stderr
	var output io.Reader
	err := func() (err error) {
		if s.input, err = s.cmd.StdinPipe(); err != nil {
			return err
		}
		if output, err = s.cmd.StdoutPipe(); err != nil {
			return err
		}
		return s.cmd.Start()
	}()
	if err != nil {
		return nil, fmt.Errorf("run %v in pod %s: %w", command, pod, err)
	}
	s.output = bufio.NewReader(output)
	return s, nil
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
