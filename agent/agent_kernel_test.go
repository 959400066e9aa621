// SPDX-License-Identifier: Apache-2.0

//go:build kernel

package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/containernetworking/cni/libcni"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fenceline/fenceline/agent/guards"
	"github.com/fenceline/fenceline/agent/lease"
	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/bpf"
	"github.com/fenceline/fenceline/cni/agentapi"
	"github.com/fenceline/fenceline/internal/metricsendpoint"
	"github.com/fenceline/fenceline/test/check"
	"github.com/fenceline/fenceline/test/controlplane"
	"github.com/fenceline/fenceline/test/hints"
	"github.com/fenceline/fenceline/test/network"
)

// machine is this machine as node n1 of a real API server, with a parent that
// leads nowhere. There are no controllers and no kubelet; the test is both.
type machine struct {
	client.Client
	t      *testing.T
	server *controlplane.Server
	agent  *agentapi.Client
	cni    *libcni.CNIConfig // for the parts with plugins
	socket string
	here   *network.Namespace
	parent string
	node   *corev1.Node
	pods   int
	// asker asks for what it does not get.
	asker agentapi.AddRequest
}

// start runs the agent until the test ends.
func start(t *testing.T) *machine {
	t.Helper()
	return startAs(t, run)
}

// startAs runs an agent in some way until the test ends.
func startAs(t *testing.T, run func(context.Context, settings) error) *machine {
	t.Helper()
	check.Must(t, os.Geteuid() == 0, "kernel tests need root")
	m := &machine{t: t, server: controlplane.New(t), parent: fmt.Sprintf("flt%d", os.Getpid())}
	scheme := runtime.NewScheme()
	check.OK(t, errors.Join(clientgoscheme.AddToScheme(scheme), v1alpha1.AddToScheme(scheme)))
	m.Client = check.Value(client.New(m.server.Admin(), client.Options{Scheme: scheme}))(t)

	m.here = check.Value(network.Current())(t)
	t.Cleanup(func() { check.OK(t, m.here.Close()) })
	m.cable(t, m.parent)

	dir, bpffs := t.TempDir(), t.TempDir()
	check.OK(t, unix.Mount("bpf", bpffs, "bpf", 0, ""))
	t.Cleanup(func() { check.OK(t, unix.Unmount(bpffs, unix.MNT_DETACH)) })
	pins := filepath.Join(bpffs, "fenceline")

	m.node = &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}
	yes := true
	pool := &v1alpha1.IPPool{ObjectMeta: metav1.ObjectMeta{Name: "v4"}, Spec: v1alpha1.IPPoolSpec{
		Subnet: "10.66.0.0/24", IPs: []string{"10.66.0.2-10.66.0.9"}, Default: &yes,
	}}
	for _, o := range []client.Object{
		m.node, pool, namespace("fenceline-system"), namespace("shop"),
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "fenceline-system", Name: guards.KeySecret},
			Data: map[string][]byte{"current": []byte("0123456789abcdef")}},
	} {
		check.OK(t, m.Create(t.Context(), o))
	}
	pool.Status.Agents = 1
	check.OK(t, m.Status().Update(t.Context(), pool))

	hints.Keep(t, m.server.Admin())
	t.Setenv("KUBECONFIG", m.server.Kubeconfig())
	ctx, stop := context.WithCancel(context.Background())
	socket, done := filepath.Join(dir, "agent.sock"), make(chan error, 1)
	go func() {
		done <- run(ctx, settings{
			node: "n1", namespace: "fenceline-system", pod: "agent", stateDir: dir, socket: socket, bpfDir: pins,
			metrics: metricsendpoint.Endpoint{Address: "127.0.0.1:0"}, healthAddress: "127.0.0.1:0", logLevel: slog.LevelInfo,
		})
	}()
	t.Cleanup(func() {
		stop()
		check.OK(t, <-done)
		k := check.Value(bpf.Open(bpf.Options{Dir: pins}))(t)
		check.OK(t, k.Remove())
	})
	m.agent, m.socket = agentapi.NewClient(socket), socket
	m.eventually("the agent serves", seen, func() bool { return m.agent.Status(t.Context()) == nil })
	return m
}

// cable makes a parent; its other end is called the same with a p.
func (m *machine) cable(t *testing.T, parent string) {
	t.Helper()
	check.OK(t, m.here.AddPair(parent, m.here, parent+"p"))
	t.Cleanup(func() { check.OK(t, m.here.DeleteLink(parent)) })
	check.OK(t, errors.Join(m.here.SetUp(parent+"p", true), m.here.SetUp(parent, true)))
}

func namespace(name string) *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
}

