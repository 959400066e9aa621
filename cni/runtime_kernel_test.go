// SPDX-License-Identifier: Apache-2.0

//go:build kernel

package main

import (
	"context"
	"errors"
	"fmt"
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
	"github.com/fenceline/fenceline/cni/agentapi"
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
	m.net = namespace(t, "node")
	check.OK(t, m.net.AddBridge("parent0"))
	m.brain = newBrain(m.net)
	return m
}

func namespace(t *testing.T, role string) *network.Namespace {
	t.Helper()
	return network.New(t, role)
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
	list := check.Value(libcni.ConfListFromBytes(fmt.Appendf(nil, `{"cniVersion":%q,"name":"underlay","plugins":[
		{"type":"macvlan","master":"parent0","mode":"bridge","ipam":{"type":"fenceline","socket":%q,"spool":%q}},
		{"type":"fenceline","ipam":{"socket":%[2]q,"spool":%[3]q}}]}`, version, m.socket(), m.spool())))(t)
	return list
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
