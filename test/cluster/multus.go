package cluster

import (
	"bytes"
	"context"
	_ "embed" // the manifest
	"encoding/json"
	"fmt"
	"path"
	"strings"

	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/fenceline/fenceline/test/thirdparty"
)

//go:embed multus.yaml
var multusManifest string

const (
	// multusAccount is the ServiceAccount of the manifest, in kube-system.
	multusAccount  = "multus"
	multusResource = "network-attachment-definitions.k8s.cni.cncf.io"

	// Paths in a node.
	cniPlugins = "/opt/cni/bin"
	cniConfigs = "/etc/cni/net.d"
)

// InstallMultus puts Multus before Fenceline, which stays the network of every
// pod's eth0; the annotation k8s.v1.cni.cncf.io/networks adds more interfaces.
// It is the thin plugin: there is no daemon. It is installed first, since it
// would not know what to delete of a pod that came before it; nodes become Ready
// with Fenceline.
func (c *Cluster) InstallMultus(ctx context.Context) error {
	c.progress("installing Multus")
	if err := c.Apply(ctx, multusManifest); err != nil {
		return fmt.Errorf("install Multus: %w", err)
	}
	if _, err := c.Kubectl(ctx, "wait", "crd/"+multusResource, "--for=condition=Established", "--timeout=30s"); err != nil {
		return fmt.Errorf("install Multus: %w", err)
	}
	access, err := c.multusKubeconfig(ctx)
	if err != nil {
		return fmt.Errorf("install Multus: %w", err)
	}
	config, err := multusConfig()
	if err != nil {
		return fmt.Errorf("install Multus: %w", err)
	}
	group, groupCtx := errgroup.WithContext(ctx)
	for _, n := range c.nodes {
		group.Go(func() error { return n.installMultus(groupCtx, access, config) })
	}
	if err := group.Wait(); err != nil {
		return fmt.Errorf("install Multus: %w", err)
	}
	return nil
}

// multusKubeconfig is how the plugin, a program of the host, reaches the API
// server.
func (c *Cluster) multusKubeconfig(ctx context.Context) ([]byte, error) {
	token, err := c.Kubectl(ctx, "create", "token", multusAccount, "--namespace=kube-system", "--duration=24h")
	if err != nil {
		return nil, err
	}
	config, err := c.RESTConfig()
	if err != nil {
		return nil, err
	}
	return clientcmd.Write(clientcmdapi.Config{
		Clusters: map[string]*clientcmdapi.Cluster{multusAccount: {
			Server: "https://" + c.APIServer().String(), CertificateAuthorityData: config.CAData,
		}},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{multusAccount: {Token: strings.TrimSpace(token)}},
		Contexts:       map[string]*clientcmdapi.Context{multusAccount: {Cluster: multusAccount, AuthInfo: multusAccount}},
		CurrentContext: multusAccount,
	})
}

// multusConfig is the first of all configurations by name, so that the runtime
// takes it. STATUS needs 1.1.0, and tells of the pod network below.
func multusConfig() ([]byte, error) {
	return json.MarshalIndent(map[string]any{
		"cniVersion": "1.1.0", "name": "multus",
		"plugins": []any{map[string]any{
			"type": "multus", "kubeconfig": multusAccess(), "clusterNetwork": path.Join(cniConfigs, fencelineConfig),
		}},
	}, "", "  ")
}

func multusAccess() string { return path.Join(cniConfigs, "multus.d", "multus.kubeconfig") }

// installMultus writes the configuration last: with it the runtime begins.
func (n *Node) installMultus(ctx context.Context, access, config []byte) error {
	if _, err := n.Exec(ctx, "install", n.cluster.binary(thirdparty.Multus, "multus"), path.Join(cniPlugins, "multus")); err != nil {
		return err
	}
	if err := n.write(ctx, multusAccess(), access); err != nil {
		return err
	}
	return n.write(ctx, path.Join(cniConfigs, "00-multus.conflist"), config)
}

// write makes a file in the node, with its directory, all at once.
func (n *Node) write(ctx context.Context, file string, content []byte) error {
	const script = `umask 077; mkdir -p "$(dirname "$1")" && cat > "$1.new" && mv "$1.new" "$1"`
	cmd := n.Command(ctx, "sh", "-c", script, "sh", file)
	cmd.Stdin = bytes.NewReader(content)
	if output, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("write %s on %s: %w: %s", file, n.Name(), err, output)
	}
	return nil
}
