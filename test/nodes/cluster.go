// SPDX-License-Identifier: Apache-2.0

// Package nodes runs the real agent, controller and plugin on the fast rig, against a real API server.
// Each agent is a process in the network namespace of its node. Pods come and go by libcni and the
// reference macvlan plugin. There is no kubelet and no controller of Kubernetes: the test plays both.
//
// A bystander stands between plugin and agent, between agent and API server, and at the switch. It
// sees every moment of an ADD and a DEL, and can run an action at exactly one of them. The programs
// are the shipped ones, without a hook for tests.
package nodes

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/test/await"
	"github.com/fenceline/fenceline/test/capture"
	"github.com/fenceline/fenceline/test/check"
	"github.com/fenceline/fenceline/test/controlplane"
	"github.com/fenceline/fenceline/test/hints"
	"github.com/fenceline/fenceline/test/namespaces"
	"github.com/fenceline/fenceline/test/process"
	"github.com/fenceline/fenceline/test/programs"
)

const (
	// System is Fenceline's namespace, Shop that of the pods.
	System = "fenceline-system"
	Shop   = "shop"
	// Limit is the time for anything that must happen. After several outages, an informer opens its
	// watch again up to a minute after the last one.
	Limit = 3 * time.Minute
)

// Cluster is an API server and nodes. It ends with its test.
type Cluster struct {
	client.Client
	Server *controlplane.Server
	Nodes  []*Node
	// ControllerMetrics is the address of the controller's metrics. Empty means none.
	ControllerMetrics string
	// Frames are the frames that have entered the switch.
	Frames *capture.Capture

	t   testing.TB
	rig *namespaces.Rig
	bin string // the programs under test

	endHints         func() // nil: nobody but a controller keeps hints
	controller       process.Process
	controllerRights *rest.Config // nil: those of an administrator

	mu     sync.Mutex
	made   int // sandboxes, for their names
	living map[*Sandbox]bool
	had    []*Sandbox // whose ADD has succeeded
}

// New starts an API server, some nodes and their agents.
func New(t testing.TB, count int) *Cluster {
	t.Helper()
	return On(t, namespaces.New(t, count))
}

// On starts an API server, and the agents on the nodes of a rig.
func On(t testing.TB, rig *namespaces.Rig) *Cluster {
	t.Helper()
	check.OK(t, allowSockets())
	log.SetLogger(logr.Discard()) // otherwise controller-runtime prints a stack
	c := &Cluster{t: t, rig: rig, Server: controlplane.New(t), bin: t.TempDir(), living: map[*Sandbox]bool{}}
	scheme := runtime.NewScheme()
	c.check(errors.Join(clientgoscheme.AddToScheme(scheme), v1alpha1.AddToScheme(scheme)))
	c.Client = check.Value(client.New(c.Server.Admin(), client.Options{Scheme: scheme}))(t)
	if c.Server.ControlPlane == nil { // it is another's
		t.Cleanup(func() { c.check(c.removeObjects()) }) // after the agents have ended
	}
	c.endHints = hints.Keep(t, c.Server.Admin())
	c.build()
	c.rig.UsePlugins(c.bin)
	for _, o := range []client.Object{
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: System}},
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: Shop}},
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: System, Name: "fenceline-claim-key"},
			Data: map[string][]byte{"current": []byte("0123456789abcdef")}},
	} {
		c.check(client.IgnoreAlreadyExists(c.Create(t.Context(), o)))
	}
	c.Frames = c.rig.Capture()
	for number := 1; number <= rig.Count(); number++ {
		n := c.newNode(number)
		c.register(n)
		c.check(n.StartAgent())
		c.Nodes = append(c.Nodes, n)
	}
	go c.watchWire()
	ctx, cancel := context.WithTimeout(t.Context(), Limit)
	defer cancel()
	for _, n := range c.Nodes {
		c.check(n.AwaitAgent(ctx))
	}
	return c
}

