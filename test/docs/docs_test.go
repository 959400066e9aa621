// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/fenceline/fenceline/test/check"
	"github.com/fenceline/fenceline/test/thirdparty"
)

// maxColumns is the longest line of prose.
const maxColumns = 100

func TestLinesOfProseAreShort(t *testing.T) {
	_, all := documents(t)
	for _, d := range all {
		for i, line := range d.lines {
			if n := utf8.RuneCountInString(line); n > maxColumns && !isTable(line) && !strings.Contains(line, "://") {
				t.Errorf("%s:%d has %d columns, want at most %d", d.path, i+1, n, maxColumns)
			}
			check.That(t, !strings.HasPrefix(line, "<<<<<<< ") && !strings.HasPrefix(line, ">>>>>>> "), "%s:%d: a conflict of two commits is left", d.path, i+1)
		}
	}
}

var link = regexp.MustCompile(`\]\(([^)\s]+)\)`)

func TestLinksResolve(t *testing.T) {
	root, all := documents(t)
	byPath := map[string]document{}
	for _, d := range all {
		byPath[d.path] = d
	}
	for _, d := range all {
		for _, m := range link.FindAllStringSubmatch(strings.Join(d.lines, "\n"), -1) {
			if strings.Contains(m[1], "://") {
				continue
			}
			path, anchor, _ := strings.Cut(m[1], "#")
			target := d.path
			if path != "" {
				target = filepath.Join(filepath.Dir(d.path), path)
			}
			_, err := os.Stat(filepath.Join(root, target))
			check.That(t, err == nil, "%s links to %s: %v", d.path, m[1], err)
			if to, ok := byPath[target]; anchor != "" && (!ok || !to.hasAnchor(anchor)) {
				t.Errorf("%s links to %s, which has no such heading", d.path, m[1])
			}
		}
	}
}

var (
	// named is a path of the repository in backquotes, possibly with * or a heading.
	named = regexp.MustCompile("`((?:agent|apis|bpf|charts|cni|controller|docs|examples|internal|test)(?:/[^`\\s]*)?)`")
	// variable is a part of a path that stands for several names.
	variable = regexp.MustCompile(`<[^>]*>|\b[A-Z]{2,}\b`)
)

func TestNamedPathsExist(t *testing.T) {
	root, all := documents(t)
	count := 0
	for _, d := range all {
		for _, m := range named.FindAllStringSubmatch(strings.Join(d.lines, "\n"), -1) {
			path, _, _ := strings.Cut(m[1], "#")
			path = variable.ReplaceAllString(path, "*")
			found, err := filepath.Glob(filepath.Join(root, path))
			page, _ := filepath.Glob(filepath.Join(root, path+".md"))
			check.That(t, err == nil && len(found)+len(page) > 0, "%s names %s, which does not exist", d.path, m[1])
			count++
		}
	}
	check.Must(t, count >= 100, "the documents name only %d paths", count)
}

// maxFiles is how many files a reader has to open to find something.
const maxFiles = 3

var (
	file  = regexp.MustCompile("`([a-z0-9_./]+\\.(?:go|h|c|yaml))`((?: [A-Za-z_]\\w+,?)*)")
	ident = regexp.MustCompile(`[A-Za-z_]\w+`)
)

// The tables that say where something is name a file, and after it the functions and types in it.
func TestTablesOfPlacesAreTrue(t *testing.T) {
	root, all := documents(t)
	for path, heading := range map[string]string{
		"docs/design.md": "## Where to find it",
		"docs/model.md":  "## Where it is in the code",
	} {
		for _, d := range all {
			if d.path != path {
				continue
			}
			rows := 0
			for _, line := range d.section(t, heading) {
				if !isTable(line) {
					continue
				}
				places, dir := file.FindAllStringSubmatch(line, -1), ""
				check.That(t, len(places) <= maxFiles, "%s: more than %d files to open: %s", path, maxFiles, line)
				for _, m := range places {
					name := m[1]
					if strings.Contains(name, "/") {
						dir = filepath.Dir(name)
					} else {
						name = filepath.Join(dir, name)
					}
					data, err := os.ReadFile(filepath.Join(root, name))
					if err != nil {
						t.Errorf("%s: %v", path, err)
						continue
					}
					for _, want := range ident.FindAllString(m[2], -1) {
						check.That(t, regexp.MustCompile(`\b`+want+`\b`).Match(data), "%s says that %s is in %s, where it is not", path, want, name)
					}
					rows++
				}
			}
			check.That(t, rows >= 10, "%s: only %d places below %q", path, rows, heading)
		}
	}
}

