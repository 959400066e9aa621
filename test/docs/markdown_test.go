// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/fenceline/fenceline/test/check"
	"github.com/fenceline/fenceline/test/thirdparty"
)

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