// removeObjects removes the objects that would disturb the next test.
func (c *Cluster) removeObjects() error {
	ctx, cancel := context.WithTimeout(context.Background(), Limit)
	defer cancel()
	// The controller has ended, so nothing else removes the finalizer of a pool.
	pools := &v1alpha1.IPPoolList{}
	errs := []error{c.List(ctx, pools)}
	for i := range pools.Items {
		pools.Items[i].Finalizers = nil
		errs = append(errs, c.Update(ctx, &pools.Items[i]))
	}
	for _, namespace := range []string{System, Shop} {
		errs = append(errs, c.DeleteAllOf(ctx, &corev1.Pod{}, client.InNamespace(namespace), client.GracePeriodSeconds(0)))
	}
	for _, o := range []client.Object{&corev1.Node{}, &v1alpha1.IPLease{}, &v1alpha1.IPPool{}} {
		errs = append(errs, c.DeleteAllOf(ctx, o))
	}
	return errors.Join(errs...)
}

// build builds the programs as they are shipped.
func (c *Cluster) build() {
	c.t.Helper()
	for name, pkg := range map[string]string{"agent": "agent", "controller": "controller", "fenceline": "cni"} {
		c.check(programs.Build(c.t.Context(), pkg, filepath.Join(c.bin, name)))
	}
}

// register makes the objects by which a cluster knows a node and its agent.
func (c *Cluster) register(n *Node) {
	c.t.Helper()
	ctx := c.t.Context()
	n.Object = &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: n.Name}}
	c.check(c.Create(ctx, n.Object))
	c.check(n.Report(ctx, corev1.ConditionTrue))
	agent := podOn(n.Name, "agent-"+n.Name)
	agent.Namespace = System
	agent.Labels = map[string]string{"app.kubernetes.io/name": "fenceline", "app.kubernetes.io/component": "agent"}
	c.check(c.Create(ctx, agent))
	agent.Status.Phase = corev1.PodRunning
	agent.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	c.check(c.Status().Update(ctx, agent))
}

// HidePlugin takes the plugin's binary from all nodes, or puts it back.
func (c *Cluster) HidePlugin(hidden bool) error {
	from, to := filepath.Join(c.bin, "fenceline"), filepath.Join(c.bin, "hidden")
	if !hidden {
		from, to = to, from
	}
	return os.Rename(from, to)
}

// Pool makes a default pool. Only its status.agents tells an agent how many agents there are.
func (c *Cluster) Pool(name, subnet, ips string) *v1alpha1.IPPool {
	c.t.Helper()
	return c.pool(name, subnet, ips, true, nil)
}

// FromIPPool makes a default pool with macPolicy FromIP and a prefix.
func (c *Cluster) FromIPPool(name, subnet, ips, prefix string) *v1alpha1.IPPool {
	c.t.Helper()
	return c.pool(name, subnet, ips, true, &v1alpha1.MACPolicy{Type: v1alpha1.MACFromIP, Prefix: prefix})
}

// NamedPool makes a pool for the pods that name it, see Wants.
func (c *Cluster) NamedPool(name, subnet, ips string) *v1alpha1.IPPool {
	c.t.Helper()
	return c.pool(name, subnet, ips, false, nil)
}

// Wants makes a pod name a pool of IPv4.
func Wants(pool string) func(*corev1.Pod) { return wants("ipv4", pool) }

// WantsIPv6 makes a pod name a pool of IPv6.
func WantsIPv6(pool string) func(*corev1.Pod) { return wants("ipv6", pool) }

func wants(family, pool string) func(*corev1.Pod) {
	return func(pod *corev1.Pod) {
		pod.Annotations = map[string]string{v1alpha1.AnnotationPrefix + "ippool": fmt.Sprintf(`{%q:[%q]}`, family, pool)}
	}
}

func (c *Cluster) pool(name, subnet, ips string, isDefault bool, macs *v1alpha1.MACPolicy) *v1alpha1.IPPool {
	c.t.Helper()
	pool := &v1alpha1.IPPool{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.IPPoolSpec{
		Subnet: subnet, IPs: []string{ips}, Default: &isDefault, MACPolicy: macs,
	}}
	c.check(c.Create(c.t.Context(), pool))
	// A controller may write the status at the same time.
	before := pool.DeepCopy()
	pool.Status.Agents = int64(len(c.Nodes))
	c.check(c.Status().Patch(c.t.Context(), pool, client.MergeFrom(before)))
	return pool
}

