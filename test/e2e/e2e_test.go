//go:build cluster

package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/fenceline/fenceline/test/cluster"
	"github.com/fenceline/fenceline/test/images"
	"github.com/fenceline/fenceline/test/scenario"
	"github.com/fenceline/fenceline/test/thirdparty"
)

const (
	prefix = "fle2e"
	// playLimit is more than any scenario takes on a busy machine.
	playLimit = 10 * time.Minute
	// tail is how much of each file of a dump is printed.
	tail = 3000
)

// TestScenarios plays them in the order of the story: each leaves the cluster as
// it found it.
func TestScenarios(t *testing.T) {
	stage := open(t)
	for _, s := range scenario.All() {
		t.Run(s.Name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), playLimit)
			defer cancel()
			t.Log(s.Promise)
			figures, err := s.Play(ctx, stage, scenario.NewStory(t.Output()), func(ctx context.Context, _ error) { dump(ctx, t, stage, s.Name) })
			t.Logf("figures of %s:\n%s", s.Name, figures)
			if err != nil {
				t.Error(err)
			}
		})
	}
}

// open starts a cluster with Fenceline, for the length of the test.
func open(t *testing.T) *scenario.Stage {
	t.Helper()
	ctx := t.Context()
	c, err := cluster.Up(ctx, cluster.Options{
		Prefix: prefix, Management: netip.MustParsePrefix("172.30.2.0/24"), KubeProxy: true, Progress: t.Output(),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Down(context.Background()); err != nil {
			t.Error(err)
		}
	})
	stage, err := scenario.Open(c)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(c.InstallFenceline(ctx, images.DefaultVersion), c.WaitReady(ctx)); err != nil {
		dump(ctx, t, stage, "install")
		t.Fatal(err)
	}
	return stage
}

// dump writes down what may explain a failure, and prints the end of it.
func dump(ctx context.Context, t *testing.T, stage *scenario.Stage, name string) {
	t.Helper()
	root, err := thirdparty.Root()
	if err != nil {
		t.Error(err)
		return
	}
	dir := filepath.Join(root, "test-results", name)
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	if err := stage.Dump(ctx, dir); err != nil {
		t.Logf("the dump is not complete: %v", err)
	}
	err = filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		return printTail(t, path)
	})
	if err != nil {
		t.Logf("print %s: %v", dir, err)
	}
}

func printTail(t *testing.T, path string) error {
	content, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if len(content) > tail {
		content = content[len(content)-tail:]
		if end := bytes.IndexByte(content, '\n'); end >= 0 {
			content = content[end+1:]
		}
	}
	_, err = fmt.Fprintf(t.Output(), "--- the end of %s\n%s\n", path, content)
	return err
}