var (
	testName = regexp.MustCompile(`\bTest[A-Z]\w+`)
	testFunc = regexp.MustCompile(`(?m)^func (Test\w+)\(t \*testing\.T\)`)
)

func TestNamedTestsExist(t *testing.T) {
	root, all := documents(t)
	var exist []string
	err := filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		for _, m := range testFunc.FindAllStringSubmatch(string(data), -1) {
			exist = append(exist, m[1])
		}
		return nil
	})
	check.OK(t, err)
	for _, d := range all {
		for _, name := range testName.FindAllString(strings.Join(d.lines, "\n"), -1) {
			// A document may give the beginning of a name, as go test -run does.
			if !slices.ContainsFunc(exist, func(test string) bool { return strings.HasPrefix(test, name) }) {
				t.Errorf("%s names %s, which does not exist", d.path, name)
			}
		}
	}
}

// document is one Markdown file.
type document struct {
	// path is relative to the root of the repository.
	path string
	// text is the whole file, lines are its lines without those of code blocks, which are empty.
	text  string
	lines []string
}

// documents returns all Markdown files that people read.
func documents(t *testing.T) (root string, all []document) {
	t.Helper()
	root = check.Value(thirdparty.Root())(t)
	for _, pattern := range []string{"*.md", "docs/*.md", "charts/*/*.md", "examples/*.md"} {
		paths, err := filepath.Glob(filepath.Join(root, pattern))
		check.Must(t, err == nil && len(paths) != 0, "no file matches %s: %v", pattern, err)
		for _, path := range paths {
			data := check.Value(os.ReadFile(path))(t)
			path := check.Value(filepath.Rel(root, path))(t)
			all = append(all, document{path, string(data), withoutCode(string(data))})
		}
	}
	return root, all
}

// withoutCode returns the lines of a text, with the lines of code blocks empty.
func withoutCode(text string) []string {
	lines := strings.Split(text, "\n")
	fenced := false
	for i, line := range lines {
		fence := strings.HasPrefix(strings.TrimSpace(line), "```")
		if fence || fenced || strings.HasPrefix(line, "    ") {
			lines[i] = ""
		}
		fenced = fenced != fence
	}
	return lines
}

// section returns the lines below a heading, up to the next heading.
func (d document) section(t *testing.T, heading string) []string {
	t.Helper()
	for i, line := range d.lines {
		if line != heading {
			continue
		}
		for j, next := range d.lines[i+1:] {
			if strings.HasPrefix(next, "#") {
				return d.lines[i+1 : i+1+j]
			}
		}
		return d.lines[i+1:]
	}
	t.Fatalf("%s has no heading %q", d.path, heading)
	return nil
}

var dropped = regexp.MustCompile(`[^\p{L}\p{N}_ -]`)

// hasAnchor reports whether a heading of the document has the anchor, as GitHub makes anchors.
func (d document) hasAnchor(anchor string) bool {
	for _, line := range d.lines {
		title := strings.TrimLeft(line, "#")
		if title == line {
			continue
		}
		title = dropped.ReplaceAllString(strings.ToLower(strings.TrimSpace(title)), "")
		if strings.ReplaceAll(title, " ", "-") == anchor {
			return true
		}
	}
	return false
}

// isTable reports whether a line belongs to a table.
func isTable(line string) bool { return strings.HasPrefix(line, "|") }
