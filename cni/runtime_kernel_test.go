// SPDX-License-Identifier: Apache-2.0

//go:build kernel

package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/containernetworking/cni/libcni"
	types100 "github.com/containernetworking/cni/pkg/types/100"
	"github.com/go-logr/logr/testr"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/vishvananda/netlink"

	"github.com/fenceline/fenceline/agent/cniserver"
	"github.com/fenceline/fenceline/agent/pod"
	"github.com/fenceline/fenceline/cni/agentapi"
	"github.com/fenceline/fenceline/internal/diagnosis"
	"github.com/fenceline/fenceline/test/check"
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
	m.net = network.New(t, "node")
	check.OK(t, m.net.AddBridge("parent0"))
	m.brain = newBrain(m.net)
	return m
}

// startAgent runs the agent's server until the returned function ends it.
func (m *machine) startAgent(t *testing.T) (stop func()) {
	t.Helper()
	s := check.Value(cniserver.New(cniserver.Options{
		Backend: m.brain, Socket: m.socket(), Spool: m.spool(),
		Metrics: prometheus.NewRegistry(), Log: testr.New(t),
	}))(t)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Start(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		check.Is(t, <-ended, nil, "the agent's server:")
	})
	t.Cleanup(stop)
	check.Becomes(t, patience, "the agent answers", func() bool { return agentapi.NewClient(m.socket()).Status(t.Context()) == nil })
	return stop
}

// conflist has macvlan delegate to fenceline and chains it after as well.
func (m *machine) conflist(t *testing.T, version string) *libcni.NetworkConfigList {
	t.Helper()
	return check.Value(libcni.ConfListFromBytes(fmt.Appendf(nil, `{"cniVersion":%q,"name":"underlay","plugins":[
		{"type":"macvlan","master":"parent0","mode":"bridge","ipam":{"type":"fenceline","socket":%q,"spool":%q}},
		{"type":"fenceline","ipam":{"socket":%[2]q,"spool":%[3]q}}]}`, version, m.socket(), m.spool())))(t)
}

// runtime runs fn with libcni on the node: plugins start in its namespace.
func (m *machine) runtime(fn func(*libcni.CNIConfig) error) error {
	return m.net.Do(func() error { return fn(libcni.NewCNIConfigWithCacheDir([]string{m.bin}, m.cache, nil)) })
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

// addresses lists the global addresses of an interface.
func addresses(t *testing.T, ns *network.Namespace, name string) []string {
	t.Helper()
	link := check.Value(ns.Links().LinkByName(name))(t)
	list := check.Value(ns.Links().AddrList(link, netlink.FAMILY_ALL))(t)
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

// patience is how long anything may take on a busy machine.
const patience = time.Minute

// brain stands for the agent's brain, and is the one fake here. It has two addresses and remembers who
// holds them; how the real one finds a free address and fences is tested with the API server and the
// BPF programs elsewhere. It looks at the node by package pod, as the real one does.
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
	return &brain{node: node, held: map[agentapi.Attachment]pod.Interface{}, begun: make(chan struct{}, 8), ended: make(chan error, 8)}
}

func (b *brain) Add(ctx context.Context, r agentapi.AddRequest) (*agentapi.AddResponse, error) {
	if b.hold {
		b.begun <- struct{}{}
		<-ctx.Done()
		b.ended <- context.Cause(ctx)
		return nil, ctx.Err()
	}
	var link pod.Interface
	err := b.node.Do(func() error {
		links, err := pod.NewFinder()
		if err != nil {
			return err
		}
		link, err = links.Find(r.NetNS, r.Interface)
		return errors.Join(err, links.Close())
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

func (b *brain) Answered(agentapi.Attachment) {}

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

func (b *brain) Diagnose(context.Context, diagnosis.Request) (*diagnosis.Report, error) {
	return &diagnosis.Report{}, nil
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
