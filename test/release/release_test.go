// SPDX-License-Identifier: Apache-2.0

package release

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/validate"
	"sigs.k8s.io/yaml"

	"github.com/fenceline/fenceline/test/check"
	"github.com/fenceline/fenceline/test/images"
	"github.com/fenceline/fenceline/test/must"
	"github.com/fenceline/fenceline/test/programs"
	"github.com/fenceline/fenceline/test/thirdparty"
)

const version = "1.2.3"

// example returns a release without a build, whose images are links to target.
func example(t *testing.T, registry, target string) (*release, []artifact) {
	t.Helper()
	r := &release{
		Options: Options{Version: version, Registry: registry, Out: filepath.Join(t.TempDir(), "dist"), Downloads: "https://downloads.example/v1.2.3", Progress: io.Discard},
		root:    check.Value(thirdparty.Root())(t), arches: []string{"amd64", "arm64"}, commit: strings.Repeat("c", 40), time: time.Unix(1.7e9, 0).UTC(), files: map[string][]byte{},
		notes: "New: [pools](docs/pools.md#conditions), [a site](https://example.com/a).\n",
	}
	var made []artifact
	check.OK(t, must.Try(func() {
		for _, recipe := range images.Product(version) {
			var builds []images.Image
			for _, arch := range r.arches {
				builds = append(builds, images.Image{Arch: arch, Links: map[string]string{recipe.Entrypoint: target + arch}})
			}
			made = append(made, r.image(strings.TrimSuffix(recipe.Name, ":"+version), builds))
		}
		made = append(made, r.chart(made, r.tracked(t.Context(), "charts/fenceline")))
		r.bundles(made[:2])
		r.addNotes(made)
	}))
	return r, made
}

// program returns a small program with a module in it.
func program(t *testing.T) []byte {
	t.Helper()
	file := filepath.Join(t.TempDir(), "app")
	check.OK(t, programs.Build(t.Context(), "test/cmd/app", file))
	return check.Value(os.ReadFile(file))(t)
}

// contents returns the files of a tar, and which of them are executable.
func contents(t *testing.T, archive []byte) (files map[string][]byte, executable []string) {
	t.Helper()
	files = map[string][]byte{}
	for r := tar.NewReader(bytes.NewReader(archive)); ; {
		header, err := r.Next()
		if errors.Is(err, io.EOF) {
			return files, executable
		}
		check.OK(t, err)
		files[header.Name] = check.Value(io.ReadAll(r))(t)
		if header.Mode&0o111 != 0 {
			executable = append(executable, header.Name)
		}
	}
}

func uncompressed(t *testing.T, data []byte) []byte {
	t.Helper()
	return check.Value(io.ReadAll(check.Value(gzip.NewReader(bytes.NewReader(data)))(t)))(t)
}

func TestTheSameCommitGivesTheSameBytes(t *testing.T) {
	one, _ := example(t, "", "x")
	other, _ := example(t, "", "x")
	check.Must(t, len(one.files) >= 8, "only %v", slices.Sorted(maps.Keys(one.files)))
	for file := range one.files {
		check.That(t, bytes.Equal(one.files[file], other.files[file]), "%s differs", file)
	}
	check.OK(t, one.write())
	sums := exec.CommandContext(t.Context(), "sha256sum", "--check", "--strict", "SHA256SUMS")
	sums.Dir = one.Out
	out, err := sums.CombinedOutput()
	check.That(t, err == nil, "%v: %s", err, out)
}

// repository returns a repository with a changelog and a chart of version 1.2.3.
func repository(t *testing.T, changelog string) string {
	t.Helper()
	root := t.TempDir()
	for file, text := range map[string]string{"CHANGELOG.md": changelog, "charts/fenceline/Chart.yaml": "version: 1.2.3\nappVersion: 1.2.3\n"} {
		check.OK(t, os.MkdirAll(filepath.Join(root, filepath.Dir(file)), 0o755))
		check.OK(t, os.WriteFile(filepath.Join(root, file), []byte(text), 0o644))
	}
	for _, args := range []string{"init", "add .", "-c user.name=x -c user.email=x commit -m x"} {
		cmd := exec.CommandContext(t.Context(), "git", strings.Fields(args)...)
		cmd.Dir = root
		out, err := cmd.CombinedOutput()
		check.Must(t, err == nil, "git %s: %v: %s", args, err, out)
	}
	return root
}

