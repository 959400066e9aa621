// SPDX-License-Identifier: Apache-2.0

package images

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
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

func TestTheManifestNamesAConfigAndALayerThatMatchTheirDigests(t *testing.T) {
	files, _ := contents(t, write(t, example()))
	var manifests []manifest
	if err := json.Unmarshal(files["manifest.json"], &manifests); err != nil || len(manifests) != 1 {
		t.Fatalf("manifest.json: %v, %d entries", err, len(manifests))
	}
	m := manifests[0]
	if m.RepoTags[0] != "fenceline/example:1" {
		t.Errorf("tag %q", m.RepoTags[0])
	}
	if want := digest(files[m.Config]) + ".json"; m.Config != want {
		t.Errorf("config %s, want %s", m.Config, want)
	}
	var c config
	check.OK(t, json.Unmarshal(files[m.Config], &c))
	if want := "sha256:" + digest(files[m.Layers[0]]); c.RootFS.DiffIDs[0] != want {
		t.Errorf("diff ID %s, want %s", c.RootFS.DiffIDs[0], want)
	}
}

func TestALayerHoldsEachDirectoryOnceAndBeforeItsFiles(t *testing.T) {
	files, _ := contents(t, write(t, example()))
	var manifests []manifest
	check.OK(t, json.Unmarshal(files["manifest.json"], &manifests))
	_, order := contents(t, files[manifests[0].Layers[0]])
	want := []string{"bin/", "bin/example", "bin/other", "top"}
	if len(order) != len(want) {
		t.Fatalf("got %v, want %v", order, want)
	}
	for i := range want {
		if order[i] != want[i] {
			t.Fatalf("got %v, want %v", order, want)
		}
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
	if got := manifests[0].RepoTags; !slices.Equal(got, []string{"a:1", "b:2"}) {
		t.Errorf("names %v", got)
	}
	var c config
	check.OK(t, json.Unmarshal(files[manifests[0].Config], &c))
	if got := c.Config; !slices.Equal(got.Cmd, img.Command) || !slices.Equal(got.Env, []string{"PATH=/usr/bin:/bin"}) {
		t.Errorf("config %+v", got)
	}
	_, order := contents(t, files[manifests[0].Layers[0]])
	if want := []string{"bin/", "bin/dash", "bin/sh", "usr/", "usr/lib/", "usr/lib/libc"}; !slices.Equal(order, want) {
		t.Errorf("got %v, want %v", order, want)
	}
	if target := linkTarget(t, files[manifests[0].Layers[0]], "bin/sh"); target != "dash" {
		t.Errorf("bin/sh leads to %q", target)
	}
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
	if !bytes.Equal(write(t, example()), write(t, example())) {
		t.Error("two runs differ")
	}
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
	if len(wanted) < 5 || !maps.Equal(copied, wanted) {
		t.Errorf("copied: %v; imported: %v", slices.Sorted(maps.Keys(copied)), slices.Sorted(maps.Keys(wanted)))
	}
}
