// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// tagged finds the tests and benchmarks below dir that are built only with the tag, so that a suite
// does not repeat the tests of another one. The tag `with`, if any, is set in either case. Of these
// it takes the tests whose "package.Name" matches only. It returns the packages as arguments of go
// test, and the names of the tests.
func tagged(dir, tag, with string, only *regexp.Regexp) (packages, names []string, err error) {
	without, err := testFiles(dir, with)
	if err != nil {
		return nil, nil, err
	}
	files, err := testFiles(dir, strings.Trim(tag+","+with, ","))
	if err != nil {
		return nil, nil, err
	}
	for file, pkg := range files {
		if _, ok := without[file]; ok {
			continue
		}
		found, err := testsIn(file, "Test", "Benchmark")
		if err != nil {
			return nil, nil, fmt.Errorf("find the tests of %s: %w", file, err)
		}
		found = slices.DeleteFunc(found, func(name string) bool { return !only.MatchString(pkg + "." + name) })
		if len(found) > 0 {
			packages = append(packages, pkg)
			names = append(names, found...)
		}
	}
	slices.Sort(packages)
	slices.Sort(names)
	return slices.Compact(packages), slices.Compact(names), nil
}

// testFiles returns the test files below dir that are built with the tags, each with its package.
func testFiles(dir, tags string) (map[string]string, error) {
	cmd := exec.Command("go", "list", "-tags", tags, "-json=Dir,ImportPath,TestGoFiles,XTestGoFiles", "./...")
	cmd.Dir = dir
	out, err := cmd.Output()
	if err != nil {
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			err = fmt.Errorf("%w: %s", err, exit.Stderr)
		}
		return nil, fmt.Errorf("list the tests with tags %q: %w", tags, err)
	}
	files := map[string]string{}
	for decoder := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p struct {
			Dir, ImportPath           string
			TestGoFiles, XTestGoFiles []string
		}
		if err := decoder.Decode(&p); errors.Is(err, io.EOF) {
			return files, nil
		} else if err != nil {
			return nil, fmt.Errorf("list the tests with tags %q: %w", tags, err)
		}
		for _, name := range append(p.TestGoFiles, p.XTestGoFiles...) {
			files[filepath.Join(p.Dir, name)] = p.ImportPath
		}
	}
}

// testsIn returns the names of the functions of a file that begin with one of the prefixes, such as
// "Test".
func testsIn(path string, prefixes ...string) ([]string, error) {
	file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, decl := range file.Decls {
		f, ok := decl.(*ast.FuncDecl)
		if !ok || f.Recv != nil || f.Name.Name == "TestMain" {
			continue
		}
		name := f.Name.Name
		if slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(name, p) }) {
			names = append(names, name)
		}
	}
	return names, nil
}