func TestAReleaseIsRefusedBeforeItIsBuilt(t *testing.T) {
	const dated, undated = "# Changelog\n\n## [1.2.3] - 2026-11-30\n\nNew.\n", "## [Unreleased]\n\nVersion 1.2.3. Not yet.\n"
	for name, tc := range map[string]struct {
		changelog string
		options   Options
		tag       string
		dirty     bool
		want      string
	}{
		"nothing is wrong":                       {changelog: dated, tag: "v1.2.3", options: Options{Registry: "registry.example.com/a"}},
		"no tag, and a registry of all":          {changelog: dated, options: Options{Registry: "registry.example.com"}, want: "no tag v1.2.3"},
		"another tag, and a registry of all":     {changelog: dated, tag: "v1.2.30", options: Options{Registry: "registry.example.com"}, want: "no tag v1.2.3"},
		"a key inside the tree":                  {changelog: dated, options: Options{Key: "TREE/keys/key.pem"}, want: "keys/key.pem is inside the tree"},
		"a rehearsal with a registry here":       {changelog: undated, options: Options{Registry: "127.0.0.1:5000"}},
		"a rehearsal without a registry":         {changelog: undated},
		"no date, and a registry of all":         {changelog: undated, options: Options{Registry: "registry.example.com"}, want: "no date for 1.2.3"},
		"a registry without a host":              {changelog: dated, options: Options{Registry: "a"}, want: "registry"},
		"a version that the chart does not have": {changelog: dated, options: Options{Version: "1.2.4"}, want: `VERSION is "1.2.4", and Chart.yaml has version "1.2.3"`},
		"a version that the changelog has not":   {changelog: "## [Unreleased]\n\nVersion 1.2.30.\n", want: "CHANGELOG.md has no section"},
		"a file that no commit has":              {changelog: dated, dirty: true, want: "left.go"},
		"a key that is none":                     {changelog: dated, options: Options{Key: "/dev/null"}, want: "no key in PEM"},
		"a key that does not exist":              {changelog: dated, options: Options{Key: "/nowhere/key"}, want: "/nowhere/key"},
	} {
		t.Run(name, func(t *testing.T) {
			r := &release{Options: tc.options, root: repository(t, tc.changelog)}
			if r.Version == "" {
				r.Version = version
			}
			if tc.dirty {
				check.OK(t, os.WriteFile(filepath.Join(r.root, "left.go"), nil, 0o644))
			}
			if tc.tag != "" {
				r.git(t.Context(), "tag", tc.tag)
			}
			r.Key = strings.Replace(r.Key, "TREE", r.root, 1)
			err := r.check(t.Context())
			if tc.want == "" {
				check.OK(t, err)
				check.That(t, len(r.commit) == 40 && time.Since(r.time) < time.Hour, "commit %s of %s", r.commit, r.time)
			} else {
				check.That(t, err != nil && strings.Contains(err.Error(), tc.want), "%v, want %q", err, tc.want)
			}
		})
	}
}

func TestNotesAreTheSectionWithLinksToItsVersion(t *testing.T) {
	text, dated, err := notes("1.0.1", []byte("version: 1.0.1\nappVersion: 1.0.1"), []byte("# C\n\n## [1.0.10] - 2026-01-02\n\nc\n\n## [1.0.1] - 2026-01-01\n\n### Added\n\na\n\n## [1.0.0] - 2025-01-01\n\nb\n"))
	check.OK(t, err)
	check.That(t, dated && text == "### Added\n\na\n", "%v, %q", dated, text)
	r, made := example(t, "registry.example.com/team", "x")
	want := "New: [pools](" + home + "/blob/v1.2.3/docs/pools.md#conditions), [a site](https://example.com/a)."
	digest := check.Value(made[0].content.Digest())(t)
	check.Says(t, string(r.files["notes.md"]), want, "`registry.example.com/team/fenceline/agent:1.2.3@"+digest.String()+"`")
}

