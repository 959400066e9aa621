package main

import (
	"bufio"
	"bytes"
	"fmt"
	"go/ast"
	"go/build/constraint"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// tagged finds the tests and benchmarks in files below root that are built only
// with the tag, so that a suite does not run the tests of another one again; the
// tag with, if any, is set anyway. It returns their packages, as arguments of go
// test, and their names.
func tagged(root, tag, with string) (packages, names []string, err error) {
	err = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			return skipForeign(root, path, d)
		}
		if !strings.HasSuffix(path, "_test.go") {
			return nil
		}
		found, err := testsWithTag(path, tag, with)
		if err != nil {
			return fmt.Errorf("look for tests with tag %s in %s: %w", tag, path, err)
		}
		if len(found) == 0 {
			return nil
		}
		dir, err := filepath.Rel(root, filepath.Dir(path))
		if err != nil {
			return err
		}
		packages = append(packages, "./"+filepath.ToSlash(dir))
		names = append(names, found...)
		return nil
	})
	slices.Sort(packages)
	slices.Sort(names)
	return slices.Compact(packages), slices.Compact(names), err
}

// skipForeign skips directories that `./...` would skip.
func skipForeign(root, path string, d fs.DirEntry) error {
	if path == root {
		return nil
	}
	if strings.HasPrefix(d.Name(), ".") || strings.HasPrefix(d.Name(), "_") || d.Name() == "testdata" {
		return filepath.SkipDir
	}
	if _, err := os.Stat(filepath.Join(path, "go.mod")); err == nil {
		return filepath.SkipDir
	}
	return nil
}

// testsWithTag returns the tests and benchmarks of a file that is built with the
// tag and not without.
func testsWithTag(path, tag, with string) ([]string, error) {
	source, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	needs, err := needsTag(source, tag, with)
	if err != nil || !needs {
		return nil, err
	}
	file, err := parser.ParseFile(token.NewFileSet(), path, source, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, decl := range file.Decls {
		f, ok := decl.(*ast.FuncDecl)
		if !ok || f.Recv != nil {
			continue
		}
		if name := f.Name.Name; name != "TestMain" && (strings.HasPrefix(name, "Test") || strings.HasPrefix(name, "Benchmark")) {
			names = append(names, name)
		}
	}
	return names, nil
}

func needsTag(source []byte, tag, with string) (bool, error) {
	for lines := bufio.NewScanner(bytes.NewReader(source)); lines.Scan(); {
		line := lines.Text()
		if strings.HasPrefix(line, "package ") {
			return false, nil
		}
		if !constraint.IsGoBuild(line) {
			continue
		}
		expr, err := constraint.Parse(line)
		if err != nil {
			return false, err
		}
		always := func(name string) bool { return name == "linux" || name == "amd64" || name == with }
		built := expr.Eval(func(name string) bool { return name == tag || always(name) })
		return built && !expr.Eval(always), nil
	}
	return false, nil
}
