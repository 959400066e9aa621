// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os/exec"
	"strings"
	"syscall"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fenceline/fenceline/test/machine"
	"github.com/fenceline/fenceline/test/must"
	"github.com/fenceline/fenceline/test/network"
)

// PodInterface is the pod's interface on the underlay.
const PodInterface = "eth0"

// Pod is a pod as the kernel of its node runs it. It stays usable after the API server and the kubelet
// have forgotten the pod, so a test reaches a zombie in the same way.
type Pod struct {
	Namespace, Name, UID string
	// IPs are the addresses in the pod's status at the time of the look-up.
	IPs  []netip.Addr
	Node *Node
}

// Pod looks a pod up that is bound to a node.
func (c *Cluster) Pod(ctx context.Context, namespace, name string) (_ *Pod, err error) {
	defer must.CatchIn(&err, "look pod %s/%s up", namespace, name)
	object := must.Value(c.api().Pods(namespace).Get(ctx, name, metav1.GetOptions{}))
	pod := &Pod{Namespace: namespace, Name: name, UID: string(object.UID), Node: must.Value(c.NodeByName(object.Spec.NodeName))}
	for _, ip := range object.Status.PodIPs {
		pod.IPs = append(pod.IPs, must.Value(netip.ParseAddr(ip.IP)))
	}
	return pod, nil
}

// Enter opens the pod's network namespace. The caller closes it. Until then the namespace exists, even
// if the pod has ended.
func (p *Pod) Enter() (_ *network.Namespace, err error) {
	defer must.CatchIn(&err, "enter pod %s/%s", p.Namespace, p.Name)
	return network.OfProcess(must.Value(p.kernel().PIDs())[0])
}

// Command returns a command that runs in the pod's network namespace with the files of this machine,
// such as arping, ping or tcpdump.
func (p *Pod) Command(ctx context.Context, name string, args ...string) (_ *exec.Cmd, err error) {
	defer must.CatchIn(&err, "run %s in pod %s/%s", name, p.Namespace, p.Name)
	enter := []string{fmt.Sprintf("--net=/proc/%d/ns/net", must.Value(p.kernel().PIDs())[0]), "--", name}
	return exec.CommandContext(ctx, "nsenter", append(enter, args...)...), nil
}

// Exec runs a command of this machine in the pod's network namespace and
// returns its standard output. The error holds its standard error.
func (p *Pod) Exec(ctx context.Context, name string, args ...string) (_ string, err error) {
	defer must.Catch(&err)
	cmd := must.Value(p.Command(ctx, name, args...))
	var stderr strings.Builder
	cmd.Stderr = &stderr
	output, err := cmd.Output()
	if err != nil {
		err = fmt.Errorf("run %s %v in pod %s/%s: %w: %s", name, args, p.Namespace, p.Name, err, stderr.String())
	}
	return string(output), err
}

// MAC returns the hardware address of the pod's interface.
func (p *Pod) MAC() (_ net.HardwareAddr, err error) {
	defer must.Catch(&err)
	ns := must.Value(p.Enter())
	defer ns.Close()
	return ns.MAC(PodInterface)
}

// Alive reports whether the node's kernel still runs anything of the pod.
func (p *Pod) Alive() bool {
	_, err := p.kernel().PIDs()
	return err == nil
}

// Freeze stops every process of the pod with the cgroup freezer: until Thaw, not even SIGKILL ends
// them. The kernel still answers ARP and ping for the pod.
func (p *Pod) Freeze(ctx context.Context) error { return p.kernel().Freeze(ctx) }

// Thaw undoes Freeze.
func (p *Pod) Thaw(ctx context.Context) error { return p.kernel().Thaw(ctx) }

// StopShim stops the pod's containerd-shim, so that containerd cannot end the pod's containers.
func (p *Pod) StopShim() error { return p.signalShim(syscall.SIGSTOP) }

// ContinueShim undoes StopShim.
func (p *Pod) ContinueShim() error { return p.signalShim(syscall.SIGCONT) }

func (p *Pod) signalShim(sig syscall.Signal) (err error) {
	defer must.Catch(&err)
	shims := must.Value(p.kernel().Shims())
	must.That(len(shims) != 0, "signal the shim of pod %s/%s: there is none", p.Namespace, p.Name)
	for _, shim := range shims {
		must.OK(shim.Signal(sig))
	}
	return nil
}

func (p *Pod) kernel() machine.Pod { return p.Node.Machine.Pod(p.UID) }