// sandbox makes a pod with a network namespace and a macvlan in it.
func (m *machine) sandbox(change ...func(*corev1.Pod)) agentapi.AddRequest {
	m.t.Helper()
	r, ns := m.unplugged(change...)
	check.OK(m.t, m.here.AddMacvlan(m.parent, nil, ns, r.Interface))
	return r
}

// unplugged makes a pod with an empty network namespace.
func (m *machine) unplugged(change ...func(*corev1.Pod)) (agentapi.AddRequest, *network.Namespace) {
	t := m.t
	t.Helper()
	m.pods++
	name := fmt.Sprintf("pod-%d", m.pods)
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name}, Spec: corev1.PodSpec{
		NodeName: "n1", Containers: []corev1.Container{{Name: "c", Image: "none"}},
		// The DEL of a pod that is never restarted frees its address while the pod object lives.
		RestartPolicy: corev1.RestartPolicyNever,
	}}
	for _, c := range change {
		c(pod)
	}
	check.OK(t, m.Create(t.Context(), pod))
	ns := network.New(t, name)
	return agentapi.AddRequest{
		Attachment: agentapi.Attachment{ContainerID: name, Interface: "eth0"}, NetNS: ns.Path(),
		Pod:     agentapi.Pod{Namespace: pod.Namespace, Name: name, UID: string(pod.UID)},
		Network: agentapi.Network{Name: "underlay", Type: "macvlan"},
	}, ns
}

// add calls ADD and returns the lease.
func (m *machine) add(r agentapi.AddRequest) *v1alpha1.IPLease {
	m.t.Helper()
	answer := check.Value(m.agent.Add(m.t.Context(), r))(m.t)
	l := m.lease(answer.IPs[0].Address.Addr())
	check.Must(m.t, l != nil && l.Spec.Holder.ContainerID == r.ContainerID, "the lease of %v is %+v", answer.IPs, l)
	return l
}

func (m *machine) lease(addr netip.Addr) *v1alpha1.IPLease {
	m.t.Helper()
	l := &v1alpha1.IPLease{}
	err := m.Get(m.t.Context(), types.NamespacedName{Name: v1alpha1.LeaseName("", addr)}, l)
	check.OK(m.t, client.IgnoreNotFound(err))
	if err != nil {
		return nil
	}
	return l
}

func (m *machine) eventually(what string, within time.Duration, ok func() bool) {
	m.t.Helper()
	check.Becomes(m.t, within, what, ok)
}

// part runs a part of a test. A step that fails ends the part and not the test, and what the part makes
// goes with it.
func (m *machine) part(t *testing.T, name string, part func(*testing.T)) {
	t.Helper()
	t.Run(name, func(t *testing.T) {
		whole := m.t
		m.t = t
		defer func() { m.t = whole }()
		part(t)
	})
}

