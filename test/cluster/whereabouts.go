// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	_ "embed" // the manifest
	"path/filepath"

	"k8s.io/client-go/tools/clientcmd"

	"github.com/fenceline/fenceline/test/must"
	"github.com/fenceline/fenceline/test/thirdparty"
)

//go:embed whereabouts.yaml
var whereaboutsManifest string

// Files of the plugin whereabouts on each node. It takes nothing without its own configuration.
const (
	whereaboutsAccess = "/etc/cni/net.d/whereabouts.d/whereabouts.kubeconfig"
	whereaboutsConfig = "/etc/cni/net.d/whereabouts.d/whereabouts.conf"
)

// InstallWhereabouts puts the IPAM plugin whereabouts on each node.
func (c *Cluster) InstallWhereabouts(ctx context.Context) (err error) {
	defer must.CatchIn(&err, "install whereabouts")
	must.OK(c.Apply(ctx, whereaboutsManifest))
	for _, kind := range []string{"ippools", "overlappingrangeipreservations"} {
		must.Value(c.Kubectl(ctx, "wait", "crd/"+kind+".whereabouts.cni.cncf.io", "--for=condition=Established", "--timeout=30s"))
	}
	access := must.Value(clientcmd.Load(c.kubeconfigOf(ctx, "whereabouts")))
	for _, c := range access.Contexts {
		c.Namespace = "kube-system" // that of its records
	}
	content := must.Value(clientcmd.Write(*access))
	plugin := filepath.Join(c.thirdParty(ctx, thirdparty.Whereabouts), "whereabouts")
	return c.onEachNode(func(n *Node) (err error) {
		defer must.Catch(&err)
		must.Value(n.Exec(ctx, "install", plugin, "--target-directory="+pluginDir))
		must.OK(n.write(ctx, whereaboutsConfig, []byte(`{"datastore":"kubernetes","kubernetes":{"kubeconfig":"`+whereaboutsAccess+`"}}`)))
		return n.write(ctx, whereaboutsAccess, content)
	})
}

// RemoveWhereabouts undoes InstallWhereabouts, even if that has failed halfway. No pod may have an address of it any more.
func (c *Cluster) RemoveWhereabouts(ctx context.Context) (err error) {
	defer must.CatchIn(&err, "remove whereabouts")
	must.OK(c.onEachNode(func(n *Node) error {
		_, err := n.Exec(ctx, "rm", "--force", whereaboutsAccess, whereaboutsConfig, filepath.Join(pluginDir, "whereabouts"))
		return err
	}))
	return c.kubectlWith(ctx, whereaboutsManifest, "delete", "--filename=-", "--ignore-not-found")
}
