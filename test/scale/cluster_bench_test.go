// SPDX-License-Identifier: Apache-2.0

//go:build bench

package scale

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/sync/errgroup"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/fenceline/fenceline/agent/lease"
	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/test/check"
	"github.com/fenceline/fenceline/test/controlplane"
	"github.com/fenceline/fenceline/test/process"
	"github.com/fenceline/fenceline/test/programs"
)

const (
	system = "fenceline-system"
	// pools is the number of pools, of each of which a node of the zone has one lease.
	pools = 20
	// workers is how many writes the rig has under way.
	workers = 32
)

// cluster is a real API server and the real controller. Nodes, pods and agents are played.
type cluster struct {
	*testing.T
	server     *controlplane.Server
	controller process.Process
	access     *rest.Config
	client     client.Client
	players    *players
	// zone is how many of the first nodes are lost at the end. Each has a pod with a lease in each pool.
	zone  int
	nodes int
	// measured has the names of the figures of memory.
	measured map[string]bool
}

func newCluster(t *testing.T, zone int) *cluster {
	t.Helper()
	log.SetLogger(logr.Discard())
	c := &cluster{T: t, server: controlplane.New(t), zone: zone, measured: map[string]bool{}}
	scheme := runtime.NewScheme()
	check.OK(t, errors.Join(clientgoscheme.AddToScheme(scheme), v1alpha1.AddToScheme(scheme)))
	c.client = check.Value(client.New(c.server.Admin(), client.Options{Scheme: scheme}))(t)
	c.create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: system}})
	c.access = c.account("agents")
	c.client = check.Value(client.New(c.access, client.Options{Scheme: scheme}))(t)
	c.players = newPlayers(t, c.access)
	c.startController()
	for i := range pools {
		c.pool(poolOf(i), fmt.Sprintf("10.%d.0.0/20", 100+i))
	}
	c.pool("writer", "10.99.0.0/16")
	c.pool("many", "10.32.0.0/12")
	c.pool("full", "10.98.0.1/32")
	return c
}

// account returns the access of a ServiceAccount that may do everything.
func (c *cluster) account(name string) *rest.Config {
	c.Helper()
	c.create(&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: system, Name: name}})
	c.create(&rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: system, Name: name}},
	})
	config := check.Value(c.server.ServiceAccount(c.Context(), system, name, nil))(c)
	own := check.Value(client.New(config, client.Options{Scheme: c.client.Scheme()}))(c)
	check.Eventually(c, time.Minute, "the rights of "+name, func() error {
		asked := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{
			ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: "*", Group: "*", Resource: "*"},
		}}
		if err := own.Create(c.Context(), asked); err != nil || asked.Status.Allowed {
			return err
		}
		return errors.New(asked.Status.Reason)
	})
	return config
}

// startController starts the controller as it is shipped.
func (c *cluster) startController() {
	c.Helper()
	dir := c.TempDir()
	program, access := filepath.Join(dir, "controller"), filepath.Join(dir, "controller.kubeconfig")
	check.OK(c, programs.Build(c.Context(), "controller", program))
	check.OK(c, controlplane.WriteKubeconfig(c.account("controller"), access))
	cmd := exec.Command(program, "--namespace", system, "--leader-elect=false", "--metrics-address", "0", "--health-address", "0",
		"--extra-grace", "1s", "--log-level", "WARN")
	cmd.Env = append(os.Environ(), "KUBECONFIG="+access)
	c.controller = check.Value(process.Start("controller", cmd, filepath.Join(dir, "controller.log")))(c)
	c.Cleanup(func() {
		check.OK(c, c.controller.Stop(context.Background(), 10*time.Second))
		said := check.Value(os.ReadFile(filepath.Join(dir, "controller.log")))(c)
		c.Logf("the controller said %d bytes, at the end: %s", len(said), said[max(0, len(said)-2000):])
	})
}

func (c *cluster) create(o client.Object) {
	c.Helper()
	check.OK(c, c.client.Create(c.Context(), o))
}

func (c *cluster) pool(name, subnet string) {
	c.Helper()
	c.create(&v1alpha1.IPPool{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.IPPoolSpec{Subnet: subnet}})
}

// parallel calls do for 0 to n-1, and fails the test by the first error.
func (c *cluster) parallel(n int, do func(i int) error) {
	c.Helper()
	var all errgroup.Group
	all.SetLimit(workers)
	for i := range n {
		all.Go(func() error { return do(i) })
	}
	check.OK(c, all.Wait())
}

