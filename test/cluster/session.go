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

// kubectl returns a command of the administrator that is not finished at once.
func (c *Cluster) kubectl(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, c.binary(thirdparty.Kubernetes, "kubectl"), args...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+c.Kubeconfig())
	return cmd
}
