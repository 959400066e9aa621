// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"go/importer"
	"go/token"
	"go/types"
	"io"
	"maps"
	"os"
	"os/exec"
	"path"
	"strings"
	"testing"

	"github.com/fenceline/fenceline/test/check"
)

// today are the figures of the code where they miss their goal: at most 90 packages, 38 of them of the agent,
// 405 arrows, 125 of them inside the agent, no folders that import each other, and no type with more than
// mostMethods. They may only become smaller. A package exists because two others need it, or because it hides a
// state.
var today = map[string]int{
	"packages": 74, "packages of the agent": 30, "arrows": 394, "arrows inside the agent": 121,
}

// mostMethods bounds the methods of this repository that one value answers to, those of embedded fields
// counted.
const mostMethods = 25

func TestTheHouseOnlyShrinks(t *testing.T) {
	root, _ := documents(t)
	code, got := imported(t, root), map[string]int{}
	countPackages(code, got)
	countCycles(code, got)
	countMethods(t, code, got)
	for what := range maps.Keys(got) {
		check.That(t, got[what] <= today[what], "%s: %d, at most %d", what, got[what], today[what])
	}
	for what, most := range today {
		check.That(t, got[what] >= most, "%s: %d, and this test still allows %d", what, got[what], most)
	}
}

func countPackages(code arrows, got map[string]int) {
	inAgent := func(path string) bool { return strings.HasPrefix(path, "agent") }
	for from, tos := range code {
		got["packages"]++
		if inAgent(from) {
			got["packages of the agent"]++
		}
		for to := range tos {
			got["arrows"]++
			if inAgent(from) && inAgent(to) {
				got["arrows inside the agent"]++
			}
		}
	}
}

// countCycles finds the folders of one parent that import each other.
func countCycles(code arrows, got map[string]int) {
	for depth := 1; depth <= 4; depth++ {
		between := arrows{}
		for from, tos := range code {
			for to := range tos {
				a, deep := folder(from, depth)
				b, alsoDeep := folder(to, depth)
				if deep && alsoDeep && a != b && path.Dir(a) == path.Dir(b) {
					between.add(a, b)
				}
			}
		}
		for a, tos := range between {
			for b := range tos {
				if a < b && between[b][a] {
					got["cycle of "+a+" and "+b] = 1
				}
			}
		}
	}
}

// folder returns the folder of a path at a depth, and false if the path is less deep.
func folder(path string, depth int) (string, bool) {
	parts := strings.Split(path, "/")
	if len(parts) < depth {
		return "", false
	}
	return strings.Join(parts[:depth], "/"), true
}

// countMethods finds the types that answer to too many methods. It reads what the compiler has written.
func countMethods(t *testing.T, code arrows, got map[string]int) {
	t.Helper()
	list := exec.CommandContext(t.Context(), "go", "list", "-export", "-deps", "-f", "{{.ImportPath}} {{.Export}}", "./...")
	list.Dir = "../.."
	out, err := list.Output()
	check.OK(t, err)
	files := map[string]string{}
	for line := range strings.Lines(string(out)) {
		path, file, _ := strings.Cut(strings.TrimSpace(line), " ")
		files[path] = file
	}
	compiled := importer.ForCompiler(token.NewFileSet(), "gc", func(path string) (io.ReadCloser, error) { return os.Open(files[path]) })
	for path := range code {
		p, err := compiled.Import(module + path)
		check.OK(t, err)
		for _, name := range p.Scope().Names() {
			o, ok := p.Scope().Lookup(name).(*types.TypeName)
			if !ok || o.IsAlias() || types.IsInterface(o.Type()) {
				continue
			}
			if n := ownMethods(o.Type()); n > mostMethods {
				got["methods of "+path+"."+name] = n
			}
		}
	}
}

// ownMethods counts the methods of this repository that a pointer to a type has.
func ownMethods(of types.Type) (n int) {
	methods := types.NewMethodSet(types.NewPointer(of))
	for i := range methods.Len() {
		if p := methods.At(i).Obj().Pkg(); p != nil && strings.HasPrefix(p.Path()+"/", module) {
			n++
		}
	}
	return n
}
