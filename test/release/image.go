// SPDX-License-Identifier: Apache-2.0

package release

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"path"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/partial"
	"github.com/google/go-containerregistry/pkg/v1/types"
	imagespec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/fenceline/fenceline/test/images"
	"github.com/fenceline/fenceline/test/must"
	"github.com/fenceline/fenceline/test/programs"
)

func (r *release) target(os, arch string) programs.Target {
	if r.commit == "" {
		return programs.Target{}
	}
	return programs.Target{OS: os, Arch: arch, Version: r.Version, Commit: r.commit}
}

// images builds the images of the chart.
func (r *release) images(ctx context.Context) (made []artifact) {
	for _, recipe := range images.Product(r.Version) {
		var builds []images.Image
		for _, arch := range r.arches {
			fmt.Fprintf(r.Progress, "building %s linux/%s\n", recipe.Name, arch)
			recipe.Target = r.target("linux", arch)
			build := must.Value(recipe.Image(ctx))
			build.Arch = arch
			builds = append(builds, build)
		}
		made = append(made, r.image(strings.TrimSuffix(recipe.Name, ":"+r.Version), builds))
	}
	return made
}

// image makes the index of the builds of an image, one for each architecture, and the document about it.
func (r *release) image(name string, builds []images.Image) artifact {
	labels := r.labels(name, "Fenceline, addresses of an underlay network for pods: the "+path.Base(name))
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	contents := map[string][]byte{}
	for _, build := range builds {
		build.Labels, build.Created = labels, r.time
		index = mutate.AppendManifests(index, mutate.IndexAddendum{
			Add: must.Value(build.OCI(true)), Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: build.Arch}},
		})
		for file, data := range build.Files {
			contents[path.Base(file)+" linux/"+build.Arch] = data
		}
	}
	made := artifact{name: name, content: plainly(mutate.Annotations(index, labels).(v1.ImageIndex))}
	digest := must.Value(made.content.Digest())
	made.sbom = r.sbom(name, "pkg:oci/"+path.Base(name)+"@sha256%3A"+digest.Hex+"?tag="+r.Version, contents)
	r.files[path.Base(name)+"-"+r.Version+".spdx.json"] = made.sbom
	return made
}

// built is an index. Its name differs from that of a method.
type built v1.ImageIndex

// plainIndex is an index with a manifest of its own.
type plainIndex struct {
	built
	manifest []byte
}

// plainly returns an index whose manifest has the fields of OCI in their order. Skopeo reads an index and writes it so
// again: with other bytes it refuses to keep the digest, by which the chart names the image.
func plainly(index v1.ImageIndex) v1.ImageIndex {
	var manifest imagespec.Index
	must.OK(json.Unmarshal(must.Value(index.RawManifest()), &manifest))
	for i := range manifest.Manifests {
		manifest.Manifests[i].ArtifactType = ""
	}
	return plainIndex{index, must.Value(json.Marshal(manifest))}
}

func (i plainIndex) RawManifest() ([]byte, error) { return i.manifest, nil }
func (i plainIndex) IndexManifest() (*v1.IndexManifest, error) {
	return v1.ParseIndexManifest(bytes.NewReader(i.manifest))
}
func (i plainIndex) Digest() (v1.Hash, error) { return partial.Digest(i) }
func (i plainIndex) Size() (int64, error)     { return int64(len(i.manifest)), nil }