// The whole agent against a real API server and the real kernel. It is one test
// because a process can register its metrics, and so be an agent, only once. Its parts
// do not need each other; only the last one stops the API server for a while.
func TestTheAgent(t *testing.T) {
	m := start(t)
	m.cni = plugins(t)
	m.asker = m.sandbox() // serves all parts
	ctx := t.Context()

	m.part(t, "gives an address and takes it back", func(t *testing.T) {
		r := m.sandbox()
		l := m.add(r)
		check.OK(t, m.agent.Check(ctx, agentapi.CheckRequest{Attachment: r.Attachment}))
		check.OK(t, m.agent.Del(ctx, agentapi.DelRequest{Attachment: r.Attachment}))
		if l := m.lease(netip.MustParseAddr(l.Name)); l != nil {
			t.Errorf("left %+v", l.Spec)
		}
	})

	m.part(t, "refuses an interface that is not there, or has no parent, with what to do", func(t *testing.T) {
		r := m.sandbox()
		r.Interface = "eth1"
		wantCode(t, agentapi.CodeTryAgainLater, m.addError(r))
		r.Interface = "lo"
		wantCode(t, agentapi.CodeInvalidNetworkConfig, m.addError(r))
	})

	m.part(t, "records a living pod again whose lease was deleted", func(t *testing.T) {
		l := m.add(m.sandbox())
		forced := l.DeepCopy()
		forced.Annotations = map[string]string{v1alpha1.AnnotationForceDelete: ""} // the policy demands it
		check.OK(t, errors.Join(m.Update(ctx, forced), m.Delete(ctx, forced)))
		m.eventually("the lease is back", seen, func() bool {
			again := m.lease(netip.MustParseAddr(l.Name))
			return again != nil && again.UID != l.UID && again.Spec.Holder.ContainerID == l.Spec.Holder.ContainerID
		})
	})

	m.part(t, "verifies what it held itself, and lets go", func(t *testing.T) {
		r := m.sandbox()
		l := m.add(r)
		m.quarantine(l, "n1", l.Spec.Session)
		m.eventually("the address is free", seen, func() bool { return m.lease(netip.MustParseAddr(l.Name)) == nil })
		m.eventually("the attachment is forgotten", seen, func() bool {
			return m.agent.Check(ctx, agentapi.CheckRequest{Attachment: r.Attachment}) != nil
		})
	})

	// No pod of this pool was ever here, and the pool names no parent: the last
	// holder's parent is called as one of this node.
	m.part(t, "verifies by the name of the last holder's parent", func(t *testing.T) {
		pool := &v1alpha1.IPPool{ObjectMeta: metav1.ObjectMeta{Name: "elsewhere"}, Spec: v1alpha1.IPPoolSpec{Subnet: "10.67.0.0/24"}}
		check.OK(t, m.Create(ctx, pool))
		l := boundElsewhere("10.67.0.2", m.parent)
		check.OK(t, m.Create(ctx, l))
		m.quarantine(l, "n2", "n2/boot")
		m.eventually("the address is free", seen, func() bool { return m.lease(netip.MustParseAddr(l.Name)) == nil })
		l = boundElsewhere("10.67.0.3", "nowhere0")
		check.OK(t, m.Create(ctx, l))
		m.quarantine(l, "n2", "n2/boot")
		m.eventually("the lease says that no parent is known", seen, func() bool {
			return m.lease(netip.MustParseAddr(l.Name)).Spec.Message != ""
		})
		t.Log(m.lease(netip.MustParseAddr(l.Name)).Spec.Message)
	})

	m.part(t, "every rule of choosing", m.rules)

	m.part(t, "keeps addresses ready", m.warmAddresses)

	m.part(t, "leaves a pool to its pods although a proxy answers for all of it", m.proxies)
	m.part(t, "follows the MAC that a plugin sets", m.changedMACs)
	m.part(t, "takes the interface of a pod that takes another MAC", m.impostors)
	m.part(t, "carries out a DEL after the API server's return", func(t *testing.T) {
		r := m.sandbox()
		l := m.add(r)
		check.OK(t, m.server.StopAPIServer(ctx))
		other := r
		other.ContainerID, other.Pod.UID = "another", "of another pod"
		wantCode(t, agentapi.CodeTryAgainLater, m.addError(other))
		check.OK(t, m.agent.Del(ctx, agentapi.DelRequest{Attachment: r.Attachment}))
		check.OK(t, m.server.StartAPIServer(ctx))
		back := time.Now()
		// How soon it is tried is the worker's test (agent/recovery).
		m.eventually("the address is free", seen, func() bool { return m.lease(netip.MustParseAddr(l.Name)) == nil })
		t.Logf("%s after the API server was ready", time.Since(back))
	})
}

// addError calls ADD and returns why it failed.
func (m *machine) addError(r agentapi.AddRequest) error {
	m.t.Helper()
	answer, err := m.agent.Add(m.t.Context(), r)
	check.Must(m.t, err != nil, "ADD answers %v", answer)
	return err
}

func wantCode(t *testing.T, code uint, err error) {
	t.Helper()
	t.Log(err)
	e, typed := errors.AsType[*agentapi.Error](err)
	check.That(t, typed && e.Code == code, "got %v, want code %d", err, code)
}

// quarantine is what the controller writes, with this node as the verifier.
func (m *machine) quarantine(l *v1alpha1.IPLease, node, holderSession string) {
	m.t.Helper()
	l.Spec.State, l.Spec.Reason, l.Spec.NodeName, l.Spec.Session = v1alpha1.StateQuarantined, v1alpha1.ReasonPodGone, "n1", ""
	l.Spec.Previous = &v1alpha1.PreviousHolder{Node: node, Session: holderSession, Guarded: true, Reason: v1alpha1.ReasonPodGone}
	check.OK(m.t, m.Update(m.t.Context(), l))
}

func boundElsewhere(addr, parent string) *v1alpha1.IPLease {
	return &v1alpha1.IPLease{ObjectMeta: metav1.ObjectMeta{Name: addr}, Spec: v1alpha1.IPLeaseSpec{
		Address: addr, Pool: "elsewhere", Parent: parent, State: v1alpha1.StateBound, NodeName: "n2", Session: lease.ID("n2", "boot"),
		Holder: &v1alpha1.Holder{Namespace: "shop", Pod: "web", PodUID: "u", Interface: "eth0", ContainerID: "c"},
	}}
}

// TestMain lets the plugin use the sockets of these tests, which are in temporary directories.
func TestMain(m *testing.M) {
	if err := os.Setenv("FENCELINE_CNI_DIRS", "/"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}
