// SPDX-License-Identifier: Apache-2.0

//go:build kernel

package main

import (
	"context"
	"errors"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/cni/pkg/types"
	"github.com/vishvananda/netlink"

	"github.com/fenceline/fenceline/agent/pod"
	"github.com/fenceline/fenceline/cni/agentapi"
	"github.com/fenceline/fenceline/test/check"
	"github.com/fenceline/fenceline/test/network"
)

func TestEveryVersionUnderARuntimeWithMacvlan(t *testing.T) {
	m := newMachine(t)
	m.startAgent(t)
	for _, version := range []string{"0.3.1", "0.4.0", "1.0.0", "1.1.0"} {
		t.Run(version, func(t *testing.T) {
			sandbox := network.New(t, "pod")
			list, rt := m.conflist(t, version), attach("container-"+version, sandbox)
			m.brain.calls()

			t.Run("ADD gives the pod its addresses and routes", func(t *testing.T) { wantADD(t, m, sandbox, list, rt) })
			t.Run("CHECK passes, from 0.4.0 on", func(t *testing.T) {
				err := m.runtime(func(c *libcni.CNIConfig) error { return c.CheckNetworkList(t.Context(), list, rt) })
				if version == "0.3.1" {
					check.That(t, err != nil && len(m.brain.calls()) == 0, "a CHECK in version 0.3.1: %v", err)
					return
				}
				check.OK(t, err)
				check.List(t, m.brain.calls(), []string{"CHECK", "CHECK"}, "as IPAM and chained, the agent saw")
			})
			t.Run("STATUS and GC reach the agent, from 1.1.0 on", func(t *testing.T) { wantStatusAndGC(t, m, list, rt) })
			t.Run("DEL gives everything back, as often as it is said", func(t *testing.T) {
				for range 2 {
					check.OK(t, m.del(t, list, rt))
				}
				check.None(t, m.brain.holds(), "containers that still hold addresses:")
				check.That(t, !hasLink(sandbox, "eth0"), "the link is still there")
			})
			t.Run("DEL needs no namespace", func(t *testing.T) {
				gone := *rt
				gone.NetNS = sandbox.Path() + "-gone"
				check.OK(t, m.del(t, list, &gone))
				gone.NetNS = ""
				check.OK(t, m.del(t, list, &gone))
			})
		})
	}
	t.Run("VERSION", func(t *testing.T) {
		check.OK(t, m.runtime(func(c *libcni.CNIConfig) error {
			info, err := c.GetVersionInfo(t.Context(), pluginType)
			check.OK(t, err)
			check.Equal(t, strings.Join(info.SupportedVersions(), " "), "0.3.1 0.4.0 1.0.0 1.1.0", "the plugin supports")
			return nil
		}))
	})
}

func wantADD(t *testing.T, m *machine, sandbox *network.Namespace, list *libcni.NetworkConfigList, rt *libcni.RuntimeConf) {
	result := check.Value(m.add(t, list, rt))(t)
	want := []string{"192.0.2.7/24", "2001:db8::7/64"}
	check.List(t, addresses(t, sandbox, "eth0"), want, "the pod has")
	check.That(t, len(result.IPs) == 2 && len(result.Routes) == 3 && len(result.Interfaces) == 1, "result: %+v", result)
	via := map[string]string{}
	for _, r := range check.Value(sandbox.Links().RouteList(nil, netlink.FAMILY_V4))(t) {
		via[r.Dst.String()] = r.Gw.String()
	}
	check.That(t, via["0.0.0.0/0"] == "192.0.2.1" && via["198.51.100.0/24"] == "192.0.2.254", "routes %v", via)

	calls := m.brain.calls()
	check.Must(t, slices.Equal(calls, []string{"ADD", "ADD"}), "the agent saw %v, want one ADD as IPAM and one chained", calls)
	held := m.brain.held[agentapi.Attachment{ContainerID: rt.ContainerID, Interface: "eth0"}]
	parent := check.Value(m.net.Index("parent0"))(t)
	right := held.Kind == pod.MACVLAN && !held.Up && held.Parent == pod.Parent{Index: parent, Name: "parent0"}
	check.That(t, right, "when IPAM ADD ran the interface was %+v, want a macvlan of parent0 that is down", held)
	guarded := []agentapi.ConfiguredAddress{
		{Address: netip.MustParsePrefix("192.0.2.7/24"), Gateway: netip.MustParseAddr("192.0.2.1"), Interface: "eth0", MAC: held.MAC.String()},
		{Address: netip.MustParsePrefix("2001:db8::7/64"), Gateway: netip.MustParseAddr("2001:db8::1"), Interface: "eth0", MAC: held.MAC.String()},
	}
	check.That(t, reflect.DeepEqual(m.brain.guard, guarded), "chained, the agent was asked to guard %+v, want %+v", m.brain.guard, guarded)
}

