// SPDX-License-Identifier: Apache-2.0

package namespaces

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"strconv"

	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/cni/pkg/types"
	current "github.com/containernetworking/cni/pkg/types/100"

	"github.com/fenceline/fenceline/test/network"
)

// PodInterface is the interface that CNI makes in a pod.
const PodInterface = "eth0"

// Pod is a network namespace that a node's CNI plugins have configured.
type Pod struct {
	*network.Namespace
	Node        *Node
	ContainerID string
	IPs         []netip.Addr
	MAC         net.HardwareAddr

	config *libcni.NetworkConfigList
	args   *libcni.RuntimeConf
}

// UsePlugins adds a directory in which plugins are looked for, before that of
// the reference plugins.
func (r *Rig) UsePlugins(dir string) { r.plugins = append([]string{dir}, r.plugins...) }

// CNI runs fn on a thread in the node's network namespace with a runtime whose
// plugins run there, too.
func (n *Node) CNI(fn func(*libcni.CNIConfig) error) error {
	return n.Do(func() error {
		return fn(libcni.NewCNIConfigWithCacheDir(n.rig.plugins, n.rig.cache, nil))
	})
}

// AddPod makes a pod: an ADD of the configuration list, with the CNI_ARGS given
// as pairs. The pod's namespace ends with the test, without a DEL.
func (n *Node) AddPod(ctx context.Context, conflist string, args ...[2]string) (*Pod, error) {
	config, err := libcni.ConfListFromBytes([]byte(conflist))
	if err != nil {
		return nil, fmt.Errorf("add a pod to %s: %w", n.name, err)
	}
	name := n.name + "-p" + strconv.Itoa(int(n.rig.made.Add(1)))
	p := &Pod{Namespace: network.New(n.rig.t, name), Node: n, config: config}
	p.ContainerID = p.Name // which no other rig of this process has
	p.args = &libcni.RuntimeConf{ContainerID: p.ContainerID, NetNS: p.Path(), IfName: PodInterface, Args: args}
	return p, p.Add(ctx)
}

// Add sends ADD again, as a runtime that has lost the first answer, and reads the addresses from the
// result.
func (p *Pod) Add(ctx context.Context) error {
	err := p.Node.CNI(func(cni *libcni.CNIConfig) error {
		result, err := cni.AddNetworkList(ctx, p.config, p.args)
		if err != nil {
			return err
		}
		return p.take(result)
	})
	if err != nil {
		return fmt.Errorf("add pod %s: %w", p.Name, err)
	}
	return nil
}

func (p *Pod) take(answer types.Result) error {
	result, err := current.NewResultFromResult(answer)
	if err != nil {
		return err
	}
	p.IPs = nil
	for _, ip := range result.IPs {
		addr, ok := netip.AddrFromSlice(ip.Address.IP)
		if !ok {
			return fmt.Errorf("result with address %v", ip.Address)
		}
		p.IPs = append(p.IPs, addr.Unmap())
	}
	p.MAC, err = p.Namespace.MAC(PodInterface)
	return err
}

// Del sends DEL. The namespace stays.
func (p *Pod) Del(ctx context.Context) error {
	err := p.Node.CNI(func(cni *libcni.CNIConfig) error { return cni.DelNetworkList(ctx, p.config, p.args) })
	if err != nil {
		return fmt.Errorf("delete pod %s: %w", p.Name, err)
	}
	return nil
}

// Check sends CHECK.
func (p *Pod) Check(ctx context.Context) error {
	err := p.Node.CNI(func(cni *libcni.CNIConfig) error { return cni.CheckNetworkList(ctx, p.config, p.args) })
	if err != nil {
		return fmt.Errorf("check pod %s: %w", p.Name, err)
	}
	return nil
}