// Lease reads the lease of an address of no network.
func (c *Cluster) Lease(ctx context.Context, addr netip.Addr) (*v1alpha1.IPLease, error) {
	l := &v1alpha1.IPLease{}
	return l, c.Get(ctx, client.ObjectKey{Name: v1alpha1.LeaseName("", addr)}, l)
}

// Host plugs a host without Fenceline into the switch.
func (c *Cluster) Host(addr netip.Prefix) *namespaces.Host { return c.rig.Host(addr, nil) }

// Isolate stops all frames between nodes, or undoes that.
func (c *Cluster) Isolate(isolated bool) error { return c.rig.Isolate(isolated) }

// watchWire reports the frames that the switch receives to the bystander of their node.
func (c *Cluster) watchWire() {
	for seen := 0; ; {
		frames := c.Frames.Frames()
		for _, f := range frames[seen:] {
			for _, n := range c.Nodes {
				if f.Port == "ul-"+n.Name {
					n.sawFrame(f)
				}
			}
		}
		seen = len(frames)
		if c.Frames.WaitMore(c.t.Context(), seen) != nil {
			return
		}
	}
}

func (n *Node) sawFrame(f capture.Frame) {
	switch {
	case f.Kind == "ARP probe":
		_ = n.see(Probed)
	case f.Kind == "claim":
		_ = n.see(Claimed)
	case strings.HasPrefix(f.Kind, "ARP") && len(f.Speaks) > 0:
		_ = n.see(Announced)
	}
}

// Living are the sandboxes whose ADD has succeeded and whose DEL has not begun.
func (c *Cluster) Living() []*Sandbox {
	c.mu.Lock()
	defer c.mu.Unlock()
	var all []*Sandbox
	for s := range c.living {
		all = append(all, s)
	}
	return all
}

// LeasesAreLiving returns an error unless each living sandbox has its lease, no other lease exists
// except in the states besides, and the nodes keep nothing of other sandboxes.
func (c *Cluster) LeasesAreLiving(ctx context.Context, besides ...v1alpha1.LeaseState) error {
	return c.areLiving(ctx, c.Nodes, nil, besides)
}

// LeasesAreLiving does the same for a pool that this node alone serves.
func (n *Node) LeasesAreLiving(ctx context.Context, pool string, besides ...v1alpha1.LeaseState) error {
	return n.cluster.areLiving(ctx, []*Node{n}, client.MatchingFields{"spec.pool": pool}, besides)
}

func (c *Cluster) areLiving(ctx context.Context, nodes []*Node, which client.MatchingFields, besides []v1alpha1.LeaseState) error {
	leases := &v1alpha1.IPLeaseList{}
	if err := c.List(ctx, leases, which); err != nil {
		return err
	}
	living := slices.DeleteFunc(c.Living(), func(s *Sandbox) bool { return !slices.Contains(nodes, s.node) })
	held := map[string]*Sandbox{}
	for _, s := range living {
		if other := held[s.Addr.String()]; other != nil {
			return fmt.Errorf("%s is both %s's and %s's", s.Addr, s.ContainerID, other.ContainerID)
		}
		held[s.Addr.String()] = s
	}
	var errs []error
	for i := range leases.Items {
		l := &leases.Items[i]
		s := held[l.Spec.Address]
		delete(held, l.Spec.Address)
		switch {
		case s == nil && !slices.Contains(besides, l.Spec.State):
			errs = append(errs, fmt.Errorf("lease %s is left: %s %s, %+v", l.Name, l.Spec.State, l.Spec.Reason, l.Spec.Holder))
		case s != nil && (l.Spec.State != v1alpha1.StateBound || l.Spec.Holder == nil || l.Spec.Holder.ContainerID != s.ContainerID):
			errs = append(errs, fmt.Errorf("%s lives with %s, whose lease is %s %s of %+v", s.ContainerID, s.Addr, l.Spec.State, l.Spec.Reason, l.Spec.Holder))
		}
	}
	for addr, s := range held {
		errs = append(errs, fmt.Errorf("%s lives with %s, which has no lease", s.ContainerID, addr))
	}
	for _, n := range nodes {
		errs = append(errs, n.Leftovers(living))
	}
	return errors.Join(errs...)
}

