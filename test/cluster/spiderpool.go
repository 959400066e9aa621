// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	_ "embed" // the manifest
	"path/filepath"

	"github.com/fenceline/fenceline/test/must"
)

//go:embed spiderpool.yaml
var spiderpoolManifest string

// spiderPlugins are the plugins of Spiderpool.
var spiderPlugins = []string{filepath.Join(pluginDir, "spiderpool"), filepath.Join(pluginDir, "coordinator")}

// InstallSpiderpool puts a stand-in for the plugins of Spiderpool on each node. As theirs, it asks an agent by a socket,
// with the CNI environment in the header.
func (c *Cluster) InstallSpiderpool(ctx context.Context, socket string) (err error) {
	defer must.CatchIn(&err, "install the stand-in for Spiderpool")
	must.OK(c.Apply(ctx, spiderpoolManifest))
	for _, kind := range []string{"spiderippools", "spidersubnets", "spiderreservedips", "spiderendpoints"} {
		must.Value(c.Kubectl(ctx, "wait", "crd/"+kind+".spiderpool.spidernet.io", "--for=condition=Established", "--timeout=30s"))
	}
	script := "#!/bin/sh\nexec curl --silent --fail-with-body --max-time 30 --unix-socket " + socket + ` --data-binary @- --header "Plugin: ${0##*/}" \
  --header "Command: $CNI_COMMAND" --header "Interface: $CNI_IFNAME" --header "Arguments: $CNI_ARGS" http://agent/` + "\n"
	return c.onEachNode(func(n *Node) (err error) {
		defer must.Catch(&err)
		for _, file := range spiderPlugins {
			must.OK(n.write(ctx, file, []byte(script)))
			must.Value(n.Exec(ctx, "chmod", "755", file))
		}
		return nil
	})
}

// RemoveSpiderpool undoes InstallSpiderpool, even if that has failed halfway.
func (c *Cluster) RemoveSpiderpool(ctx context.Context) (err error) {
	defer must.CatchIn(&err, "remove the stand-in for Spiderpool")
	must.OK(c.onEachNode(func(n *Node) error {
		_, err := n.Exec(ctx, append([]string{"rm", "--force"}, spiderPlugins...)...)
		return err
	}))
	return c.kubectlWith(ctx, spiderpoolManifest, "delete", "--filename=-", "--ignore-not-found")
}
