// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"os"
	"path/filepath"

	"github.com/fenceline/fenceline/test/images"
	"github.com/fenceline/fenceline/test/must"
	"github.com/fenceline/fenceline/test/programs"
	"github.com/fenceline/fenceline/test/thirdparty"
)

// FencelineNamespace is the namespace that Fenceline is installed in.
const FencelineNamespace = "fenceline-system"

// InstallFenceline builds Fenceline's images and `kubectl fenceline`, imports the images on every node, and
// installs or upgrades the chart as its README says. Values are arguments of helm's --set.
func (c *Cluster) InstallFenceline(ctx context.Context, version string, values ...string) (err error) {
	defer must.Catch(&err)
	for _, recipe := range images.Product(version) {
		c.progress("building %s", recipe.Name)
		tarball := must.Value(recipe.Build(ctx, filepath.Join(c.dir, "images")))
		must.OK(c.Import(ctx, tarball))
	}
	c.progress("building kubectl fenceline")
	must.OK(os.MkdirAll(c.commandDir(), 0o755))
	must.OK(programs.Build(ctx, "cli", filepath.Join(c.commandDir(), "kubectl-fenceline")))
	return c.InstallChart(ctx, version, values...)
}

// RetagFenceline upgrades Fenceline to another version of the same images, in seconds: it builds
// nothing. The images of images.DefaultVersion must be on the nodes.
func (c *Cluster) RetagFenceline(ctx context.Context, version string, values ...string) error {
	retagged := images.Product(version)
	for i, recipe := range images.Product(images.DefaultVersion) {
		if err := c.onEachNode(func(n *Node) error { return n.Tag(ctx, recipe.Name, retagged[i].Name) }); err != nil {
			return err
		}
	}
	return c.InstallChart(ctx, version, values...)
}

// InstallChart installs or upgrades the chart. The images of that version must be on the nodes.
func (c *Cluster) InstallChart(ctx context.Context, version string, values ...string) error {
	root, err := thirdparty.Root()
	if err != nil {
		return err
	}
	c.progress("installing the chart")
	args := []string{
		"upgrade", "--install", "fenceline", filepath.Join(root, "charts", "fenceline"),
		"--namespace", FencelineNamespace, "--create-namespace", "--wait", "--timeout", "3m",
	}
	if version != images.DefaultVersion {
		values = append(values, "image.tag="+version)
	}
	for _, v := range values {
		args = append(args, "--set", v)
	}
	_, err = c.Helm(ctx, args...)
	return err
}
