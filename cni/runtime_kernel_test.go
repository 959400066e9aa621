//go:build kernel

package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/containernetworking/cni/libcni"
	types100 "github.com/containernetworking/cni/pkg/types/100"
	"github.com/go-logr/logr/testr"
	"github.com/vishvananda/netlink"

	"github.com/fenceline/fenceline/agent/cniserver"
	"github.com/fenceline/fenceline/agent/pod"
	"github.com/fenceline/fenceline/cni/agentapi"
	"github.com/fenceline/fenceline/test/network"
)

// machine is a node with a runtime (libcni), the reference plugins, the
// plugin, and the agent's server. Everything in it is real but the agent's brain.
type machine struct {
	node
	net   *network.Namespace
	bin   string
	cache string
	brain *brain
}

// newMachine makes a node whose parent interface is parent0.
func newMachine(t *testing.T) *machine {
	t.Helper()
	m := &machine{node: newNode(t), bin: binaries(t), cache: t.TempDir()}
	m.net = namespace(t, "node")
	if err := m.net.AddBridge("parent0"); err != nil {
		t.Fatal(err)
	}
	if err := m.net.SetUp("parent0", true); err != nil {
		t.Fatal(err)
	}
	m.brain = newBrain(m.net)
	return m
}

func namespace(t *testing.T, role string) *network.Namespace {
	t.Helper()
	ns, err := network.Create(fmt.Sprintf("flt-%d-%s", os.Getpid(), role))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := ns.Delete(); err != nil {
			t.Error(err)
		}
	})
	return ns
}

// startAgent runs the agent's server until the returned function ends it.
func (m *machine) startAgent(t *testing.T) (stop func()) {
	t.Helper()
	s, err := cniserver.New(cniserver.Options{
		Backend: m.brain, Socket: m.socket(), Spool: string(m.spool()), Log: testr.New(t),
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Start(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("the agent's server: %v", err)
		}
	})
	t.Cleanup(stop)
	eventually(t, "the agent answers", func() bool {
		return agentapi.NewClient(m.socket()).Status(t.Context()) == nil
	})
	return stop
}

