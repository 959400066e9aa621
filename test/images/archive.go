// SPDX-License-Identifier: Apache-2.0

// Package images builds container images from static binaries, without a container engine.
package images

import (
	"archive/tar"
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/fenceline/fenceline/test/must"
)

// Image is one layer with files on an empty base.
type Image struct {
	// Name is NAME:TAG, without a registry.
	Name string
	// Arch is the architecture of its machines. Default that of this machine.
	Arch string
	// Aliases are more names of the same image.
	Aliases    []string
	Entrypoint []string
	// Command holds the default arguments of the entry point.
	Command []string
	// Path is the PATH of its processes. Default "/".
	Path string
	// Files maps absolute paths in the image to contents; all are executable.
	Files map[string][]byte
	// Links maps absolute paths in the image to the targets of symbolic links.
	Links map[string]string
}

// config is the part of an OCI image configuration that is used here.
type config struct {
	Created      time.Time `json:"created"`
	Architecture string    `json:"architecture"`
	OS           string    `json:"os"`
	Config       struct {
		Entrypoint []string
		Cmd        []string `json:",omitempty"`
		Env        []string
		WorkingDir string
	} `json:"config"`
	RootFS struct {
		Type    string   `json:"type"`
		DiffIDs []string `json:"diff_ids"`
	} `json:"rootfs"`
}

// manifest is an entry of manifest.json.
type manifest struct {
	Config   string
	RepoTags []string
	Layers   []string
}

// Write writes the image in the form of `docker save`, which every container
// engine imports. The same image always gives the same bytes.
func Write(w io.Writer, img Image) (err error) {
	defer must.CatchIn(&err, "write image %s", img.Name)
	layer := img.layer()
	layerDigest := digest(layer)
	var c config
	c.Created = time.Unix(0, 0).UTC()
	c.Architecture, c.OS = cmp.Or(img.Arch, runtime.GOARCH), "linux"
	c.Config.Entrypoint, c.Config.Cmd = img.Entrypoint, img.Command
	c.Config.Env = []string{"PATH=" + cmp.Or(img.Path, "/")}
	c.Config.WorkingDir = "/"
	c.RootFS.Type, c.RootFS.DiffIDs = "layers", []string{"sha256:" + layerDigest}
	configJSON := must.Value(json.Marshal(c))
	m := manifest{Config: digest(configJSON) + ".json", RepoTags: append([]string{img.Name}, img.Aliases...), Layers: []string{layerDigest + ".tar"}}
	manifestJSON := must.Value(json.Marshal([]manifest{m}))
	archive := tar.NewWriter(w)
	add(archive, m.Layers[0], 0o644, layer)
	add(archive, m.Config, 0o644, configJSON)
	add(archive, "manifest.json", 0o644, manifestJSON)
	return archive.Close()
}

// layer returns the files and links as an uncompressed tar with their directories.
func (img Image) layer() []byte {
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	made := map[string]bool{".": true}
	paths := slices.AppendSeq(slices.Collect(maps.Keys(img.Files)), maps.Keys(img.Links))
	slices.Sort(paths)
	for _, file := range paths {
		name := strings.TrimPrefix(path.Clean(file), "/")
		var parents []string
		for dir := path.Dir(name); !made[dir]; dir = path.Dir(dir) {
			made[dir] = true
			parents = append(parents, dir)
		}
		for _, dir := range slices.Backward(parents) {
			header := &tar.Header{Name: dir + "/", Typeflag: tar.TypeDir, Mode: 0o755, ModTime: time.Unix(0, 0)}
			must.OK(w.WriteHeader(header))
		}
		if target, ok := img.Links[file]; ok {
			header := &tar.Header{Name: name, Typeflag: tar.TypeSymlink, Linkname: target, Mode: 0o777, ModTime: time.Unix(0, 0)}
			must.OK(w.WriteHeader(header))
			continue
		}
		add(w, name, 0o755, img.Files[file])
	}
	must.OK(w.Close())
	return out.Bytes()
}

func add(w *tar.Writer, name string, mode int64, data []byte) {
	header := &tar.Header{Name: name, Typeflag: tar.TypeReg, Mode: mode, Size: int64(len(data)), ModTime: time.Unix(0, 0)}
	must.OK(w.WriteHeader(header))
	must.Value(w.Write(data))
}

func digest(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

// Tree returns the regular files and the symbolic links below a directory of this machine, by their paths in an
// image whose root is that directory. It leaves out the paths in without, with all that is below them.
func Tree(root string, without ...string) (files map[string][]byte, links map[string]string, err error) {
	defer must.CatchIn(&err, "read the tree %s for an image", root)
	files, links = map[string][]byte{}, map[string]string{}
	return files, links, filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		must.OK(err)
		inside := filepath.Join("/", must.Value(filepath.Rel(root, path)))
		switch {
		case slices.Contains(without, inside) && entry.IsDir():
			return filepath.SkipDir
		case slices.Contains(without, inside):
		case entry.Type().IsRegular():
			files[inside] = must.Value(os.ReadFile(path))
		case entry.Type()&fs.ModeSymlink != 0:
			links[inside] = must.Value(os.Readlink(path))
		}
		return nil
	})
}
