// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensions "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/yaml"

	"github.com/fenceline/fenceline/test/check"
	"github.com/fenceline/fenceline/test/must"
	"github.com/fenceline/fenceline/test/process"
	"github.com/fenceline/fenceline/test/thirdparty"
)

// VersionVariable is the environment variable that chooses the kube-apiserver:
// "oldest" for the oldest supported minor, otherwise the newest.
const VersionVariable = "FENCELINE_TEST_KUBERNETES"

// ServerVariable is the environment variable that names a kubeconfig of a server that New uses instead of
// starting one. Its caller removes what it has made.
const ServerVariable = "FENCELINE_TEST_SERVER"

// noNodeMonitor keeps nodes as the test sets them, although no kubelet renews a Lease.
const noNodeMonitor = 24 * time.Hour

const (
	// stopLimit is how long the processes may take to end.
	stopLimit = 30 * time.Second
	// servedLimit is how long a custom resource may take to be served.
	servedLimit = 2 * time.Minute
)

// Server is etcd and kube-apiserver on loopback, for tests of validation, admission, preconditions and
// watches. No controller of Kubernetes runs unless a test starts it. Its methods are safe for
// concurrent use, except those that start and stop it.
type Server struct {
	*ControlPlane
	admin *rest.Config
}

// New starts a server with the project's custom resources installed, and stops
// it when the test has ended. Under HandOver, it may be one of an earlier test, as if it were new. Of
// the server that ServerVariable names, it has only the access.
func New(t testing.TB) *Server {
	t.Helper()
	var s *Server
	if file := os.Getenv(ServerVariable); file != "" {
		admin := check.Value(clientcmd.BuildConfigFromFlags("", file))(t)
		admin.QPS = -1
		s = &Server{admin: admin}
	} else if dir := os.Getenv(handOverVariable); dir != "" {
		return ofEarlierTest(t, dir)
	} else {
		s = Start(t)
	}
	s.installCRDs(t)
	return s
}

// Start starts a server with nothing installed, and stops it when the test has ended. Missing binaries are built.
func Start(t testing.TB) *Server {
	t.Helper()
	s := check.Value(Launch(t.Context()))(t)
	t.Cleanup(func() { check.OK(t, s.Close()) })
	return s
}

// Launch is Start without a test. The caller stops the server by Close.
func Launch(ctx context.Context) (s *Server, err error) {
	defer must.Catch(&err)
	config := loopback(ctx)
	s = &Server{ControlPlane: must.Value(Open(config))}
	if err := must.Try(func() {
		must.Value(WriteKeys(config))
		must.OK(s.ControlPlane.Start(ctx))
		s.admin = must.Value(s.RESTConfig())
	}); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// Close stops the server and removes its files.
func (s *Server) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), stopLimit)
	defer cancel()
	return errors.Join(s.Stop(ctx), os.RemoveAll(s.Config.Dir))
}

// loopback chooses binaries, ports and a directory.
func loopback(ctx context.Context) Config {
	config := Config{
		Command: exec.CommandContext, WithoutControllers: true, NodeMonitorGrace: noNodeMonitor,
		Address: netip.MustParseAddr("127.0.0.1"), Services: []netip.Prefix{netip.MustParsePrefix("10.96.0.0/16")},
	}
	builder := must.Value(thirdparty.NewBuilder(os.Stderr))
	config.EtcdDir = must.Value(builder.Dir(ctx, thirdparty.Etcd))
	kubernetes := thirdparty.Kubernetes
	if os.Getenv(VersionVariable) == "oldest" {
		kubernetes = thirdparty.KubernetesOldest
	}
	config.APIServerDir = must.Value(builder.Dir(ctx, kubernetes))
	// The controllers are the newest: the rig builds no others.
	config.KubernetesDir = must.Value(builder.Dir(ctx, thirdparty.Kubernetes))
	ports := must.Value(FreePorts(3))
	config.Port, config.EtcdClientPort, config.EtcdPeerPort = ports[0], ports[1], ports[2]
	config.Dir = makeDir(ctx)
	return config
}

// FreePorts returns ports without a listener, below the ports that the kernel gives to connections
// (net.ipv4.ip_local_port_range). So no connection takes the port of a stopped server, and no client
// connects to itself. Each call starts at a random port. If another process takes a port before the
// server does, the server fails to start and reports it.
func FreePorts(n int) ([]int, error) {
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

// Admin returns the access of an administrator without a client-side limit.
func (s *Server) Admin() *rest.Config { return rest.CopyConfig(s.admin) }

// Kubeconfig returns the administrator's kubeconfig file.
func (s *Server) Kubeconfig() string { return s.Config.Kubeconfig("admin") }

// ServiceAccount returns the access of a ServiceAccount that exists. With a pod,
// which must exist and use the account, the token is bound to the pod and
// carries the name of its node, as the tokens do that kubelet gives to pods.
func (s *Server) ServiceAccount(ctx context.Context, namespace, name string, pod *corev1.Pod) (_ *rest.Config, err error) {
	defer must.Catch(&err)
	client, err := kubernetes.NewForConfig(s.admin)
	must.Done(err, "connect to the API server")
	request := &authenticationv1.TokenRequest{}
	if pod != nil {
		request.Spec.BoundObjectRef = &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: pod.Name, UID: pod.UID}
	}
	token, err := client.CoreV1().ServiceAccounts(namespace).CreateToken(ctx, name, request, metav1.CreateOptions{})
	must.Done(err, "request a token for ServiceAccount %s/%s", namespace, name)
	config := rest.AnonymousClientConfig(s.admin)
	config.QPS = -1
	config.BearerToken = token.Status.Token
	return config, nil
}

