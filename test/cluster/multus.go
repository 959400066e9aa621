// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"bytes"
	"context"
	_ "embed" // the manifest
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"k8s.io/client-go/rest"

	"github.com/fenceline/fenceline/test/await"
	"github.com/fenceline/fenceline/test/controlplane"
	"github.com/fenceline/fenceline/test/images"
	"github.com/fenceline/fenceline/test/must"
	"github.com/fenceline/fenceline/test/thirdparty"
)

//go:embed multus.yaml
var multusManifest string

//go:embed multus-thick.yaml
var thickManifest string

const (
	// multusAccount is the ServiceAccount of the manifest, in kube-system.
	multusAccount  = "multus"
	multusResource = "network-attachment-definitions.k8s.cni.cncf.io"

	// Paths in a node. The configuration of Multus is the first by name, so the runtime takes it. The
	// routed network's is the second, so the daemon takes it.
	pluginDir     = "/opt/cni/bin"
	multusAccess  = "/etc/cni/net.d/multus.d/multus.kubeconfig"
	multusConfig  = "/etc/cni/net.d/00-multus.conflist"
	thickConfig   = "/etc/cni/net.d/00-multus.conf" // as the daemon calls it
	multusLog     = "/var/log/multus.log"
	routedFile    = "/etc/cni/net.d/10-routed.conf"
	fencelineFile = "/etc/cni/net.d/90-fenceline.conflist" // as the chart calls it

	// statusLimit is longer than the five seconds between two STATUS requests of the kubelet.
	statusLimit = 2 * time.Minute
)

// Multus selects how Multus is installed. The zero value is the thin plugin, with Fenceline as the
// network of every pod's eth0.
type Multus struct {
	// Thick: the plugin only calls a daemon on its node, which does the work.
	Thick bool
	// Routed: eth0 belongs to the routed network, not to Fenceline.
	Routed bool
}

// InstallMultus puts Multus before the network of every pod's eth0; the annotation k8s.v1.cni.cncf.io/networks adds
// more interfaces. No pod may have an interface of its own yet, since Multus could not delete it.
func (c *Cluster) InstallMultus(ctx context.Context, m Multus) (err error) {
	defer must.CatchIn(&err, "install Multus")
	must.OK(c.Apply(ctx, multusManifest))
	must.Value(c.Kubectl(ctx, "wait", "crd/"+multusResource, "--for=condition=Established", "--timeout=30s"))
	if m.Routed {
		must.OK(c.onEachNode(func(n *Node) error { return n.write(ctx, routedFile, routedConfig(n.number)) }))
	}
	if m.Thick {
		return c.installThick(ctx)
	}
	return c.installThin(ctx, m)
}

// installThin returns when the runtime of each node uses the plugin.
func (c *Cluster) installThin(ctx context.Context, m Multus) error {
	binaries, access := c.thirdParty(ctx, thirdparty.Multus), c.kubeconfigOf(ctx, multusAccount)
	network := fencelineFile
	if m.Routed {
		network = routedFile
	}
	config := multusConflist(network)
	return c.onEachNode(func(n *Node) error {
		return n.installMultus(ctx, filepath.Join(binaries, "multus"), access, config)
	})
}

// installThick returns when the daemon of each node has written the runtime's configuration, which the runtime
// notices at once. The network whose file is the first by name serves eth0. The configuration has the default
// version, 0.3.1: with 1.1.0, the runtime asks for STATUS, which fails (4.2.3).
func (c *Cluster) installThick(ctx context.Context) error {
	binaries := c.thirdParty(ctx, thirdparty.Multus)
	tarball := must.Value(images.MultusDaemon(binaries).Build(ctx, filepath.Join(c.dir, "images")))
	must.OK(c.onEachNode(func(n *Node) error {
		_, err := n.Exec(ctx, "install", "-D", filepath.Join(binaries, "multus-shim"), "--target-directory="+pluginDir)
		return errors.Join(err, n.Import(ctx, tarball))
	}))
	must.OK(c.Apply(ctx, thickObjects()))
	return c.onEachNode(func(n *Node) error { return n.waitForMultus(ctx, "started to watch file") })
}

