// SPDX-License-Identifier: Apache-2.0

//go:build kernel

package segment

import (
	"testing"

	"github.com/fenceline/fenceline/test/check"
	"github.com/fenceline/fenceline/test/network"
)

// The launcher of a virtual machine renames the pod's veth, and gives its name to another interface.
func TestAVethIsOpenedByItsOtherEnd(t *testing.T) {
	pod, node := network.New(t, "pod"), network.New(t, "node")
	check.OK(t, pod.AddPair("eth0", node, "veth1"))
	links := pod.Links()
	check.OK(t, links.LinkSetName(check.Value(links.LinkByName("eth0"))(t), "eth0-nic"))
	end := check.Value(node.Index("veth1"))(t)
	opens := func(when string) {
		t.Helper()
		p := check.Value(OpenPort(pod.Path(), "eth0", end))(t)
		check.Equal(t, p.index, check.Value(pod.Index("eth0-nic"))(t), "%s, the interface is", when)
		check.OK(t, p.Close())
	}
	opens("without the name")
	check.OK(t, pod.AddBridge("eth0"))
	opens("with another of the name")
	_, err := OpenPort(pod.Path(), "eth0", end+1000)
	check.That(t, err != nil, "a veth without this end is opened")
	check.OK(t, pod.AddPair("in0", pod, "in1"))
	_, err = OpenPort(pod.Path(), "in0", check.Value(pod.Index("in1"))(t))
	check.That(t, err != nil, "a veth whose other end is in the pod is opened")
}
