// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"slices"

	"github.com/fenceline/fenceline/test/images"
	"github.com/fenceline/fenceline/test/thirdparty"
)

// Furnish gives a cluster with Fenceline all that docs/start.md requires: CoreDNS, whose pods wait
// for a pool, and the image of the examples.
func (c *Cluster) Furnish(ctx context.Context) error {
	tarball, err := images.SaveBusybox(ctx, filepath.Join(c.dir, "images"))
	if err != nil {
		return err
	}
	return errors.Join(c.Import(ctx, tarball), c.InstallDNS(ctx))
}

// Shell runs a command line of docs/start.md in the project's directory, with Tools, and returns
// what it printed.
func (c *Cluster) Shell(ctx context.Context, line string) (string, error) {
	root, err := thirdparty.Root()
	if err != nil {
		return "", err
	}
	cmd := exec.CommandContext(ctx, "bash", "-c", line)
	cmd.Dir = root
	cmd.Env = c.environment()
	output, err := cmd.CombinedOutput()
	if err != nil {
		return string(output), fmt.Errorf("%s: %w: %s", line, err, output)
	}
	return string(output), nil
}

// FirstSteps returns commands of docs/start.md. They make a pool, pods and a Service, and ask the Service.
func FirstSteps() []string {
	return []string{
		"kubectl apply --filename examples/pool.yaml",
		"kubectl wait deployment --all --all-namespaces --for=condition=Available --timeout=2m",
		"kubectl exec deployment/web -- wget -q -O - http://web/hostname",
		"kubectl fenceline map underlay",
	}
}

// Guide prints what the cluster has, and what a person can try.
func (c *Cluster) Guide(w io.Writer) error {
	_, outside, err := c.Outside()
	if err != nil {
		return err
	}
	for _, n := range c.nodes {
		fmt.Fprintf(w, "node %s        %v\n", n.Name(), addrs(c.Options.nodeAddresses(n.number)))
	}
	fmt.Fprintf(w, `outside host   %v, behind the router: go run ./test/cmd/cluster exec outside COMMAND
router         %v
images         %s, %s; the nodes reach no registry
`, outside, slices.Concat(c.Options.Gateways, c.Options.MoreGateways), images.BusyboxImage, images.AppImage)
	return nil
}
