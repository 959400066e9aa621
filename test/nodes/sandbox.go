// SPDX-License-Identifier: Apache-2.0

package nodes

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"time"

	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/cni/pkg/types"
	current "github.com/containernetworking/cni/pkg/types/100"
	"github.com/vishvananda/netlink"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fenceline/fenceline/test/must"
	"github.com/fenceline/fenceline/test/namespaces"
	"github.com/fenceline/fenceline/test/network"
)

// NewPod makes a pod on a node, without any sandbox. Change may be nil.
func (n *Node) NewPod(ctx context.Context, name string, change func(*corev1.Pod)) (*corev1.Pod, error) {
	pod := podOn(n.Name, name)
	if change != nil {
		change(pod)
	}
	if err := n.cluster.Create(ctx, pod); err != nil {
		return nil, fmt.Errorf("make pod %s: %w", name, err)
	}
	return pod, nil
}

// NodeOf returns the node of a pod.
func (c *Cluster) NodeOf(pod *corev1.Pod) *Node {
	for _, n := range c.Nodes {
		if n.Name == pod.Spec.NodeName {
			return n
		}
	}
	return nil
}

func podOn(node, name string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: Shop, Name: name}, Spec: corev1.PodSpec{
		NodeName: node, Containers: []corev1.Container{{Name: "c", Image: "none"}},
		// The DEL of a pod that is never restarted frees its address while the pod object lives.
		RestartPolicy: corev1.RestartPolicyNever,
	}}
}

// ForgetPod deletes a pod at once, as a kubelet does at its end, or a person by force.
func (c *Cluster) ForgetPod(ctx context.Context, pod *corev1.Pod) error {
	err := c.Delete(ctx, pod.DeepCopy(), client.GracePeriodSeconds(0), client.Preconditions{UID: &pod.UID})
	return client.IgnoreNotFound(err)
}

// Sandbox is the network namespace of a pod on a node.
type Sandbox struct {
	*network.Namespace
	ContainerID string
	Pod         *corev1.Pod
	// Addr and MAC are the result of the successful ADD. The address is the sandbox's from Since until
	// it is given up or may be taken.
	Addr         netip.Addr
	MAC          net.HardwareAddr
	Since, Until time.Time
	// UserDriven: a program of the pod drives its device, so ADD makes no interface.
	UserDriven bool
	// Dual: the sandbox gets an address of each family. Addr is the first one.
	Dual bool

	node    *Node
	config  *libcni.NetworkConfigList
	alone   *libcni.PluginConfig // in place of config, if it is no list
	args    *libcni.RuntimeConf
	removed bool
}

// networkConfig is the configuration of the node's pods.
func (n *Node) networkConfig() []byte {
	plugin := cmp.Or(n.Plugin, fmt.Sprintf(`"type":"macvlan","master":%q,"mode":"bridge"`, namespaces.Parent))
	return fmt.Appendf(nil, `{"cniVersion":"1.0.0","name":"underlay","plugins":[{%s,"ipam":%s}]}`, plugin, n.IPAM())
}

// IPAM is the configuration of the plugin on the node, as the IPAM of another plugin.
func (n *Node) IPAM() string { return `{"type":"fenceline",` + n.paths() + `}` }

// Chained is its configuration behind another plugin.
func (n *Node) Chained() string { return `{"type":"fenceline","ipam":{` + n.paths() + `}}` }

func (n *Node) paths() string { return fmt.Sprintf(`"socket":%q,"spool":%q`, n.socket(), n.spool()) }

// NewSandbox makes an empty sandbox for a pod.
func (n *Node) NewSandbox(pod *corev1.Pod) (*Sandbox, error) {
	if n.Make != nil {
		return n.Make(pod)
	}
	return n.NewSandboxOf(pod, n.networkConfig(), nil)
}

// NewSandboxOf makes an empty sandbox for a pod of a network. Plugins with these capabilities get
// their values from the runtime. If the configuration is no list, libcni calls its plugin alone.
func (n *Node) NewSandboxOf(pod *corev1.Pod, list []byte, capabilities map[string]any) (_ *Sandbox, err error) {
	defer must.Catch(&err)
	c := n.cluster
	c.mu.Lock()
	c.made++
	name := fmt.Sprintf("%s-sandbox-%d", n.Namespace.Name, c.made)
	c.mu.Unlock()
	config := must.Value(libcni.ConfListFromBytes(list))
	ns := must.Value(network.Create(name))
	s := &Sandbox{Namespace: ns, ContainerID: name, Pod: pod, node: n, config: config}
	if len(config.Plugins) == 0 {
		if s.alone, err = libcni.NetworkPluginConfFromBytes(list); err != nil {
			return nil, errors.Join(err, ns.Delete())
		}
	}
	s.args = &libcni.RuntimeConf{ContainerID: name, NetNS: ns.Path(), IfName: namespaces.PodInterface, CapabilityArgs: capabilities, Args: [][2]string{
		{"IgnoreUnknown", "1"}, {"K8S_POD_NAMESPACE", pod.Namespace}, {"K8S_POD_NAME", pod.Name}, {"K8S_POD_UID", string(pod.UID)},
	}}
	c.t.Cleanup(func() { c.check(s.Remove()) })
	return s, nil
}

// Second is another interface of the same sandbox, by the same network configuration. The sandbox that
// made the network namespace removes it.
func (s *Sandbox) Second(name string) *Sandbox { return s.second(name, s.config) }