func wantStatusAndGC(t *testing.T, m *machine, list *libcni.NetworkConfigList, rt *libcni.RuntimeConf) {
	own := types.GCAttachment{ContainerID: rt.ContainerID, IfName: rt.IfName}
	leaked := agentapi.Attachment{ContainerID: "leaked", Interface: "eth0"}
	m.brain.mu.Lock()
	m.brain.held[leaked] = pod.Interface{}
	m.brain.mu.Unlock()
	err := m.runtime(func(c *libcni.CNIConfig) error {
		return errors.Join(
			c.GetStatusNetworkList(t.Context(), list),
			c.GCNetworkList(t.Context(), list, &libcni.GCArgs{ValidAttachments: []types.GCAttachment{own}}),
		)
	})
	check.OK(t, err)
	calls, holders := m.brain.calls(), m.brain.holds()
	if list.CNIVersion != "1.1.0" {
		check.That(t, len(calls) == 0, "the agent saw %v", calls)
		m.brain.mu.Lock()
		delete(m.brain.held, leaked)
		m.brain.mu.Unlock()
		return
	}
	// The reference macvlan plugin passes STATUS on to its IPAM, but not GC.
	check.List(t, calls, []string{"STATUS", "STATUS", "GC"}, "the agent saw")
	check.Equal(t, m.brain.gc.Network, "underlay", "the GC was of")
	check.List(t, holders, []string{rt.ContainerID}, "after the GC addresses are held by")
}

func TestUnderARuntimeWhileTheAgentIsAway(t *testing.T) {
	m := newMachine(t)
	sandbox := network.New(t, "pod")
	list, rt := m.conflist(t, "1.1.0"), attach("abc", sandbox)
	stop := m.startAgent(t)
	check.Value(m.add(t, list, rt))(t)
	stop()

	_, err := m.add(t, list, attach("def", network.New(t, "late")))
	wantRuntimeCode(t, err, agentapi.CodeTryAgainLater)
	err = m.runtime(func(c *libcni.CNIConfig) error { return c.GetStatusNetworkList(t.Context(), list) })
	wantRuntimeCode(t, err, agentapi.CodeNotAvailable)

	check.OK(t, m.del(t, list, rt))
	check.That(t, !hasLink(sandbox, "eth0"), "macvlan kept the link")
	waiting := check.Value(m.spool().List())(t)
	check.Must(t, len(waiting) == 1, "spooled %v, want one DEL for the two plugins of the chain", waiting)

	m.startAgent(t)
	check.Becomes(t, patience, "the agent carries the DEL out", func() bool { return len(m.brain.holds()) == 0 })
	check.Becomes(t, patience, "the spool is empty", func() bool {
		waiting, err := m.spool().List()
		return err == nil && len(waiting) == 0
	})
}

func TestAnADDThatIsKilledIsUndone(t *testing.T) {
	for name, kill := range map[string]func(*testing.T, *machine) error{
		// A runtime whose patience ends kills the plugin that it started.
		"macvlan, by the runtime": func(t *testing.T, m *machine) error {
			ctx, cancel := context.WithCancel(t.Context())
			failed := make(chan error, 1)
			list, rt := m.conflist(t, "1.1.0"), attach("abc", network.New(t, "pod"))
			go func() {
				failed <- m.runtime(func(c *libcni.CNIConfig) error {
					_, err := c.AddNetworkList(ctx, list, rt)
					return err
				})
			}()
			check.Receive(t, patience, "ADD at the agent", m.brain.begun)
			cancel()
			return check.Receive(t, patience, "return of the runtime", failed)
		},
		"fenceline itself": func(t *testing.T, m *machine) error {
			call := referenceCall{verb: "ADD", container: "abc", netns: network.New(t, "pod").Path(), args: podArgs}
			plugin := pluginCall(t, m.bin, pluginType, call, string(m.conf("macvlan", "1.1.0", "")))
			plugin.Env = append(plugin.Env, dirsVariable+"=/")
			check.OK(t, plugin.Start())
			check.Receive(t, patience, "ADD at the agent", m.brain.begun)
			check.OK(t, plugin.Process.Kill())
			return plugin.Wait()
		},
	} {
		t.Run(name, func(t *testing.T) {
			m := newMachine(t)
			m.brain.hold = true
			m.startAgent(t)
			check.That(t, kill(t, m) != nil, "the killed ADD succeeded")
			check.Is(t, check.Receive(t, patience, "end of the ADD at the agent", m.brain.ended), context.Canceled, "it ended by")
		})
	}
}

// wantRuntimeCode checks the code that a runtime finds in what libcni returns.
func wantRuntimeCode(t *testing.T, err error, code uint) {
	t.Helper()
	e, ok := errors.AsType[*types.Error](err)
	check.That(t, ok && e.Code == code, "got %T %v, want code %d", err, err, code)
}

// A runtime asks every few seconds, and calls the node not ready at the first error.
func TestARuntimeIsNotToldOfAnAgentThatStartsAgain(t *testing.T) {
	m := newMachine(t)
	list := m.conflist(t, "1.1.0")
	status := func(list *libcni.NetworkConfigList) error {
		return m.runtime(func(c *libcni.CNIConfig) error { return c.GetStatusNetworkList(t.Context(), list) })
	}
	check.That(t, status(list) != nil, "an agent that has never served is forgiven")
	stop := m.startAgent(t)
	check.OK(t, status(list))
	stop()
	check.Is(t, status(list), nil, "the agent is away for a moment:")
	strict := check.Value(libcni.ConfListFromBytes([]byte(strings.ReplaceAll(string(list.Bytes), `"socket"`, `"status_grace":"0s","socket"`))))(t)
	check.Says(t, status(strict), m.socket())
}
