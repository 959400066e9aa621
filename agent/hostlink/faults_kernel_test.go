// SPDX-License-Identifier: Apache-2.0

//go:build kernel

package hostlink

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/fenceline/fenceline/agent/attachment"
	"github.com/fenceline/fenceline/test/check"
	"github.com/fenceline/fenceline/test/faults"
	"github.com/fenceline/fenceline/test/network"
)

// nodeToo is a further address of the node.
var nodeToo = netip.MustParsePrefix("172.30.0.12/24")

// mostCalls bounds the system calls of one Make.
const mostCalls = 1000

// Each netlink request, each write of a setting, each change of the namespace and each call of bpf
// fails once.
func TestEachStepOfMakeFails(t *testing.T) {
	faulty := faults.Alone(t)
	if faulty == nil {
		return
	}
	r := newRig(t)
	pod, entries := r.pod("a", []string{"10.0.0.7/24", "fd00::7/64"})
	e := entries[0]
	e.Routing.OwnTable = true
	steps := 0
	for n := 1; ; n++ {
		check.Must(t, n != mostCalls, "Make does not end")
		faulty.Fail(n)
		err := r.links.Make(e)
		if !faulty.Stop() {
			check.OK(r, err)
			break
		}
		if err != nil {
			steps++
			r.wantClear(err, pod, e)
		}
		check.OK(r, r.links.Make(e))
		check.OK(r, r.links.Check(e))
		check.OK(r, r.links.Remove(e))
		check.OK(r, r.links.clear(e))
	}
	check.That(t, steps >= 40, "%d steps have failed only", steps)
	r.wantBothWays(pod)
}

// wantClear fails the test unless an error of Make names the pod and its cause, and nothing of the
// interface is left.
func (r *rig) wantClear(err error, pod *network.Namespace, e *attachment.Entry) {
	r.Helper()
	// Two libraries do not wrap their errors.
	if text := err.Error(); !strings.Contains(text, faults.ErrFault.Error()) || !strings.Contains(text, "of the node") && !strings.Contains(text, "pod default/a") {
		r.Errorf("the error does not say what has failed, and why: %v", err)
	}
	check.That(r, check.Err(r.node.Index(NodeEnd(e.Attachment()))) != nil, "after %v: the node's end is there", err)
	check.That(r, check.Err(pod.Index(PodEnd(e.Attachment()))) != nil, "after %v: the pod's end is there", err)
	own := r.link(pod, e.Interface)
	for _, rule := range check.Value(ownRules(pod.Links()))(r) {
		check.That(r, !rule.isOf(own.Attrs().Index), "after %v: rule %s is there", err, rule)
	}
	check.None(r, check.Value(ownRoutes(pod.Links(), own))(r), "after %v: routes are there:", err)
}

// After each failure the pod has a way to the outside, and eth0 answers by itself. The next Make completes
// the rest, whether the default routes of eth0 have moved or not.
func TestEachStepOfTakingTheDefaultRoutesFails(t *testing.T) {
	faulty := faults.Alone(t)
	if faulty == nil {
		return
	}
	r := newRig(t)
	steps := 0
	for n := 1; ; n++ {
		check.Must(t, n != mostCalls, "Make does not end")
		name := fmt.Sprintf("a%d", n)
		pod, e := r.besideBridge(name)
		faulty.Fail(n)
		err := r.links.Make(e)
		failed := faulty.Stop()
		if failed && err != nil {
			steps++
		}
		for _, from := range []string{"", "10.244.0.7"} {
			link, _ := leavesBy(t, pod, from, "192.0.2.9")
			check.That(t, link == "eth0" || link == "net1" && from == "", "after %v: from %q to the outside: leaves by %s", err, from, link)
		}
		check.OK(r, r.links.Make(e))
		for _, c := range []struct{ from, to, want string }{
			{"", "192.0.2.9", "net1"}, {"", "10.96.0.1", "eth0"}, {"10.244.0.7", "192.0.2.9", "eth0"}, {"10.0.0.7", "192.0.2.9", "net1"},
		} {
			link, _ := leavesBy(t, pod, c.from, c.to)
			check.Equal(t, link, c.want, "after %v and another Make: from %q to %s: leaves by", err, c.from, c.to)
		}
		check.OK(r, pod.DeleteLink("net1")) // two ipvlans of a master have no address in common
		if !failed {
			check.OK(r, err)
			break
		}
	}
	check.That(t, steps >= 10, "%d steps have failed only", steps)
}

// A repair that fails leaves a link that works as it is, and the next one completes it.
func TestEachStepOfARepairFails(t *testing.T) {
	faulty := faults.Alone(t)
	if faulty == nil {
		return
	}
	for _, c := range []struct {
		name  string
		spoil func(r *rig, pod *network.Namespace)
		// works: the pod reaches its node all the time.
		works bool
	}{
		{"nothing is wrong", func(*rig, *network.Namespace) {}, true},
		{"a new agent", func(r *rig, _ *network.Namespace) { r.links.renewed.Store(false) }, true},
		{"another address of the node", func(r *rig, _ *network.Namespace) {
			link, addr := r.link(r.node, "mgmt0"), &netlink.Addr{IPNet: ipNet(nodeToo)}
			if err := r.node.Links().AddrAdd(link, addr); errors.Is(err, unix.EEXIST) {
				check.OK(r, r.node.Links().AddrDel(link, addr))
			}
		}, true},
		{"the link is gone", func(r *rig, _ *network.Namespace) {
			check.OK(r, r.node.DeleteLink(NodeEnd(r.entries[0].Attachment())))
		}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			r, pod, e := linked(t, "10.0.0.7/24", "fd00::7/64")
			steps := 0
			for n := 1; ; n++ {
				c.spoil(r, pod)
				faulty.Fail(n)
				err := r.links.Repair()
				if !faulty.Stop() {
					check.OK(r, err)
					break
				}
				if err != nil {
					steps++
				}
				if c.works {
					r.wantAnswers(r.node, pod, nodeAddr4+":80", nodeAddr4+":80", "10.0.0.7")
					r.wantAnswers(pod, r.node, ":80", "[fd00::7]:80", nodeAddr6)
				}
				check.OK(r, r.links.Repair())
				check.OK(r, r.links.Check(e))
			}
			check.That(t, steps >= 10, "%d steps have failed only", steps)
			r.wantBothWays(pod)
		})
	}
}
