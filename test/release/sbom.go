// SPDX-License-Identifier: Apache-2.0

package release

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/fenceline/fenceline/test/must"
)

// spdx is a document of SPDX 2.3.
type spdx struct {
	Version       string         `json:"spdxVersion"`
	License       string         `json:"dataLicense"`
	ID            string         `json:"SPDXID"`
	Name          string         `json:"name"`
	Namespace     string         `json:"documentNamespace"`
	Creation      spdxCreation   `json:"creationInfo"`
	Packages      []spdxPackage  `json:"packages"`
	Relationships []spdxRelation `json:"relationships"`
}

type spdxCreation struct {
	Created  time.Time `json:"created"`
	Creators []string  `json:"creators"`
}

type spdxPackage struct {
	ID        string         `json:"SPDXID"`
	Name      string         `json:"name"`
	Version   string         `json:"versionInfo"`
	Download  string         `json:"downloadLocation"`
	Analyzed  bool           `json:"filesAnalyzed"`
	Declared  string         `json:"licenseDeclared"`
	Purpose   string         `json:"primaryPackagePurpose"`
	Checksums []spdxChecksum `json:"checksums,omitempty"`
	Refs      []spdxRef      `json:"externalRefs,omitempty"`
}

type spdxChecksum struct {
	Algorithm string `json:"algorithm"`
	Value     string `json:"checksumValue"`
}

type spdxRef struct {
	Category string `json:"referenceCategory"`
	Type     string `json:"referenceType"`
	Locator  string `json:"referenceLocator"`
}

type spdxRelation struct {
	From string `json:"spdxElementId"`
	Type string `json:"relationshipType"`
	To   string `json:"relatedSpdxElement"`
}

// sbom returns the document about a product: its programs, with their platforms as keys, and the modules and the
// standard library in each of them, by what the linker wrote there.
func (r *release) sbom(name, purl string, programs map[string][]byte) []byte {
	product := spdxPackage{
		ID: "SPDXRef-Product", Name: name, Version: r.Version, Declared: licence(name), Purpose: "APPLICATION", Download: "NOASSERTION",
		Refs: []spdxRef{{"PACKAGE-MANAGER", "purl", purl}},
	}
	d := spdx{
		Version: "SPDX-2.3", License: "CC0-1.0", ID: "SPDXRef-DOCUMENT", Name: name + "-" + r.Version,
		Creation: spdxCreation{r.time, []string{"Organization: Fenceline", "Tool: make-release"}},
		Packages: []spdxPackage{product}, Relationships: []spdxRelation{{"SPDXRef-DOCUMENT", "DESCRIBES", product.ID}},
	}
	modules := map[string]spdxPackage{}
	for _, program := range slices.Sorted(maps.Keys(programs)) {
		p := spdxPackage{
			ID: spdxID("Program", program), Name: program, Version: r.Version, Declared: licence(strings.Fields(program)[0]),
			Purpose: "APPLICATION", Download: "NOASSERTION",
			Checksums: []spdxChecksum{{"SHA256", fmt.Sprintf("%x", sha256.Sum256(programs[program]))}},
		}
		d.Packages = append(d.Packages, p)
		d.Relationships = append(d.Relationships, spdxRelation{product.ID, "CONTAINS", p.ID})
		for _, m := range modulesIn(program, programs[program]) {
			modules[m.ID] = m
			d.Relationships = append(d.Relationships, spdxRelation{p.ID, "DEPENDS_ON", m.ID})
		}
	}
	for _, id := range slices.Sorted(maps.Keys(modules)) {
		d.Packages = append(d.Packages, modules[id])
	}
	// The name of a document is unique. One of other content has another name.
	d.Namespace = fmt.Sprintf("%s/spdx/%s-%x", home, d.Name, sha256.Sum256(must.Value(json.Marshal(d))))
	return append(must.Value(json.MarshalIndent(d, "", " ")), '\n')
}

// modulesIn returns the modules that a program was linked of, without the project, and the standard library.
func modulesIn(name string, program []byte) (modules []spdxPackage) {
	info, err := buildinfo.Read(bytes.NewReader(program))
	must.Done(err, "read the build information of %s", name)
	add := func(path, version string) {
		purl := "pkg:golang/" + strings.ToLower(path) + "@" + strings.ReplaceAll(version, "+", "%2B")
		modules = append(modules, spdxPackage{
			ID: spdxID("Module", path+" "+version), Name: path, Version: version, Declared: "NOASSERTION", Purpose: "LIBRARY",
			Download: "NOASSERTION", Refs: []spdxRef{{"PACKAGE-MANAGER", "purl", purl}},
		})
	}
	add("stdlib", strings.TrimPrefix(info.GoVersion, "go"))
	for _, m := range info.Deps {
		m = cmp.Or(m.Replace, m)
		add(m.Path, m.Version)
	}
	return modules
}

// spdxID returns the identifier of an element, which has letters, digits, dots and dashes.
func spdxID(kind, name string) string {
	return "SPDXRef-" + kind + "-" + regexp.MustCompile(`[^A-Za-z0-9.]+`).ReplaceAllString(name, "-")
}