// Eventually waits until wrong returns no error.
func (c *Cluster) Eventually(t testing.TB, what string, wrong func() error) {
	t.Helper()
	check.OK(t, await.Until(context.Background(), Limit, what, func(context.Context) error { return wrong() }))
}

// Settles waits until the leases are those of the living. It judges that only the holders have
// spoken for their addresses.
func (c *Cluster) Settles(ctx context.Context, t testing.TB) {
	t.Helper()
	c.Eventually(t, "the leases are those of the living", func() error { return c.LeasesAreLiving(ctx) })
	check.OK(t, c.SpeakersAreHolders())
}

func (c *Cluster) check(err error) {
	c.t.Helper()
	check.OK(c.t, err)
}

// allowSockets lets the plugin use the sockets and spools of nodes, which are in directories of the
// tests. Parallel tests share the variable.
func allowSockets() error { return os.Setenv("FENCELINE_CNI_DIRS", "/") }

// SpeakersAreHolders returns an error if a frame so far spoke for an address that belonged to
// another sandbox at that time.
func (c *Cluster) SpeakersAreHolders() error {
	frames := c.Frames.Frames()
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.had) == 0 {
		return errors.New("no sandbox has had an address, so nothing was judged")
	}
	return speakersAreHolders(frames, c.had)
}

func speakersAreHolders(frames []capture.Frame, had []*Sandbox) error {
	var errs []error
	for _, s := range had {
		for _, f := range capture.SpokenFor(capture.After(frames, s.Since), s.Addr) {
			if f.Source.String() != s.MAC.String() && (s.Until.IsZero() || f.Time.Before(s.Until)) {
				errs = append(errs, fmt.Errorf("%s was that of %s with %s, and was spoken for by %s", s.Addr, s.ContainerID, s.MAC, f))
			}
		}
	}
	return errors.Join(errs...)
}

// Copy restores a backup beside the cluster, as in a rehearsal of a disaster. The copy has another
// API server with the same data, and the same switch. The last node leaves the cluster and is the
// only node of the copy. It must have no sandbox.
func (c *Cluster) Copy(ctx context.Context, file string, flags ...string) *Cluster {
	c.t.Helper()
	n := c.Nodes[len(c.Nodes)-1]
	copied := &Cluster{
		t: c.t, rig: c.rig, Server: controlplane.New(c.t), bin: c.t.TempDir(), Frames: c.Frames,
		Nodes: []*Node{n}, living: map[*Sandbox]bool{},
	}
	for _, program := range []string{"agent", "controller", "fenceline"} {
		c.check(os.Symlink(filepath.Join(c.bin, program), filepath.Join(copied.bin, program)))
	}
	c.check(n.KillAgent())
	c.forgetNode(ctx, n)
	c.check(copied.Server.Restore(ctx, file, flags...))
	copied.Client = check.Value(client.New(copied.Server.Admin(), client.Options{Scheme: c.Scheme()}))(c.t)
	for _, other := range c.Nodes {
		if other != n {
			copied.forgetNode(ctx, other)
		}
	}
	n.cluster = copied
	c.check(n.api.server.Close())
	n.api = check.Value(openAPIDoor(n.Namespace, copied.Server.Admin(), n.see))(c.t)
	c.check(n.writeKubeconfig())
	c.check(n.AwaitAgent(ctx))
	return copied
}

// forgetNode deletes the objects of a node and its agent, as if the machine did not exist.
func (c *Cluster) forgetNode(ctx context.Context, n *Node) {
	c.t.Helper()
	agent := podOn(n.Name, "agent-"+n.Name)
	agent.Namespace = System
	c.check(client.IgnoreNotFound(c.Delete(ctx, agent, client.GracePeriodSeconds(0))))
	c.check(client.IgnoreNotFound(c.Delete(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: n.Name}})))
}