// conflist has macvlan delegate to fenceline and chains it after as well.
func (m *machine) conflist(t *testing.T, version string) *libcni.NetworkConfigList {
	t.Helper()
	list, err := libcni.ConfListFromBytes(fmt.Appendf(nil, `{"cniVersion":%q,"name":"underlay","plugins":[
		{"type":"macvlan","master":"parent0","mode":"bridge","ipam":{"type":"fenceline","socket":%q,"spool":%q}},
		{"type":"fenceline","ipam":{"socket":%[2]q,"spool":%[3]q}}]}`, version, m.socket(), m.spool()))
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// runtime runs fn with libcni on the node: plugins start in its namespace.
func (m *machine) runtime(fn func(*libcni.CNIConfig) error) error {
	return m.net.Do(func() error {
		return fn(libcni.NewCNIConfigWithCacheDir([]string{m.bin}, m.cache, nil))
	})
}

func attach(container string, ns *network.Namespace) *libcni.RuntimeConf {
	return &libcni.RuntimeConf{
		ContainerID: container, NetNS: ns.Path(), IfName: "eth0",
		Args: [][2]string{{"IgnoreUnknown", "1"}, {"K8S_POD_NAMESPACE", "default"}, {"K8S_POD_NAME", "web-0"}, {"K8S_POD_UID", "u"}},
	}
}

func (m *machine) add(t *testing.T, list *libcni.NetworkConfigList, rt *libcni.RuntimeConf) (result *types100.Result, err error) {
	t.Helper()
	err = m.runtime(func(c *libcni.CNIConfig) error {
		r, err := c.AddNetworkList(t.Context(), list, rt)
		if err != nil {
			return err
		}
		if r.Version() != list.CNIVersion {
			return fmt.Errorf("the result has version %s", r.Version())
		}
		result, err = types100.NewResultFromResult(r)
		return err
	})
	return result, err
}

func (m *machine) del(t *testing.T, list *libcni.NetworkConfigList, rt *libcni.RuntimeConf) error {
	t.Helper()
	return m.runtime(func(c *libcni.CNIConfig) error { return c.DelNetworkList(t.Context(), list, rt) })
}

// brain stands for the agent's brain, and is the one fake here. It has two
// addresses and remembers who holds them; how the real one finds a free address
// and fences is tested with the API server and the BPF programs elsewhere. What
// it sees of the node it sees as the real one does, by package pod.
type brain struct {
	node *network.Namespace

	mu    sync.Mutex
	held  map[agentapi.Attachment]pod.Interface
	seen  []string
	gc    agentapi.GCRequest
	guard []agentapi.ConfiguredAddress

	// hold makes Add wait for the end of its context.
	hold  bool
	begun chan struct{}
	ended chan error
}

func newBrain(node *network.Namespace) *brain {
	return &brain{
		node: node, held: map[agentapi.Attachment]pod.Interface{},
		begun: make(chan struct{}, 8), ended: make(chan error, 8),
	}
}

func (b *brain) Add(ctx context.Context, r agentapi.AddRequest) (*agentapi.AddResponse, error) {
	if b.hold {
		b.begun <- struct{}{}
		<-ctx.Done()
		b.ended <- context.Cause(ctx)
		return nil, ctx.Err()
	}
	var link pod.Interface
	err := b.node.Do(func() (err error) {
		link, err = pod.Find(r.NetNS, r.Interface)
		return err
	})
	if err != nil {
		return nil, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.seen = append(b.seen, "ADD")
	if r.Chained {
		b.guard = r.Configured
		return &agentapi.AddResponse{}, nil
	}
	b.held[r.Attachment] = link
	return &agentapi.AddResponse{
		IPs: []agentapi.IP{
			{Address: netip.MustParsePrefix("192.0.2.7/24"), Gateway: netip.MustParseAddr("192.0.2.1")},
			{Address: netip.MustParsePrefix("2001:db8::7/64"), Gateway: netip.MustParseAddr("2001:db8::1")},
		},
		Routes: []agentapi.Route{
			{Dst: netip.MustParsePrefix("0.0.0.0/0")},
			{Dst: netip.MustParsePrefix("198.51.100.0/24"), GW: netip.MustParseAddr("192.0.2.254")},
			{Dst: netip.MustParsePrefix("::/0")},
		},
	}, nil
}

func (b *brain) Del(_ context.Context, r agentapi.DelRequest) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.seen = append(b.seen, "DEL")
	delete(b.held, r.Attachment)
	return nil
}

func (b *brain) Check(_ context.Context, r agentapi.CheckRequest) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.seen = append(b.seen, "CHECK")
	if _, ok := b.held[r.Attachment]; !ok || len(r.Configured) != 2 {
		return agentapi.Errorf(agentapi.CodeNotHeld, "%s holds nothing of %v", r.ContainerID, r.Configured)
	}
	return nil
}

func (b *brain) GC(_ context.Context, r agentapi.GCRequest) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.seen = append(b.seen, "GC")
	b.gc = r
	for a := range b.held {
		if !slices.Contains(r.Valid, a) {
			delete(b.held, a)
		}
	}
	return nil
}

func (b *brain) Status(context.Context) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.seen = append(b.seen, "STATUS")
	return nil
}

// holds lists the containers that hold addresses.
func (b *brain) holds() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	var ids []string
	for a := range b.held {
		ids = append(ids, a.ContainerID)
	}
	return ids
}

// calls returns the verbs of the calls since it was last asked.
func (b *brain) calls() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	seen := b.seen
	b.seen = nil
	return seen
}

// addresses lists the global addresses of an interface.
func addresses(t *testing.T, ns *network.Namespace, name string) []string {
	t.Helper()
	link, err := ns.Links().LinkByName(name)
	if err != nil {
		t.Fatal(err)
	}
	list, err := ns.Links().AddrList(link, netlink.FAMILY_ALL)
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, a := range list {
		if a.IP.IsGlobalUnicast() {
			found = append(found, a.IPNet.String())
		}
	}
	slices.Sort(found)
	return found
}

func hasLink(ns *network.Namespace, name string) bool {
	_, err := ns.Links().LinkByName(name)
	_, missing := errors.AsType[netlink.LinkNotFoundError](err)
	return !missing
}

// eventually polls a condition that no channel tells.
func eventually(t *testing.T, what string, condition func() bool) {
	t.Helper()
	deadline := time.Now().Add(10 * time.Second)
	for !condition() {
		if time.Now().After(deadline) {
			t.Fatalf("after 10 s it is still not true that %s", what)
		}
		time.Sleep(time.Millisecond)
	}
}

// within receives, or fails the test after 10 s.
func within[T any](t *testing.T, what string, c <-chan T) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(10 * time.Second):
		t.Fatalf("after 10 s still no %s", what)
		panic("not reached")
	}
}
