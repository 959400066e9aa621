// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/remotecommand"
	"k8s.io/streaming/pkg/httpstream"

	"github.com/fenceline/fenceline/internal/diagnosis"
)

// Diagnose runs the command diagnose in an agent's container, which needs the right to create pods/exec.
func (c *Cluster) Diagnose(ctx context.Context, pod string, r diagnosis.Request) (*diagnosis.Report, error) {
	ctx, cancel := context.WithTimeout(ctx, 4*AnswerLimit) // an agent may ask the wire for many addresses
	defer cancel()
	report := &diagnosis.Report{}
	return report, c.ask(ctx, pod, r, report, "diagnose", "--socket=")
}

// HostLocal runs the command host-local in an agent's container, which needs the same right.
func (c *Cluster) HostLocal(ctx context.Context, pod string, r diagnosis.HostLocal) (*diagnosis.HostLocalFiles, error) {
	ctx, cancel := context.WithTimeout(ctx, 4*AnswerLimit)
	defer cancel()
	files := &diagnosis.HostLocalFiles{}
	return files, c.ask(ctx, pod, r, files, "host-local")
}

// ask runs a command in an agent's container, with those of the agent's flags that begin so: JSON in, JSON out.
func (c *Cluster) ask(ctx context.Context, pod string, question, answer any, name string, flags ...string) error {
	in, err := json.Marshal(question)
	if err != nil {
		return fmt.Errorf("encode the questions: %w", err)
	}
	agent, err := c.Kube.CoreV1().Pods(c.Namespace).Get(ctx, pod, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("read pod %s: %w", pod, err)
	}
	command := []string{"/agent", name}
	for _, arg := range agent.Spec.Containers[0].Args {
		if slices.ContainsFunc(flags, func(flag string) bool { return strings.HasPrefix(arg, flag) }) {
			command = append(command, arg)
		}
	}
	var out, said bytes.Buffer
	err = c.exec(ctx, pod, &corev1.PodExecOptions{
		Container: agent.Spec.Containers[0].Name, Command: command, Stdin: true, Stdout: true, Stderr: true,
	}, remotecommand.StreamOptions{Stdin: bytes.NewReader(in), Stdout: &out, Stderr: &said})
	if err != nil {
		return fmt.Errorf("run %s in pod %s: %w: %s", strings.Join(command, " "), pod, err, bytes.TrimSpace(said.Bytes()))
	}
	if err := json.Unmarshal(out.Bytes(), answer); err != nil {
		return fmt.Errorf("read the answer of pod %s: %w", pod, err)
	}
	return nil
}

// exec runs a command by WebSockets, or by SPDY where a proxy has none.
func (c *Cluster) exec(ctx context.Context, pod string, o *corev1.PodExecOptions, streams remotecommand.StreamOptions) error {
	url := c.Kube.CoreV1().RESTClient().Post().Resource("pods").Namespace(c.Namespace).Name(pod).
		SubResource("exec").VersionedParams(o, scheme.ParameterCodec).URL()
	spdy, err := remotecommand.NewSPDYExecutor(c.Config, "POST", url)
	if err != nil {
		return err
	}
	socket, err := remotecommand.NewWebSocketExecutor(c.Config, "GET", url.String())
	if err != nil {
		return err
	}
	both, err := remotecommand.NewFallbackExecutor(socket, spdy, func(err error) bool {
		return httpstream.IsUpgradeFailure(err) || httpstream.IsHTTPSProxyError(err)
	})
	if err != nil {
		return err
	}
	return both.StreamWithContext(ctx, streams)
}
