// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"strings"

	"github.com/fenceline/fenceline/cni/agentapi"
)

// dirsVariable is the environment variable of the container runtime that lists further directories
// for "ipam.socket" and "ipam.spool", separated by colons. The author of a network configuration may
// be a tenant, who must not make the plugin write elsewhere as root. The environment is that of the
// node's administrator.
const dirsVariable = "FENCELINE_CNI_DIRS"

// checkPath returns an error unless the path of a field is absolute, and the default or inside of a
// directory: dir, or one that the node allows.
func checkPath(field, path, byDefault, dir string) error {
	if !filepath.IsAbs(path) {
		return badConfig.errorf(`%q is %q: set an absolute path, or remove it to use %s`, field, path, byDefault)
	}
	allowed := append([]string{dir}, filepath.SplitList(os.Getenv(dirsVariable))...)
	for _, dir := range allowed {
		if filepath.Clean(path) == byDefault || filepath.IsAbs(dir) && isInside(filepath.Clean(path), filepath.Clean(dir)) {
			return nil
		}
	}
	return badConfig.errorf(`%q is %q, which is outside of %s: remove it to use %s, or let the administrator of the node add the directory to %s in the environment of the container runtime`,
		field, path, strings.Join(allowed, " and "), byDefault, dirsVariable)
}

// isInside reports whether a path is below a directory. Both are clean.
func isInside(path, dir string) bool {
	return strings.HasPrefix(path, strings.TrimSuffix(dir, "/")+"/") && path != dir
}

// checkPaths checks the paths that the plugin writes to.
func (c *ipamConf) checkPaths() error {
	if err := checkPath("ipam.socket", c.Socket, agentapi.DefaultSocket, filepath.Dir(agentapi.DefaultSocket)); err != nil {
		return err
	}
	// The journal is beside the spool.
	return checkPath("ipam.spool", c.Spool, agentapi.DefaultSpool, agentapi.DefaultSpool)
}