// SecondOf is Second by another network configuration.
func (s *Sandbox) SecondOf(name string, list []byte) (*Sandbox, error) {
	config, err := libcni.ConfListFromBytes(list)
	if err != nil {
		return nil, err
	}
	return s.second(name, config), nil
}

func (s *Sandbox) second(name string, config *libcni.NetworkConfigList) *Sandbox {
	args := *s.args
	args.IfName = name
	return &Sandbox{Namespace: s.Namespace, ContainerID: s.ContainerID, Pod: s.Pod, node: s.node, config: config, args: &args, removed: true}
}

// Attachment names the sandbox and the interface.
func (s *Sandbox) Attachment() string { return s.ContainerID + "/" + s.args.IfName }

// Node is where the sandbox is.
func (s *Sandbox) Node() *Node { return s.node }

// Add sends ADD.
func (s *Sandbox) Add(ctx context.Context) (err error) {
	defer must.Catch(&err)
	must.Done(s.node.CNI(func(cni *libcni.CNIConfig) error {
		var answer types.Result
		var err error
		if s.alone != nil {
			answer, err = cni.AddNetwork(ctx, s.alone, s.args)
		} else {
			answer, err = cni.AddNetworkList(ctx, s.config, s.args)
		}
		if err != nil {
			return err
		}
		result, err := current.NewResultFromResult(answer)
		if err != nil {
			return err
		}
		if len(result.IPs) != 1 && !(s.Dual && len(result.IPs) == 2) {
			return fmt.Errorf("result with addresses %v", result.IPs)
		}
		addr, _ := netip.AddrFromSlice(result.IPs[0].Address.IP)
		s.Addr = addr.Unmap()
		return nil
	}), "add %s", s.ContainerID)
	if !s.UserDriven {
		s.MAC = must.Value(s.Namespace.MAC(s.args.IfName))
	}
	c := s.node.cluster
	c.mu.Lock()
	defer c.mu.Unlock()
	c.living[s], s.Since = true, time.Now()
	c.had = append(c.had, s)
	return nil
}

// Abandon records that the sandbox has lost the right to its address, although it may run on.
func (s *Sandbox) Abandon() {
	c := s.node.cluster
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.living[s] {
		s.Until = time.Now()
	}
	delete(c.living, s)
}

// Outlive deletes the pod by force, as somebody does whose node is lost. The sandbox runs on.
func (s *Sandbox) Outlive(ctx context.Context) error {
	defer s.Abandon()
	return s.node.cluster.ForgetPod(ctx, s.Pod)
}

// Del sends DEL.
func (s *Sandbox) Del(ctx context.Context) error {
	s.Abandon()
	err := s.node.CNI(func(cni *libcni.CNIConfig) error {
		if s.alone != nil {
			return cni.DelNetwork(ctx, s.alone, s.args)
		}
		return cni.DelNetworkList(ctx, s.config, s.args)
	})
	if err != nil {
		return fmt.Errorf("delete %s: %w", s.ContainerID, err)
	}
	return nil
}

// Lives reports whether an ADD has succeeded and no DEL has begun.
func (s *Sandbox) Lives() bool {
	c := s.node.cluster
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.living[s]
}

// Guarded reports whether a guard enforces on the sandbox's interface, by its first filters or its
// pinned links.
func (s *Sandbox) Guarded() (_ bool, err error) {
	defer must.Catch(&err)
	links := s.Links()
	link, err := links.LinkByName(s.args.IfName)
	must.Done(err, "look for the interface of %s", s.ContainerID)
	filters, err := links.FilterList(link, netlink.HANDLE_MIN_EGRESS)
	if err != nil || len(filters) > 0 {
		return len(filters) > 0, err
	}
	entries := must.Value(s.node.Entries())
	guards, err := s.node.Guards()
	return slices.Contains(guards, strconv.Itoa(int(entries[s.Attachment()].Slot))), err
}

// End ends a sandbox as a kubelet does: it sends DEL until that succeeds, and then removes the
// network namespace.
func (s *Sandbox) End(ctx context.Context) error {
	for {
		err := s.Del(ctx)
		if err == nil {
			return s.Remove()
		}
		if !pause(ctx) {
			return fmt.Errorf("end %s: %w", s.ContainerID, err)
		}
	}
}

// Finish ends a sandbox and its pod.
func (s *Sandbox) Finish(ctx context.Context) error {
	return errors.Join(s.End(ctx), s.node.cluster.ForgetPod(ctx, s.Pod))
}

// Remove removes the network namespace, also without a DEL.
func (s *Sandbox) Remove() error {
	if s.removed {
		return nil
	}
	s.removed = true
	s.Abandon()
	return s.Namespace.Delete()
}

// Begin starts a pod as a kubelet does: it makes a sandbox and sends ADD. If that fails, it tries
// again with a new sandbox until ctx ends.
func (n *Node) Begin(ctx context.Context, pod *corev1.Pod) (*Sandbox, error) {
	for {
		s, err := n.NewSandbox(pod)
		if err != nil {
			return nil, err
		}
		if err = s.Add(ctx); err == nil {
			return s, nil
		}
		if ended := s.End(ctx); ended != nil || !pause(ctx) {
			return nil, errors.Join(err, ended, s.Remove())
		}
	}
}

// pause waits as a kubelet does before it tries again, but shorter. It reports whether there is time
// for another try.
func pause(ctx context.Context) bool {
	t := time.NewTimer(50 * time.Millisecond)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}
