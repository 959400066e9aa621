// SPDX-License-Identifier: Apache-2.0

package images

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"testing"
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
	if err := Write(&out, img); err != nil {
		t.Fatal(err)
	}
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
		if err != nil {
			t.Fatal(err)
		}
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
	if err := json.Unmarshal(files[m.Config], &c); err != nil {
		t.Fatal(err)
	}
	if want := "sha256:" + digest(files[m.Layers[0]]); c.RootFS.DiffIDs[0] != want {
		t.Errorf("diff ID %s, want %s", c.RootFS.DiffIDs[0], want)
	}
}

func TestALayerHoldsEachDirectoryOnceAndBeforeItsFiles(t *testing.T) {
	files, _ := contents(t, write(t, example()))
	var manifests []manifest
	if err := json.Unmarshal(files["manifest.json"], &manifests); err != nil {
		t.Fatal(err)
	}
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

func TestTheSameImageGivesTheSameBytes(t *testing.T) {
	if !bytes.Equal(write(t, example()), write(t, example())) {
		t.Error("two runs differ")
	}
}
