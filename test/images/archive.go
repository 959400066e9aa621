// SPDX-License-Identifier: Apache-2.0

// Package images builds container images from static binaries, without a container engine.
package images

import (
	"archive/tar"
	"bytes"
	"cmp"
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

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"

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
	// Labels describe the image to its users.
	Labels map[string]string
	// Created is the time in its configuration. Default 1970, so that equal files make equal images.
	Created time.Time
}

// OCI returns the image for a layout or a registry. The same image always gives the same bytes. A compressed
// layer is for transport: to make it takes longer than to import the other one.
func (img Image) OCI(compressed bool) (_ v1.Image, err error) {
	defer must.CatchIn(&err, "make image %s", img.Name)
	files := img.layer()
	layer := static.NewLayer(files, types.OCIUncompressedLayer)
	if compressed {
		open := func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(files)), nil }
		layer = must.Value(tarball.LayerFromOpener(open, tarball.WithMediaType(types.OCILayer), tarball.WithCompressedCaching))
	}
	created := v1.Time{Time: time.Unix(0, 0).UTC()}
	if !img.Created.IsZero() {
		created.Time = img.Created.UTC()
	}
	base := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	base = must.Value(mutate.ConfigFile(base, &v1.ConfigFile{
		Architecture: cmp.Or(img.Arch, runtime.GOARCH), OS: "linux", Created: created, RootFS: v1.RootFS{Type: "layers"},
		Config: v1.Config{
			Entrypoint: img.Entrypoint, Cmd: img.Command, Env: []string{"PATH=" + cmp.Or(img.Path, "/")}, WorkingDir: "/", Labels: img.Labels,
		},
	}))
	return mutate.Append(base, mutate.Addendum{Layer: layer, History: v1.History{Created: created}})
}

// Write writes the image in the form of `docker save`, which every container engine imports. The same image
// always gives the same bytes.
func Write(w io.Writer, img Image) (err error) {
	defer must.CatchIn(&err, "write image %s", img.Name)
	image, names := must.Value(img.OCI(false)), map[name.Reference]v1.Image{}
	for _, tag := range append([]string{img.Name}, img.Aliases...) {
		names[must.Value(name.NewTag(tag))] = image
	}
	return tarball.MultiRefWrite(names, w)
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
