// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/fenceline/fenceline/test/check"
)

// module is the prefix of the import paths of this repository.
const module = "github.com/fenceline/fenceline/"

// arrows are the packages that a package imports, directly.
type arrows map[string]map[string]bool

func (a arrows) add(from, to string) {
	if a[from] == nil {
		a[from] = map[string]bool{}
	}
	a[from][to] = true
}

// reaches reports whether arrows lead from one package to another.
func (a arrows) reaches(from, to string) bool {
	for next := range a[from] {
		if next == to || a.reaches(next, to) {
			return true
		}
	}
	return false
}

// imported returns all packages of the product, with their imports outside tests.
func imported(t *testing.T, root string) arrows {
	t.Helper()
	all := arrows{}
	for _, dir := range []string{"agent", "apis", "bpf", "cli", "cni", "controller", "internal"} {
		err := filepath.WalkDir(filepath.Join(root, dir), func(path string, e fs.DirEntry, err error) error {
			if err != nil || e.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			source, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ImportsOnly)
			if err != nil {
				return err
			}
			from, err := filepath.Rel(root, filepath.Dir(path))
			if all[from] == nil {
				all[from] = map[string]bool{}
			}
			for _, spec := range source.Imports {
				if to, ok := strings.CutPrefix(strings.Trim(spec.Path.Value, `"`), module); ok {
					all.add(from, to)
				}
			}
			return err
		})
		check.OK(t, err)
	}
	return all
}

var (
	box   = regexp.MustCompile(`(\w+)\[([^\]]+)\]`)
	arrow = regexp.MustCompile(`(?m)^\s*(\w+)(?:\[[^\]]+\])? --> (\w+)`)
)

// drawn returns the arrows of one picture of packages.
func drawn(picture string) arrows {
	names := map[string]string{}
	for _, m := range box.FindAllStringSubmatch(picture, -1) {
		names[m[1]] = m[2]
	}
	all := arrows{}
	for _, m := range arrow.FindAllStringSubmatch(picture, -1) {
		all.add(names[m[1]], names[m[2]])
	}
	return all
}

// boxes returns the packages of a picture.
func (a arrows) boxes() map[string]bool {
	all := map[string]bool{}
	for from, tos := range a {
		all[from] = true
		for to := range tos {
			all[to] = true
		}
	}
	return all
}

func TestPicturesOfPackagesAreTrue(t *testing.T) {
	root, all := documents(t)
	code := imported(t, root)
	for _, d := range all {
		if d.path != filepath.Join("docs", "packages.md") {
			continue
		}
		for _, heading := range []string{"### Packages of the agent", "### Packages of the controller"} {
			_, rest, _ := strings.Cut(d.text, heading+"\n")
			_, rest, _ = strings.Cut(rest, "```mermaid\n")
			text, _, _ := strings.Cut(rest, "```")
			picture := drawn(text)
			check.Must(t, len(picture) >= 5, "only %d packages have arrows below %q", len(picture), heading)
			for from, tos := range picture {
				for to := range tos {
					check.That(t, code[from][to], "below %q, an arrow leads from %s to %s, which it does not import", heading, from, to)
				}
			}
			for from := range picture.boxes() {
				for to := range code[from] {
					if picture.boxes()[to] && !picture.reaches(from, to) {
						t.Errorf("below %q, no arrow leads from %s to %s, which it imports", heading, from, to)
					}
				}
			}
		}
		for path := range code {
			check.That(t, strings.Contains(d.text, "`"+path+"`"), "%s has no package %s", d.path, path)
		}
	}
	for from, tos := range code {
		for to := range tos {
			if strings.HasPrefix(from, "controller") && strings.HasPrefix(to, "agent") {
				t.Errorf("%s imports %s: the controller imports no package of the agent", from, to)
			}
		}
	}
}