func TestTheDocumentNamesWhatTheProgramIsMadeOf(t *testing.T) {
	r, _ := example(t, "", "x")
	self := program(t)
	var d spdx
	check.OK(t, json.Unmarshal(r.sbom("fenceline/agent", "pkg:oci/agent@x", map[string][]byte{"agent linux/amd64": self, "cni linux/amd64": self}), &d))
	packages := map[string]spdxPackage{}
	for _, p := range d.Packages {
		check.That(t, packages[p.ID].ID == "", "%s is there twice", p.ID)
		packages[p.ID] = p
	}
	check.Equal(t, packages["SPDXRef-Program-agent-linux-amd64"].Checksums[0].Value, fmt.Sprintf("%x", sha256.Sum256(self)), "sum of the program")
	check.Equal(t, packages["SPDXRef-Product"].Declared, "Apache-2.0 AND (BSD-2-Clause OR GPL-2.0-only)", "licence")
	check.Says(t, fmt.Sprint(d.Packages), "pkg:golang/stdlib@1.", "pkg:golang/golang.org/x/sys@v")
	related := map[string]bool{}
	for _, relation := range d.Relationships {
		check.That(t, relation.From == "SPDXRef-DOCUMENT" || packages[relation.From].ID != "", "no element %s", relation.From)
		related[relation.To] = true
	}
	check.Equal(t, len(related), len(packages), "elements that others name")
}

func TestTheManifestOfKrewHasTheSumsOfTheArchives(t *testing.T) {
	r, _ := example(t, "", "x")
	self, built := program(t), map[string][]byte{}
	for _, system := range []string{"linux amd64", "linux arm64", "darwin amd64", "darwin arm64", "windows amd64", "windows arm64"} {
		built[system] = self
	}
	check.OK(t, must.Try(func() { r.command(built) }))
	var plugin struct {
		Spec struct {
			Version   string
			Platforms []struct{ URI, SHA256, Bin string }
		}
	}
	check.OK(t, yaml.Unmarshal(r.files["fenceline-krew.yaml"], &plugin))
	check.That(t, plugin.Spec.Version == "v1.2.3" && len(plugin.Spec.Platforms) == 6, "%+v", plugin)
	for _, p := range plugin.Spec.Platforms {
		archive := r.files[filepath.Base(p.URI)]
		check.Equal(t, p.SHA256, fmt.Sprintf("%x", sha256.Sum256(archive)), "%s", p.URI)
		files, executable := contents(t, uncompressed(t, archive))
		check.That(t, len(files) == 2 && bytes.Equal(files[p.Bin], self) && slices.Equal(executable, []string{p.Bin}), "%s has %v", p.URI, slices.Sorted(maps.Keys(files)))
	}
}

func TestTheChartOfAReleaseHasItsRegistryAndItsDigests(t *testing.T) {
	r, made := example(t, "registry.example.com/team", "x")
	files, _ := contents(t, uncompressed(t, r.files["fenceline-1.2.3.tgz"]))
	var chart struct{ Annotations map[string]string }
	check.OK(t, yaml.Unmarshal(files["fenceline/Chart.yaml"], &chart))
	for i, part := range []string{"agent", "controller"} {
		digest := check.Value(made[i].content.Digest())(t).String()
		check.Equal(t, chart.Annotations["fenceline.io/"+part+"-digest"], digest, "digest of the %s", part)
		check.Says(t, chart.Annotations["artifacthub.io/images"], "registry.example.com/team/fenceline/"+part+":1.2.3@"+digest)
	}
	crds := check.Value(filepath.Glob(filepath.Join(r.root, "charts/fenceline/files/crds/*.yaml")))(t)
	check.Equal(t, strings.Count(chart.Annotations["artifacthub.io/crds"], "kind: "), len(crds), "CRDs")
	check.Says(t, string(files["fenceline/values.yaml"]), "  registry: registry.example.com/team/\n")
	check.Equal(t, strings.Count(string(r.files["fenceline-crds.yaml"]), "\nkind: CustomResourceDefinition\n"), len(crds), "CRDs without the chart")
}

