// SPDX-License-Identifier: Apache-2.0

package release

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/google/go-containerregistry/pkg/v1/static"
	apiextensions "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"

	"github.com/fenceline/fenceline/test/controlplane"
	"github.com/fenceline/fenceline/test/must"
)

// chart packs the chart of the checkout, with the registry in its values, and the digests of the images in its
// annotations: those of the values would outlive an upgrade with --reuse-values.
func (r *release) chart(images []artifact, files map[string][]byte) artifact {
	var chart map[string]any
	must.Done(yaml.Unmarshal(files["Chart.yaml"], &chart), "read Chart.yaml")
	chart["version"], chart["appVersion"] = r.Version, r.Version
	annotations := chart["annotations"].(map[string]any)
	var list []map[string]string
	for _, image := range images {
		digest := must.Value(image.content.Digest()).String()
		annotations["fenceline.io/"+path.Base(image.name)+"-digest"] = digest
		list = append(list, map[string]string{"name": path.Base(image.name), "image": r.reference(image.name) + "@" + digest})
	}
	annotations["artifacthub.io/images"] = string(must.Value(yaml.Marshal(list)))
	annotations["artifacthub.io/crds"] = string(must.Value(yaml.Marshal(crds(files))))
	config := must.Value(json.Marshal(chart))
	packed := maps.Clone(files)
	packed["Chart.yaml"] = must.Value(yaml.Marshal(chart))
	if r.Registry != "" {
		const none = "\n  registry: \"\"\n"
		must.That(bytes.Count(files["values.yaml"], []byte(none)) == 1, "values.yaml has not one line for the registry")
		packed["values.yaml"] = bytes.Replace(files["values.yaml"], []byte(none), []byte("\n  registry: "+r.Registry+"/\n"), 1)
	}
	archive := compressed(r.pack("fenceline", packed, ""))
	r.files["fenceline-"+r.Version+".tgz"] = archive
	r.files["fenceline-crds.yaml"] = bytes.Join(slices.Collect(crdFiles(files)), nil)
	labels := r.labels("fenceline", chart["description"].(string))
	const helm = "application/vnd.cncf.helm."
	content := newDocument(helm+"config.v1+json", config, static.NewLayer(archive, helm+"chart.content.v1.tar+gzip"), labels, nil)
	return artifact{name: "charts/fenceline", content: content}
}

// crdFiles yields the CRDs of the chart in the order of their names.
func crdFiles(chart map[string][]byte) func(func([]byte) bool) {
	return func(yield func([]byte) bool) {
		for _, file := range slices.Sorted(maps.Keys(chart)) {
			if strings.HasPrefix(file, "files/crds/") && !yield(chart[file]) {
				return
			}
		}
	}
}

// crds returns what Artifact Hub shows of the CRDs.
func crds(chart map[string][]byte) (list []map[string]string) {
	for file := range crdFiles(chart) {
		var crd apiextensions.CustomResourceDefinition
		must.Done(yaml.Unmarshal(file, &crd), "read a CRD")
		version, kind := crd.Spec.Versions[0], crd.Spec.Names.Kind
		list = append(list, map[string]string{
			"kind": kind, "name": crd.Name, "version": version.Name, "displayName": kind, "description": version.Schema.OpenAPIV3Schema.Description,
		})
	}
	return list
}

// plain renders the chart for those who have no helm.
func (r *release) plain(ctx context.Context) {
	dir := must.Value(os.MkdirTemp("", "fenceline-chart-"))
	defer os.RemoveAll(dir)
	chart := filepath.Join(dir, "chart.tgz")
	must.OK(os.WriteFile(chart, r.files["fenceline-"+r.Version+".tgz"], 0o644))
	out, err := controlplane.Helm(ctx, "", "template", "fenceline", chart, "--namespace=fenceline-system", "--no-hooks")
	must.Done(err, "render the chart: %s", out)
	r.files["fenceline.yaml"] = []byte(out)
}

// pack returns a tar of the files below a folder. They have the time of the commit.
func (r *release) pack(folder string, files map[string][]byte, executable string) []byte {
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, file := range slices.Sorted(maps.Keys(files)) {
		header := tar.Header{Name: path.Join(folder, file), Mode: 0o644, Size: int64(len(files[file])), ModTime: r.time}
		if file == executable {
			header.Mode = 0o755
		}
		must.OK(w.WriteHeader(&header))
		must.Value(w.Write(files[file]))
	}
	must.OK(w.Close())
	return out.Bytes()
}

func compressed(data []byte) []byte {
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	must.Value(w.Write(data))
	must.OK(w.Close())
	return out.Bytes()
}
