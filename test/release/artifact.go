// SPDX-License-Identifier: Apache-2.0

package release

import (
	"bytes"
	"encoding/json"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/partial"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/fenceline/fenceline/test/must"
)

// artifact is what one repository of the registry has of this version.
type artifact struct {
	// name is the repository below the registry.
	name    string
	content content
	// sbom is the document about an image.
	sbom []byte
}

type content interface {
	partial.Describable
	partial.WithRawManifest
}

// document is an artifact with a single layer, and a configuration that is not that of an image.
type document struct {
	layer            v1.Layer
	config, manifest []byte
}

// newDocument returns an artifact whose kind is the media type of its configuration.
func newDocument(kind types.MediaType, config []byte, layer v1.Layer, annotations map[string]string, subject *v1.Descriptor) v1.Image {
	about := must.Value(partial.Descriptor(layer))
	hash, size, err := v1.SHA256(bytes.NewReader(config))
	must.OK(err)
	manifest := must.Value(json.Marshal(v1.Manifest{
		SchemaVersion: 2, MediaType: types.OCIManifestSchema1, Config: v1.Descriptor{MediaType: kind, Size: size, Digest: hash},
		Layers: []v1.Descriptor{*about}, Annotations: annotations, Subject: subject,
	}))
	return must.Value(partial.CompressedToImage(document{layer, config, manifest}))
}

// sbomDocument is the referrer that carries the document about an image.
func sbomDocument(image artifact) v1.Image {
	const kind = "application/spdx+json"
	return newDocument(kind, []byte("{}"), static.NewLayer(image.sbom, kind), nil, must.Value(partial.Descriptor(image.content)))
}

func (d document) RawConfigFile() ([]byte, error)                         { return d.config, nil }
func (d document) RawManifest() ([]byte, error)                           { return d.manifest, nil }
func (d document) MediaType() (types.MediaType, error)                    { return types.OCIManifestSchema1, nil }
func (d document) LayerByDigest(v1.Hash) (partial.CompressedLayer, error) { return d.layer, nil }