// WriteKubeconfig writes a kubeconfig with a token or a certificate, for a process of a test.
func WriteKubeconfig(access *rest.Config, file string) (err error) {
	defer must.CatchIn(&err, "write kubeconfig %s", file)
	return os.WriteFile(file, must.Value(Kubeconfig(access)), 0o600)
}

// installCRDs installs the chart's custom resources and returns when they are served.
func (s *Server) installCRDs(t testing.TB) {
	t.Helper()
	files := check.Value(filepath.Glob(filepath.Join(check.Value(thirdparty.Root())(t), "charts", "fenceline", "files", "crds", "*.yaml")))(t)
	check.Must(t, len(files) != 0, "the chart has no custom resources")
	client := check.Value(apiextensions.NewForConfig(s.admin))(t).ApiextensionsV1()
	var paths []string
	for _, file := range files {
		crd := &apiextensionsv1.CustomResourceDefinition{}
		check.OK(t, yaml.UnmarshalStrict(check.Value(os.ReadFile(file))(t), crd))
		if _, err := client.CustomResourceDefinitions().Create(t.Context(), crd, metav1.CreateOptions{}); !apierrors.IsAlreadyExists(err) {
			check.OK(t, err)
		}
		for _, version := range crd.Spec.Versions {
			paths = append(paths, fmt.Sprintf("/apis/%s/%s/%s", crd.Spec.Group, version.Name, crd.Spec.Names.Plural))
		}
	}
	// The condition Established would be too early: it comes before the API server serves the resource.
	for _, path := range paths {
		check.Eventually(t, servedLimit, path, func() error {
			return client.RESTClient().Get().AbsPath(path).Param("limit", "1").Do(t.Context()).Error()
		})
	}
}

// Backup saves the content of etcd and returns the file, which is removed with the server.
func (s *Server) Backup(ctx context.Context) (string, error) {
	file := filepath.Join(s.Config.Dir, "backup.db")
	return file, runTool(ctx, "etcdctl", "--endpoints="+s.Config.etcdURL(s.Config.EtcdClientPort), "snapshot", "save", file)
}

// Restore replaces what etcd holds by a backup, with flags of etcdutl, as an operator does: everything
// is stopped meanwhile. It returns when the API server is ready.
func (s *Server) Restore(ctx context.Context, file string, flags ...string) (err error) {
	defer must.Catch(&err)
	for _, name := range []string{apiServer, etcd} {
		must.OK(s.stop(ctx, name))
	}
	must.Done(os.RemoveAll(s.Config.etcdData()), "remove etcd's data")
	peer := s.Config.etcdURL(s.Config.EtcdPeerPort)
	args := append([]string{
		"snapshot", "restore", file, "--data-dir=" + s.Config.etcdData(),
		"--name=" + etcdName, "--initial-cluster=" + etcdName + "=" + peer, "--initial-advertise-peer-urls=" + peer,
	}, flags...)
	must.OK(runTool(ctx, "etcdutl", args...))
	return s.StartAPIServer(ctx)
}

// runTool runs a tool of etcd.
func runTool(ctx context.Context, name string, args ...string) (err error) {
	defer must.Catch(&err)
	dir := must.Value(must.Value(thirdparty.NewBuilder(os.Stderr)).Dir(ctx, thirdparty.EtcdTools))
	out, err := exec.CommandContext(ctx, filepath.Join(dir, name), args...).CombinedOutput()
	must.That(err == nil, "run %s %v: %w: %s", name, args, err, out)
	return nil
}

// makeDir makes the directory of a new server, named after its owner: the process that called HandOver,
// or else this test process. It first stops the servers of owners that have ended: a process that was
// killed could not stop its servers.
func makeDir(ctx context.Context) string {
	base := filepath.Join(must.Value(thirdparty.CacheDir()), "apiservers")
	must.Done(os.MkdirAll(base, 0o755), "make the server's directory")
	stopLeftovers(ctx, base)
	owner, ok := ownerOf(os.Getenv(handOverVariable))
	if !ok {
		owner = must.Value(process.Find("test", os.Getpid()))
	}
	return must.Value(os.MkdirTemp(base, fmt.Sprintf("%d-%d-", owner.PID, owner.Started)))
}

// stopLeftovers stops the servers of owners that have ended. One process does so at a time.
func stopLeftovers(ctx context.Context, base string) {
	lock := must.Value(os.OpenFile(filepath.Join(base, "lock"), os.O_CREATE|os.O_RDWR, 0o644))
	defer lock.Close()
	must.Done(unix.Flock(int(lock.Fd()), unix.LOCK_EX), "lock %s", lock.Name())
	stopServers(ctx, base, func(owner process.Process) bool { return !owner.Alive() })
}

// ownerOf returns the owner of a server's directory.
func ownerOf(dir string) (owner process.Process, ok bool) {
	owner.Name = "test"
	_, err := fmt.Sscanf(filepath.Base(dir), "%d-%d-", &owner.PID, &owner.Started)
	return owner, err == nil
}

// stopServers stops the servers whose owner is selected by of, and removes their directories.
func stopServers(ctx context.Context, base string, of func(owner process.Process) bool) {
	entries, err := os.ReadDir(base)
	must.Done(err, "look for servers")
	var errs []error
	for _, e := range entries {
		dir := filepath.Join(base, e.Name())
		if owner, ok := ownerOf(dir); !ok || !of(owner) {
			continue
		}
		left, err := Open(Config{Dir: dir})
		if err == nil {
			err = errors.Join(left.Stop(ctx), os.RemoveAll(dir))
		}
		errs = append(errs, err)
	}
	must.OK(errors.Join(errs...))
}
