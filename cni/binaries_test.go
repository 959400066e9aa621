// SPDX-License-Identifier: Apache-2.0

//go:build kernel || bench

package main

import (
	"flag"
	"os"
	"path/filepath"
	"testing"

	"github.com/fenceline/fenceline/test/check"
	"github.com/fenceline/fenceline/test/programs"
	"github.com/fenceline/fenceline/test/thirdparty"
)

// pluginsFlag names a directory with the plugins, for a machine that cannot build them.
var pluginsFlag = flag.String("plugins", "", "directory with the plugin and the reference plugins; they are built if it is not set")

// binaries returns a directory with the plugin, built as it is shipped, and
// the reference plugins beside it.
func binaries(t testing.TB) string {
	t.Helper()
	if *pluginsFlag != "" {
		return *pluginsFlag
	}
	builder := check.Value(thirdparty.NewBuilder(t.Output()))(t)
	reference := check.Value(builder.Dir(t.Context(), thirdparty.CNIPlugins))(t)
	dir := t.TempDir()
	for _, name := range []string{"macvlan", "bridge", "ptp", "tap", "host-device", "host-local"} {
		check.OK(t, os.Symlink(filepath.Join(reference, name), filepath.Join(dir, name)))
	}
	check.OK(t, programs.Build(t.Context(), "cni", filepath.Join(dir, pluginType)))
	return dir
}
