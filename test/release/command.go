// SPDX-License-Identifier: Apache-2.0

package release

import (
	"cmp"
	"context"
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"

	"sigs.k8s.io/yaml"

	"github.com/fenceline/fenceline/test/must"
)

// commands builds kubectl fenceline, an archive for each system, and the document about all of them.
func (r *release) commands(ctx context.Context) {
	dir := must.Value(os.MkdirTemp("", "fenceline-command-"))
	defer os.RemoveAll(dir)
	built := map[string][]byte{}
	for _, system := range []string{"linux", "darwin", "windows"} {
		for _, arch := range r.arches {
			fmt.Fprintf(r.Progress, "building kubectl-fenceline %s/%s\n", system, arch)
			file := filepath.Join(dir, system+"-"+arch)
			must.OK(r.target(system, arch).Build(ctx, "cli", file))
			built[system+" "+arch] = must.Value(os.ReadFile(file))
		}
	}
	r.command(built)
}

// command makes the archives of built commands, whose keys are "linux amd64", and the manifest of krew.
func (r *release) command(built map[string][]byte) {
	var platforms []any
	programs := map[string][]byte{}
	for _, system := range []string{"linux", "darwin", "windows"} {
		for _, arch := range r.arches {
			name, data := "kubectl-fenceline", built[system+" "+arch]
			programs[name+" "+system+"/"+arch] = data
			file := fmt.Sprintf("%s-%s-%s-%s.tar.gz", name, r.Version, system, arch)
			if system == "windows" {
				name += ".exe"
			}
			archive := compressed(r.pack("", map[string][]byte{name: data, "LICENSE": r.read("LICENSE")}, name))
			r.files[file] = archive
			platforms = append(platforms, map[string]any{
				"selector": map[string]any{"matchLabels": map[string]string{"os": system, "arch": arch}},
				"uri":      cmp.Or(r.Downloads, home+"/releases/download/v"+r.Version) + "/" + file, "sha256": fmt.Sprintf("%x", sha256.Sum256(archive)), "bin": name,
			})
		}
	}
	r.files["kubectl-fenceline-"+r.Version+".spdx.json"] = r.sbom("kubectl-fenceline", "pkg:golang/github.com/fenceline/fenceline/cli@v"+r.Version, programs)
	r.files["fenceline-krew.yaml"] = must.Value(yaml.Marshal(map[string]any{
		"apiVersion": "krew.googlecontainertools.github.com/v1alpha2", "kind": "Plugin", "metadata": map[string]string{"name": "fenceline"},
		"spec": map[string]any{
			"version": "v" + r.Version, "homepage": home, "platforms": platforms,
			"shortDescription": "Explain addresses of pods on an underlay network",
			"description":      "Shows pools and addresses of Fenceline, and explains who has an address and why.",
		},
	}))
}
