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
		if files[header.Name], err = io.ReadAll(r); err != nil {
			t.Fatal(err)
		}
	}
}

func TestAnImageNamesItsArchitecture(t *testing.T) {
	for _, arch := range []string{"", "arm64"} {
		img := example()
		img.Arch = arch
		files, _ := contents(t, write(t, img))
		var manifests []manifest
		check.OK(t, json.Unmarshal(files["manifest.json"], &manifests))
		var c config
		check.OK(t, json.Unmarshal(files[manifests[0].Config], &c))
		if want := cmp.Or(arch, runtime.GOARCH); c.Architecture != want {
			t.Errorf("architecture %q, want %q", c.Architecture, want)
		}
	}
}

func TestTheManifestNamesAConfigAndALayerThatMatchTheirDigests(t *testing.T) {
	files, _ := contents(t, write(t, example()))
	var manifests []manifest
	err := json.Unmarshal(files["manifest.json"], &manifests)
	check.Must(t, err == nil && len(manifests) == 1, "manifest.json: %v, %d entries", err, len(manifests))
	m := manifests[0]
	check.Equal(t, m.RepoTags[0], "fenceline/example:1", "tag")
	check.Equal(t, m.Config, digest(files[m.Config])+".json", "config")
	var c config
	check.OK(t, json.Unmarshal(files[m.Config], &c))
	check.Equal(t, c.RootFS.DiffIDs[0], "sha256:"+digest(files[m.Layers[0]]), "diff ID")
}

func TestALayerHoldsEachDirectoryOnceAndBeforeItsFiles(t *testing.T) {
	files, _ := contents(t, write(t, example()))
	var manifests []manifest
	check.OK(t, json.Unmarshal(files["manifest.json"], &manifests))
	_, order := contents(t, files[manifests[0].Layers[0]])
	want := []string{"bin/", "bin/example", "bin/other", "top"}
	check.Must(t, len(order) == len(want), "got %v, want %v", order, want)
	for i := range want {
		check.Must(t, order[i] == want[i], "got %v, want %v", order, want)
	}
}

func TestAnImageOfATreeHasItsLinksAndAllItsNames(t *testing.T) {
	root := t.TempDir()
	for _, file := range []string{"bin/dash", "usr/share/doc/page", "usr/lib/libc"} {
		check.OK(t, os.MkdirAll(filepath.Join(root, filepath.Dir(file)), 0o755))
		check.OK(t, os.WriteFile(filepath.Join(root, file), []byte(file), 0o644))
	}
	check.OK(t, os.Symlink("dash", filepath.Join(root, "bin/sh")))
	img := Image{Name: "a:1", Aliases: []string{"b:2"}, Command: []string{"pause"}, Path: "/usr/bin:/bin"}
	var err error
	if img.Files, img.Links, err = Tree(root, "/usr/share"); err != nil {
		t.Fatal(err)
	}
	files, _ := contents(t, write(t, img))
	var manifests []manifest
	check.OK(t, json.Unmarshal(files["manifest.json"], &manifests))
	check.List(t, manifests[0].RepoTags, []string{"a:1", "b:2"}, "names")
	var c config
	check.OK(t, json.Unmarshal(files[manifests[0].Config], &c))
	got := c.Config
	check.That(t, slices.Equal(got.Cmd, img.Command) && slices.Equal(got.Env, []string{"PATH=/usr/bin:/bin"}), "config %+v", got)
	_, order := contents(t, files[manifests[0].Layers[0]])
	check.List(t, order, []string{"bin/", "bin/dash", "bin/sh", "usr/", "usr/lib/", "usr/lib/libc"}, "got")
	check.Equal(t, linkTarget(t, files[manifests[0].Layers[0]], "bin/sh"), "dash", "bin/sh leads to")
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
