// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"net/http"
	"os/exec"
	"runtime"
	"strings"

	"github.com/spf13/cobra"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/client-go/transport/spdy"
	"k8s.io/utils/ptr"

	"github.com/fenceline/fenceline/cli/cluster"
	"github.com/fenceline/fenceline/controller/agents"
)

// pagePort is the port on which the chart has the controller serve the page.
const pagePort = 9478

func (s *session) ui() *cobra.Command {
	port, account, browser := 0, "", true
	c := &cobra.Command{
		Use: "ui", Short: "Forward a port to the page of the controller, and open a browser", Args: cobra.NoArgs,
		Long: `Forward a port to the page of the controller, and open a browser, until you end the command.

The page asks for a token. With --service-account the browser gets one of that account for an hour. Take an
account that may only read, because other users of this machine can see the arguments of a browser that starts.
The chart's value ui.enabled switches the page on.`,
		Example: "  kubectl fenceline ui --service-account default/fenceline-viewer",
		RunE: func(c *cobra.Command, _ []string) error {
			cl, err := s.open()
			if err != nil {
				return err
			}
			token := ""
			if account != "" {
				if token, err = tokenOf(c.Context(), cl, account); err != nil {
					return err
				}
			}
			return s.serve(c.Context(), cl, port, func(url string) {
				fmt.Fprintf(s.Out, "The page is at %s\n", url)
				if token != "" {
					url += "/#token=" + token
				}
				if browser {
					if err := show(c.Context(), url); err != nil {
						fmt.Fprintf(s.ErrOut, "No browser was opened (%v): open the page yourself.\n", err)
					}
				}
			})
		},
	}
	c.Flags().IntVar(&port, "port", 0, "local port; 0 takes a free one")
	c.Flags().StringVar(&account, "service-account", "", "service account (namespace/name) whose token the page gets")
	c.Flags().BoolVar(&browser, "browser", true, "open a browser")
	return c
}

// tokenOf returns a new token of a service account.
func tokenOf(ctx context.Context, c *cluster.Cluster, account string) (string, error) {
	namespace, name, ok := strings.Cut(account, "/")
	if !ok {
		return "", fmt.Errorf("--service-account is %q, want namespace/name", account)
	}
	t, err := c.Kube.CoreV1().ServiceAccounts(namespace).CreateToken(ctx, name, &authenticationv1.TokenRequest{
		Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: ptr.To[int64](3600)},
	}, metav1.CreateOptions{})
	if err != nil {
		return "", fmt.Errorf("make a token of service account %s: %w", account, err)
	}
	return t.Status.Token, nil
}

// serve forwards a local port to a controller until ctx ends. It calls ready with the URL of the page.
func (s *session) serve(ctx context.Context, c *cluster.Cluster, port int, ready func(url string)) error {
	pods, err := c.Controllers(ctx)
	if err != nil {
		return err
	}
	pod := ""
	for i := range pods {
		if agents.IsAlive(&pods[i]) {
			pod = pods[i].Name
		}
	}
	if pod == "" {
		return fmt.Errorf("no controller in namespace %s is Ready", c.Namespace)
	}
	transport, upgrader, err := spdy.RoundTripperFor(c.Config)
	if err != nil {
		return fmt.Errorf("connect to %s: %w", c.Config.Host, err)
	}
	url := c.Kube.CoreV1().RESTClient().Post().Resource("pods").Namespace(c.Namespace).Name(pod).SubResource("portforward").URL()
	dialer := spdy.NewDialer(upgrader, &http.Client{Transport: transport}, http.MethodPost, url)
	open := make(chan struct{})
	f, err := portforward.New(dialer, []string{fmt.Sprintf("%d:%d", port, pagePort)}, ctx.Done(), open, nil, s.ErrOut)
	if err != nil {
		return fmt.Errorf("forward a port to pod %s: %w", pod, err)
	}
	ended := make(chan error, 1)
	go func() { ended <- f.ForwardPorts() }()
	select {
	case err := <-ended:
		if err == nil {
			return nil // the person has ended the command
		}
		return fmt.Errorf("forward a port to pod %s: %w", pod, err)
	case <-open:
	}
	ports, err := f.GetPorts()
	if err != nil {
		return fmt.Errorf("forward a port to pod %s: %w", pod, err)
	}
	ready(fmt.Sprintf("http://127.0.0.1:%d", ports[0].Local))
	return <-ended
}

// show opens a URL in the browser of the desktop.
func show(ctx context.Context, url string) error {
	name, args := "xdg-open", []string{url}
	switch runtime.GOOS {
	case "darwin":
		name = "open"
	case "windows":
		name, args = "rundll32", []string{"url.dll,FileProtocolHandler", url}
	}
	return exec.CommandContext(ctx, name, args...).Start()
}