// grow adds nodes, each with an agent that is Ready, until there are n, or as many as the zone has. Each
// node of the zone gets pods with leases, and each other node a Warm lease.
func (c *cluster) grow(n int) {
	c.Helper()
	n = max(n, c.zone)
	first := c.nodes
	c.nodes = max(first, n)
	c.parallel(c.nodes-first, func(i int) error { return c.addNode(first + i) })
	if first == 0 {
		c.parallel(c.zone*pools, func(i int) error { return c.addLease(i/pools, i%pools) })
		first = c.zone
	}
	c.parallel(c.nodes-first, func(i int) error { return c.addWarm(first + i) })
}

func (c *cluster) addNode(i int) error {
	ready := []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.Now()}}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: nodeOf(i)}, Status: corev1.NodeStatus{Conditions: ready}}
	if err := c.client.Create(c.Context(), node); err != nil {
		return err
	}
	agent := podOn(nodeOf(i), system, "agent-"+nodeOf(i))
	agent.Labels = map[string]string{"app.kubernetes.io/name": "fenceline", "app.kubernetes.io/component": "agent"}
	if err := c.client.Create(c.Context(), agent); err != nil {
		return err
	}
	// The controller writes the agent's index into its pod meanwhile, so no version guards the status.
	status := []byte(`{"status":{"phase":"Running","conditions":[{"type":"Ready","status":"True"}]}}`)
	if err := c.client.Status().Patch(c.Context(), agent, client.RawPatch("application/merge-patch+json", status)); err != nil {
		return err
	}
	return c.players.addHint(c.Context(), nodeOf(i))
}

func podOn(node, namespace, name string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: corev1.PodSpec{
			NodeName: node, TerminationGracePeriodSeconds: ptr.To[int64](1), Containers: []corev1.Container{{Name: "main", Image: "none"}},
		},
	}
}

// addLease adds a pod of a node, which has an address of a pool.
func (c *cluster) addLease(node, pool int) error {
	pod := podOn(nodeOf(node), "default", fmt.Sprintf("p%d-%d", node, pool))
	if err := c.client.Create(c.Context(), pod); err != nil {
		return err
	}
	return c.addBound(lease.Request{
		Pool: poolOf(pool), Addr: addressIn(pool, node), Parent: "eth0", Holder: v1alpha1.Holder{
			Namespace: pod.Namespace, Pod: pod.Name, PodUID: string(pod.UID), ContainerID: strings.Repeat("c", 64), Interface: "eth0",
			MAC: "02:00:00:00:00:0a", Guarded: true,
		},
	}, nodeOf(node))
}

// addWarm makes a lease that a living agent keeps, so that its node is on the segment of a pool.
func (c *cluster) addWarm(node int) error {
	pool := node % pools
	return c.addBound(lease.Request{Pool: poolOf(pool), Addr: addressIn(pool, node), Parent: "eth0"}, nodeOf(node))
}

func (c *cluster) addBound(r lease.Request, node string) error {
	o := lease.Owner{Node: node, Session: "uid/boot", Now: time.Now().Add(-time.Hour)}
	spec := lease.Warm(r, o)
	if r.Holder.Pod != "" {
		spec = lease.Bind(r, o)
	}
	l := &v1alpha1.IPLease{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.LeaseName("", r.Addr)}, Spec: spec}
	return c.client.Create(c.Context(), l)
}

// storeOf returns the store of the agent of a node.
func (c *cluster) storeOf(node string) *lease.Store {
	return lease.NewStore(lease.Options{Client: c.client, Reader: c.client, Node: node, Session: "uid/boot", Clock: clock.RealClock{}})
}

func nodeOf(i int) string { return fmt.Sprintf("n%04d", i) }
func poolOf(i int) string { return fmt.Sprintf("pool-%02d", i) }

// addressIn returns the address in a pool that a node's pod has.
func addressIn(pool, node int) netip.Addr {
	return netip.AddrFrom4([4]byte{10, byte(100 + pool), byte(node / 250), byte(node%250 + 1)})
}

// cpu is the CPU time that the API server has used.
func (c *cluster) cpu() time.Duration {
	c.Helper()
	return check.Value(c.server.CPU())(c)
}

// quiet waits until the API server has hardly anything to do.
func (c *cluster) quiet() {
	c.Helper()
	before, at := c.cpu(), time.Now()
	check.Eventually(c, 3*time.Minute, "an idle API server", func() error {
		took, used := time.Since(at), c.cpu()-before
		if took >= 200*time.Millisecond {
			before, at = before+used, at.Add(took)
			if used < took/10 {
				return nil
			}
		}
		return fmt.Errorf("it used %s of CPU in %s", used, took)
	})
}
