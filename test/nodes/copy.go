// SPDX-License-Identifier: Apache-2.0

package nodes

import (
	"context"
	"os"
	"path/filepath"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fenceline/fenceline/test/check"
	"github.com/fenceline/fenceline/test/controlplane"
)

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
	c.check(n.api.writeKubeconfig(n.kubeconfig()))
	c.check(n.StartAgent())
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