func thickObjects() string { return fmt.Sprintf(thickManifest, images.MultusDaemonImage, multusLog) }

// RemoveMultus undoes InstallMultus, even if that has failed halfway, and returns when the daemons
// have ended. No pod may have an interface of Multus any more.
func (c *Cluster) RemoveMultus(ctx context.Context) (err error) {
	defer must.CatchIn(&err, "remove Multus")
	return errors.Join(
		c.kubectlWith(ctx, thickObjects(), "delete", "--filename=-", "--ignore-not-found", "--cascade=foreground"),
		c.onEachNode(func(n *Node) error {
			_, err := n.Exec(ctx, "rm", "--force", multusConfig, thickConfig, routedFile, multusAccess, multusLog,
				filepath.Join(pluginDir, "multus"), filepath.Join(pluginDir, "multus-shim"))
			return err
		}),
		c.kubectlWith(ctx, multusManifest, "delete", "--filename=-", "--ignore-not-found"),
	)
}

// kubeconfigOf returns the access of a plugin, a program of the host, to the API server, with the rights of a
// ServiceAccount of kube-system.
func (c *Cluster) kubeconfigOf(ctx context.Context, account string) []byte {
	token := must.Value(c.Kubectl(ctx, "create", "token", account, "--namespace=kube-system", "--duration=24h"))
	access := rest.AnonymousClientConfig(must.Value(c.RESTConfig()))
	access.Host, access.BearerToken = "https://"+c.APIServer().String(), strings.TrimSpace(token)
	return must.Value(controlplane.Kubeconfig(access))
}

// SetClusterNetwork makes a network serve eth0 of every new pod of a node, in place of Fenceline's
// file. network is a NetworkAttachmentDefinition of namespace kube-system.
func (c *Cluster) SetClusterNetwork(ctx context.Context, n *Node, network string) (err error) {
	defer must.Catch(&err)
	must.OK(n.write(ctx, multusConfig, multusConflist(network)))
	return n.waitForMultus(ctx, "getNetDelegate: .*, "+network+", ")
}

// multusConflist has version 1.1.0, with which the runtime asks for STATUS.
func multusConflist(clusterNetwork string) []byte {
	return must.Value(json.MarshalIndent(map[string]any{
		"cniVersion": "1.1.0", "name": "multus",
		"plugins": []any{map[string]any{
			"type": "multus", "kubeconfig": multusAccess, "clusterNetwork": clusterNetwork,
			"logFile": multusLog, "logLevel": "debug", "logToStderr": false,
		}},
	}, "", "  "))
}

// installMultus returns when the runtime uses the plugin: it has asked for its STATUS.
func (n *Node) installMultus(ctx context.Context, plugin string, access, config []byte) (err error) {
	defer must.Catch(&err)
	must.Value(n.Exec(ctx, "install", plugin, "--target-directory="+pluginDir))
	must.OK(n.write(ctx, multusAccess, access))
	must.OK(n.write(ctx, multusConfig, config))
	return n.waitForMultus(ctx, "CmdStatus")
}

// waitForMultus returns when the log of the plugin has a line that matches.
func (n *Node) waitForMultus(ctx context.Context, line string) error {
	what := "the runtime of " + n.Name() + " to use Multus"
	return await.Until(ctx, statusLimit, what, func(ctx context.Context) error {
		_, err := n.Exec(ctx, "grep", "--quiet", line, multusLog)
		return err
	})
}

// write makes a file in the node atomically, and its directory.
func (n *Node) write(ctx context.Context, file string, content []byte) error {
	const script = `umask 077; mkdir -p "$(dirname "$1")" && cat > "$1.new" && mv "$1.new" "$1"`
	cmd := n.Command(ctx, "sh", "-c", script, "sh", file)
	cmd.Stdin = bytes.NewReader(content)
	if output, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("write %s on %s: %w: %s", file, n.Name(), err, output)
	}
	return nil
}
