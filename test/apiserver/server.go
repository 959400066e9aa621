// SPDX-License-Identifier: Apache-2.0

// Package apiserver runs etcd and kube-apiserver on loopback, for tests of validation, admission,
// preconditions and watches. No controller of Kubernetes runs unless a test starts it.
package apiserver

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/fenceline/fenceline/test/controlplane"
	"github.com/fenceline/fenceline/test/thirdparty"
)

// VersionVariable is the environment variable that chooses the kube-apiserver:
// "oldest" for the oldest supported minor, otherwise the newest.
const VersionVariable = "FENCELINE_TEST_KUBERNETES"

// noNodeMonitor keeps nodes as the test sets them, although no kubelet renews a Lease.
const noNodeMonitor = 24 * time.Hour

// stopLimit is how long the processes may take to end.
const stopLimit = 30 * time.Second

// Server is a running API server. Its methods are safe for concurrent use, except those that start and
// stop it.
type Server struct {
	dir          string
	controlPlane *controlplane.ControlPlane
	admin        *rest.Config
}

// New starts a server with the project's custom resources installed, and stops
// it when the test has ended.
func New(t testing.TB) *Server {
	t.Helper()
	ctx := context.Background()
	s, err := Start(ctx)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Stop(); err != nil {
			t.Error(err)
		}
	})
	if err := s.InstallCRDs(ctx); err != nil {
		t.Fatal(err)
	}
	return s
}

// Start starts a server with nothing installed. Missing binaries are built.
func Start(ctx context.Context) (_ *Server, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("start an API server: %w", err)
		}
	}()
	config, err := configure(ctx)
	if err != nil {
		return nil, err
	}
	s := &Server{dir: config.Dir}
	if _, err := controlplane.WriteKeys(config); err != nil {
		return nil, errors.Join(err, os.RemoveAll(s.dir))
	}
	if s.controlPlane, err = controlplane.Open(config); err != nil {
		return nil, errors.Join(err, os.RemoveAll(s.dir))
	}
	if err := s.controlPlane.Start(ctx); err != nil {
		return nil, errors.Join(err, s.Stop())
	}
	if s.admin, err = s.controlPlane.RESTConfig(); err != nil {
		return nil, errors.Join(err, s.Stop())
	}
	return s, nil
}

// configure chooses binaries, ports and a directory.
func configure(ctx context.Context) (controlplane.Config, error) {
	config := controlplane.Config{
		Command: exec.CommandContext, WithoutControllers: true, NodeMonitorGrace: noNodeMonitor,
		Address: netip.MustParseAddr("127.0.0.1"), Services: []netip.Prefix{netip.MustParsePrefix("10.96.0.0/16")},
	}
	builder, err := thirdparty.NewBuilder(os.Stderr)
	if err != nil {
		return config, err
	}
	if config.EtcdDir, err = builder.Dir(ctx, thirdparty.Etcd); err != nil {
		return config, err
	}
	kubernetes := thirdparty.Kubernetes
	if os.Getenv(VersionVariable) == "oldest" {
		kubernetes = thirdparty.KubernetesOldest
	}
	if config.APIServerDir, err = builder.Dir(ctx, kubernetes); err != nil {
		return config, err
	}
	// The controllers are the newest: the rig builds no others.
	if config.KubernetesDir, err = builder.Dir(ctx, thirdparty.Kubernetes); err != nil {
		return config, err
	}
	ports, err := freePorts(3)
	if err != nil {
		return config, err
	}
	config.Port, config.EtcdClientPort, config.EtcdPeerPort = ports[0], ports[1], ports[2]
	config.Dir, err = makeDir(ctx)
	return config, err
}

// freePorts returns ports without a listener, below the ports that the kernel gives to connections
// (net.ipv4.ip_local_port_range). So no connection takes the port of a stopped server, and no client
// connects to itself. Each call starts at a random port. If another process takes a port before the
// server does, the server fails to start and reports it.
func freePorts(n int) ([]int, error) {
	const first, last = 12000, 30000
	var found []int
	for port := first + rand.IntN(last-first); len(found) < n; port++ {
		if port > last {
			return nil, fmt.Errorf("find %d free ports: only %d up to %d", n, len(found), last)
		}
		if l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port)); err == nil {
			defer l.Close()
			found = append(found, port)
		}
	}
	return found, nil
}

// Stop ends the server and removes its data.
func (s *Server) Stop() error {
	ctx, cancel := context.WithTimeout(context.Background(), stopLimit)
	defer cancel()
	if err := s.controlPlane.Stop(ctx); err != nil {
		return fmt.Errorf("stop the API server: %w", err)
	}
	return os.RemoveAll(s.dir)
}

// StopAPIServer ends kube-apiserver. etcd keeps the data.
func (s *Server) StopAPIServer(ctx context.Context) error { return s.controlPlane.StopAPIServer(ctx) }

// StartAPIServer starts kube-apiserver again, at the same address and with the
// same keys, and returns when it is ready.
func (s *Server) StartAPIServer(ctx context.Context) error { return s.controlPlane.StartAPIServer(ctx) }

// RestartEtcd kills etcd and starts it again, and returns when the API server is ready.
func (s *Server) RestartEtcd(ctx context.Context) error { return s.controlPlane.RestartEtcd(ctx) }

// StartControllerManager starts the controllers of Kubernetes, for tests in which they and Fenceline
// work together. They end with the server.
func (s *Server) StartControllerManager() error { return s.controlPlane.StartControllerManager() }

// StopControllerManager ends the controllers of Kubernetes. Until they start again, nothing updates
// the objects that they have written.
func (s *Server) StopControllerManager(ctx context.Context) error {
	return s.controlPlane.StopControllerManager(ctx)
}

// CPU returns the CPU time of kube-apiserver since its start.
func (s *Server) CPU() (time.Duration, error) { return s.controlPlane.APIServerCPU() }

// Admin returns the access of an administrator without a client-side limit.
func (s *Server) Admin() *rest.Config { return rest.CopyConfig(s.admin) }

// Kubeconfig returns the administrator's kubeconfig file.
func (s *Server) Kubeconfig() string { return s.controlPlane.Config.Kubeconfig("admin") }

// ServiceAccount returns the access of a ServiceAccount that exists. With a pod,
// which must exist and use the account, the token is bound to the pod and
// carries the name of its node, as the tokens do that kubelet gives to pods.
func (s *Server) ServiceAccount(ctx context.Context, namespace, name string, pod *corev1.Pod) (*rest.Config, error) {
	client, err := kubernetes.NewForConfig(s.admin)
	if err != nil {
		return nil, fmt.Errorf("connect to the API server: %w", err)
	}
	request := &authenticationv1.TokenRequest{}
	if pod != nil {
		request.Spec.BoundObjectRef = &authenticationv1.BoundObjectReference{
			APIVersion: "v1", Kind: "Pod", Name: pod.Name, UID: pod.UID,
		}
	}
	token, err := client.CoreV1().ServiceAccounts(namespace).CreateToken(ctx, name, request, metav1.CreateOptions{})
	if err != nil {
		return nil, fmt.Errorf("request a token for ServiceAccount %s/%s: %w", namespace, name, err)
	}
	config := rest.AnonymousClientConfig(s.admin)
	config.QPS = -1
	config.BearerToken = token.Status.Token
	return config, nil
}