// unpacked returns the folder of a bundle.
func unpacked(t *testing.T, r *release, arch string) string {
	t.Helper()
	dir := t.TempDir()
	cmd := exec.CommandContext(t.Context(), "tar", "-xf", "-", "-C", dir)
	cmd.Stdin = bytes.NewReader(r.files["fenceline-1.2.3-airgap-"+arch+".tar"])
	out, err := cmd.CombinedOutput()
	check.Must(t, err == nil, "%v: %s", err, out)
	return filepath.Join(dir, "fenceline-1.2.3-airgap-"+arch)
}

func TestABundleHasTheImagesOfItsArchitecture(t *testing.T) {
	r, made := example(t, "", "x")
	for _, arch := range []string{"amd64", "arm64", "all"} {
		l := check.Value(layout.ImageIndexFromPath(filepath.Join(unpacked(t, r, arch), "images")))(t)
		for _, image := range made[:2] {
			index := check.Value(l.ImageIndex(check.Value(image.content.Digest())(t)))(t)
			if arch == "all" {
				check.OK(t, validate.Index(index))
			}
			for _, m := range check.Value(index.IndexManifest())(t).Manifests {
				build, err := index.Image(m.Digest)
				has := err == nil && validate.Image(build) == nil
				check.Equal(t, has, arch == "all" || arch == m.Platform.Architecture, "bundle %s has %s of %s", arch, m.Platform.Architecture, image.name)
			}
		}
	}
}

func TestTheScriptOfABundleLoadsByNameAndDigest(t *testing.T) {
	r, made := example(t, "registry.example.com", "x")
	agent := check.Value(made[0].content.Digest())(t).String()
	for name, tc := range map[string]struct {
		programs, args []string
		fails          string
		want           []string
	}{
		"containerd": {programs: []string{"ctr", "crictl", "skopeo"}, want: []string{
			"ctr --namespace=k8s.io images import -", "ctr --namespace=k8s.io images tag --force registry.example.com/fenceline/agent:1.2.3 registry.example.com/fenceline/agent@" + agent,
			"crictl inspecti --quiet registry.example.com/fenceline/agent@" + agent,
		}},
		"CRI-O":      {programs: []string{"skopeo"}, want: []string{"skopeo copy oci:images:controller containers-storage:registry.example.com/fenceline/controller:1.2.3"}},
		"a registry": {programs: []string{"ctr", "skopeo"}, args: []string{"mirror:5000"}, want: []string{"skopeo copy --all --preserve-digests oci:images:agent docker://mirror:5000/fenceline/agent:1.2.3"}},
		"a failure":  {programs: []string{"ctr"}, fails: "ctr", want: []string{"this failed: ctr"}},
		"nothing":    {fails: "all", want: []string{"neither ctr nor skopeo"}},
	} {
		t.Run(name, func(t *testing.T) {
			bin, bundle := t.TempDir(), unpacked(t, r, "all")
			for _, tool := range []string{"dirname", "tar", "cat"} {
				check.OK(t, os.Symlink(check.Value(exec.LookPath(tool))(t), filepath.Join(bin, tool)))
			}
			for _, program := range tc.programs {
				end := "exit 0"
				if program == tc.fails {
					end = "exit 1"
				}
				check.OK(t, os.WriteFile(filepath.Join(bin, program), []byte("#!/bin/sh\necho "+program+" \"$@\" >&2\ncat >/dev/null\n"+end+"\n"), 0o755))
			}
			cmd := exec.CommandContext(t.Context(), filepath.Join(bundle, "load.sh"), tc.args...)
			cmd.Env = []string{"PATH=" + bin}
			out, err := cmd.CombinedOutput()
			check.Equal(t, err != nil, tc.fails != "", "it failed (%v): %s", err, out)
			for _, line := range tc.want {
				check.That(t, strings.Contains(string(out), line), "%s: no line %q", out, line)
			}
		})
	}
}
