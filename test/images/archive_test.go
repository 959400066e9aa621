// SPDX-License-Identifier: Apache-2.0

package images

import (
	"archive/tar"
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/tarball"

	"github.com/fenceline/fenceline/test/check"
	"github.com/fenceline/fenceline/test/thirdparty"
)

func example() Image {
	return Image{
		Name: "fenceline/example:1", Entrypoint: []string{"/bin/example"},
		Files: map[string][]byte{"/bin/example": []byte("program"), "/bin/other": []byte("other"), "/top": []byte("x")},
	}
}

func write(t *testing.T, img Image) []byte {
	t.Helper()
	var out bytes.Buffer
	check.OK(t, Write(&out, img))
	return out.Bytes()
}

func contents(t *testing.T, archive []byte) (map[string][]byte, []string) {
	t.Helper()
	files := map[string][]byte{}
	var order []string
	for r := tar.NewReader(bytes.NewReader(archive)); ; {
		header, err := r.Next()
		if errors.Is(err, io.EOF) {
			return files, order
		}
		check.OK(t, err)
		order = append(order, header.Name)
		files[header.Name] = check.Value(io.ReadAll(r))(t)
	}
}

func digest(data []byte) string {
	hash, _, _ := v1.SHA256(bytes.NewReader(data))
	return hash.String()
}

// opened returns the parts of an image.
func opened(t *testing.T, img Image) (m tarball.Descriptor, c v1.ConfigFile, layer []byte) {
	t.Helper()
	files, _ := contents(t, write(t, img))
	var manifests tarball.Manifest
	check.OK(t, json.Unmarshal(files["manifest.json"], &manifests))
	check.Must(t, len(manifests) == 1, "manifest.json has %d entries", len(manifests))
	m = manifests[0]
	check.OK(t, json.Unmarshal(files[m.Config], &c))
	check.Equal(t, m.Config, digest(files[m.Config]), "config")
	return m, c, files[m.Layers[0]]
}

func TestAnImageNamesItsArchitecture(t *testing.T) {
	for _, arch := range []string{"", "arm64"} {
		img := example()
		img.Arch = arch
		_, c, _ := opened(t, img)
		check.Equal(t, c.Architecture, cmp.Or(arch, runtime.GOARCH), "architecture")
	}
}

func TestAnImageOfATreeHasItsLinksAndAllItsNames(t *testing.T) {
	root := t.TempDir()
	for _, file := range []string{"bin/dash", "top", "usr/share/doc/page", "usr/lib/libc"} {
		check.OK(t, os.MkdirAll(filepath.Join(root, filepath.Dir(file)), 0o755))
		check.OK(t, os.WriteFile(filepath.Join(root, file), []byte(file), 0o644))
	}
	check.OK(t, os.Symlink("dash", filepath.Join(root, "bin/sh")))
	img := Image{Name: "a:1", Aliases: []string{"b:2"}, Command: []string{"pause"}, Path: "/usr/bin:/bin"}
	var err error
	img.Files, img.Links, err = Tree(root, "/usr/share")
	check.OK(t, err)
	m, c, layer := opened(t, img)
	slices.Sort(m.RepoTags) // the library orders them as a map does
	check.List(t, m.RepoTags, []string{"a:1", "b:2"}, "names")
	check.Equal(t, c.RootFS.DiffIDs[0].String(), digest(layer), "diff ID")
	got := c.Config
	check.That(t, slices.Equal(got.Cmd, img.Command) && slices.Equal(got.Env, []string{"PATH=/usr/bin:/bin"}), "config %+v", got)
	_, order := contents(t, layer)
	check.List(t, order, []string{"bin/", "bin/dash", "bin/sh", "top", "usr/", "usr/lib/", "usr/lib/libc"}, "got")
	check.Equal(t, linkTarget(t, layer, "bin/sh"), "dash", "bin/sh leads to")
}

func linkTarget(t *testing.T, layer []byte, name string) string {
	t.Helper()
	for r := tar.NewReader(bytes.NewReader(layer)); ; {
		header := check.Value(r.Next())(t)
		if header.Name == name {
			return header.Linkname
		}
	}
}

func TestTheSameImageGivesTheSameBytes(t *testing.T) {
	check.That(t, bytes.Equal(write(t, example()), write(t, example())), "two runs differ")
}

// No container engine runs in CI, so this compares the folders that the Dockerfile copies with those
// that the programs import.
func TestTheDockerfileCopiesWhatTheProgramsImport(t *testing.T) {
	root := check.Value(thirdparty.Root())(t)
	list := exec.CommandContext(t.Context(), "go", "list", "-deps", "-f", "{{if .Module}}{{if .Module.Main}}{{.ImportPath}}{{end}}{{end}}", "./agent", "./cni", "./controller")
	list.Dir = root
	wanted := map[string]bool{}
	for pkg := range strings.Lines(string(check.Value(list.Output())(t))) {
		folder, _, _ := strings.Cut(strings.TrimPrefix(strings.TrimSpace(pkg), "github.com/fenceline/fenceline/"), "/")
		wanted[folder] = true
	}
	copied := map[string]bool{}
	for line := range strings.Lines(string(check.Value(os.ReadFile(filepath.Join(root, "Dockerfile")))(t))) {
		if f := strings.Fields(line); len(f) == 3 && f[0] == "COPY" {
			copied[f[1]] = true
		}
	}
	check.That(t, len(wanted) >= 5 && maps.Equal(copied, wanted), "copied: %v; imported: %v", slices.Sorted(maps.Keys(copied)), slices.Sorted(maps.Keys(wanted)))
}
