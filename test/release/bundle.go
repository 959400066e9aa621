// SPDX-License-Identifier: Apache-2.0

package release

import (
	"bytes"
	_ "embed"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"

	"github.com/fenceline/fenceline/test/must"
)

//go:embed load.sh
var load []byte

// bundles makes a file for each architecture, and one for registries, with all that an installation without any
// other network needs.
func (r *release) bundles(images []artifact) {
	for _, only := range append(slices.Clone(r.arches), "all") {
		files := map[string][]byte{"load.sh": load}
		for _, file := range []string{"fenceline-" + r.Version + ".tgz", "fenceline.yaml", "fenceline-crds.yaml"} {
			files[file] = r.files[file]
		}
		var list strings.Builder
		for _, image := range images {
			fmt.Fprintln(&list, image.name, r.Version, r.full(image.name), must.Value(image.content.Digest()))
		}
		files["images.txt"] = []byte(list.String())
		r.layout(images, only, files)
		folder := fmt.Sprintf("fenceline-%s-airgap-%s", r.Version, only)
		r.files[folder+".tar"] = r.pack(folder, files, "load.sh")
	}
}

// full returns the name by which nodes know an image: one without a registry is of the usual one.
func (r *release) full(image string) string {
	return strings.TrimPrefix(must.Value(name.NewTag(r.reference(image))).Name(), "index.")
}

// layout adds the layout of the images to files, in the folder images. Without other architectures than only, an
// index keeps its digest, and names manifests that the layout does not have.
func (r *release) layout(images []artifact, only string, files map[string][]byte) {
	dir := must.Value(os.MkdirTemp("", "fenceline-layout-"))
	defer os.RemoveAll(dir)
	l := must.Value(layout.Write(dir, empty.Index))
	for _, image := range images {
		index, descriptor := image.content.(v1.ImageIndex), v1.Descriptor{}
		raw := must.Value(index.RawManifest())
		descriptor.MediaType, descriptor.Digest, descriptor.Size = must.Value(index.MediaType()), must.Value(index.Digest()), int64(len(raw))
		descriptor.Annotations = map[string]string{"org.opencontainers.image.ref.name": path.Base(image.name), "io.containerd.image.name": r.full(image.name)}
		must.OK(l.WriteBlob(descriptor.Digest, io.NopCloser(bytes.NewReader(raw))))
		for _, manifest := range must.Value(index.IndexManifest()).Manifests {
			if only == "all" || manifest.Platform.Architecture == only {
				must.OK(l.WriteImage(must.Value(index.Image(manifest.Digest))))
			}
		}
		must.OK(l.AppendDescriptor(descriptor))
	}
	must.OK(filepath.WalkDir(dir, func(file string, entry os.DirEntry, err error) error {
		if err == nil && !entry.IsDir() {
			files["images/"+filepath.ToSlash(must.Value(filepath.Rel(dir, file)))] = must.Value(os.ReadFile(file))
		}
		return err
	}))
}
