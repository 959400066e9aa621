// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os/exec"
	"runtime"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/client-go/transport/spdy"
	"k8s.io/utils/ptr"

	"github.com/fenceline/fenceline/cli/cluster"
	"github.com/fenceline/fenceline/controller/agents"
	"github.com/fenceline/fenceline/controller/podview"
)

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
				at := url
				if token != "" {
					at += "/#token=" + token
				}
				if browser {
					err := show(c.Context(), at)
					if err == nil {
						at = url // the browser has the token
					} else {
						fmt.Fprintf(s.ErrOut, "No browser was opened (%v): open the page yourself.\n", err)
					}
				}
				fmt.Fprintf(s.Out, "The page is at %s\n", at)
				if token == "" {
					fmt.Fprintln(s.Out, "It asks for a token: kubectl create token ACCOUNT makes one, and so does --service-account of this command.")
				}
			})
		},
	}
	c.Flags().IntVar(&port, "port", 0, "local port; 0 takes a free one")
	c.Flags().StringVar(&account, "service-account", "", "service account (namespace/name) whose token the page gets")
	c.Flags().BoolVar(&browser, "browser", true, "open a browser")
	return c
}

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
	pods, err := agents.ListOf(ctx, c, c.Namespace, "controller")
	if err != nil {
		return err
	}
	i := slices.IndexFunc(pods, func(p podview.Pod) bool { return agents.IsAlive(&p) })
	if i < 0 {
		return fmt.Errorf("no controller in namespace %s is Ready", c.Namespace)
	}
	pod := pods[i].Name
	controller, err := c.Kube.CoreV1().Pods(c.Namespace).Get(ctx, pod, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("read pod %s: %w", pod, err)
	}
	scheme, at, err := pageOf(controller.Spec.Containers[0].Args)
	if err != nil {
		return err
	}
	transport, upgrader, err := spdy.RoundTripperFor(c.Config)
	if err != nil {
		return fmt.Errorf("connect to %s: %w", c.Config.Host, err)
	}
	url := c.Kube.CoreV1().RESTClient().Post().Resource("pods").Namespace(c.Namespace).Name(pod).SubResource("portforward").URL()
	dialer := spdy.NewDialer(upgrader, &http.Client{Transport: transport}, http.MethodPost, url)
	open := make(chan struct{})
	f, err := portforward.New(dialer, []string{fmt.Sprintf("%d:%s", port, at)}, ctx.Done(), open, nil, s.ErrOut)
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
	ready(fmt.Sprintf("%s://127.0.0.1:%d", scheme, ports[0].Local))
	return <-ended
}

// pageOf returns the scheme and the port of the page that a controller with these arguments serves.
func pageOf(args []string) (scheme, port string, err error) {
	for _, arg := range args {
		address, ok := strings.CutPrefix(arg, "--ui-address=")
		host, port, err := net.SplitHostPort(address)
		switch {
		case !ok || err != nil:
		case host == "":
			return "https", port, nil
		default:
			return "http", port, nil
		}
	}
	return "", "", errors.New("the controller serves no page: the chart's value ui.enabled=true switches it on")
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
