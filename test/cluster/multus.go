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

	// Paths in a node. The configuration is the first of all by name, so that the
	// runtime takes it.
	multusPlugin  = "/opt/cni/bin/multus"
	multusAccess  = "/etc/cni/net.d/multus.d/multus.kubeconfig"
	multusConfig  = "/etc/cni/net.d/00-multus.conflist"
	multusLog     = "/var/log/multus.log"
	fencelineFile = "/etc/cni/net.d/90-fenceline.conflist" // as the chart calls it

	// statusLimit is more than the five seconds between two questions of kubelet
	// for the state of the network.
	statusLimit = time.Minute
)

// InstallMultus puts Multus before Fenceline, which stays the network of every
// pod's eth0; the annotation k8s.v1.cni.cncf.io/networks adds more interfaces.
// It is the thin plugin: there is no daemon. There must be no pod with an
// interface of its own yet, of which Multus would not know what to delete.
func (c *Cluster) InstallMultus(ctx context.Context) (err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("install Multus: %w", err)
		}
	}()
	builder, err := thirdparty.NewBuilder(c.Options.Progress)
	if err != nil {
		return err
	}
	binaries, err := builder.Dir(ctx, thirdparty.Multus)
	if err != nil {
		return err
	}
	if err := c.Apply(ctx, multusManifest); err != nil {
		return err
	}
	if _, err := c.Kubectl(ctx, "wait", "crd/"+multusResource, "--for=condition=Established", "--timeout=30s"); err != nil {
		return err
	}
	access, err := c.multusKubeconfig(ctx)
	if err != nil {
		return err
	}
	config, err := multusConflist(fencelineFile)
	if err != nil {
		return err
	}
	group, groupCtx := errgroup.WithContext(ctx)
	for _, n := range c.nodes {
		group.Go(func() error { return n.installMultus(groupCtx, filepath.Join(binaries, "multus"), access, config) })
	}
	return group.Wait()
}

// RemoveMultus undoes InstallMultus, as far as that has come. Pods must have no
// interfaces of Multus any more.
func (c *Cluster) RemoveMultus(ctx context.Context) error {
	var errs []error
	for _, n := range c.nodes {
		_, err := n.Exec(ctx, "rm", "--force", multusConfig, multusAccess, multusPlugin, multusLog)
		errs = append(errs, err)
	}
	errs = append(errs, c.kubectlWith(ctx, multusManifest, "delete", "--filename=-", "--ignore-not-found"))
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("remove Multus: %w", err)
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

// SetClusterNetwork makes a network the one of every new pod's eth0 on a node, in place of
// Fenceline's file. network is a NetworkAttachmentDefinition of namespace kube-system.
func (c *Cluster) SetClusterNetwork(ctx context.Context, n *Node, network string) error {
	config, err := multusConflist(network)
	if err != nil {
		return err
	}
	if err := n.write(ctx, multusConfig, config); err != nil {
		return err
	}
	return n.waitForMultus(ctx, "getNetDelegate: .*, "+network+", ")
}

// multusConflist has version 1.1.0, with which the runtime asks for STATUS.
func multusConflist(clusterNetwork string) ([]byte, error) {
	return json.MarshalIndent(map[string]any{
		"cniVersion": "1.1.0", "name": "multus",
		"plugins": []any{map[string]any{
			"type": "multus", "kubeconfig": multusAccess, "clusterNetwork": clusterNetwork,
			"logFile": multusLog, "logLevel": "debug", "logToStderr": false,
		}},
	}, "", "  ")
}

// installMultus returns when the runtime uses the plugin: it has asked for its
// STATUS.
func (n *Node) installMultus(ctx context.Context, plugin string, access, config []byte) error {
	if _, err := n.Exec(ctx, "install", plugin, multusPlugin); err != nil {
		return err
	}
	if err := n.write(ctx, multusAccess, access); err != nil {
		return err
	}
	if err := n.write(ctx, multusConfig, config); err != nil {
		return err
	}
	return n.waitForMultus(ctx, "CmdStatus")
}

// waitForMultus returns when the log of the plugin has a line that matches.
func (n *Node) waitForMultus(ctx context.Context, line string) error {
	ctx, cancel := context.WithTimeout(ctx, statusLimit)
	defer cancel()
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for {
		_, err := n.Exec(ctx, "grep", "--quiet", line, multusLog)
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for the runtime of %s to use Multus: %w", n.Name(), err)
		case <-tick.C:
		}
	}
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
